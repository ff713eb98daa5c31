//! One decision: what is known is judged here, and Redis decides, in one round trip, if that still holds.
//!
//! - A key that this gateway has not seen, or whose record has changed, takes one more round trip.
//! - What a question took is given back when nobody waits for its answer any more, because the client has gone or the
//!   deadline has passed: the answer is then waited for by a task of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redis::{FromRedisValue as _, Value, cmd};
use tokio::time::timeout;

use crate::clock::{self, Micros};
use crate::key::{KeyDigest, KeyId};
use crate::quota::RateLimitStatus;
use crate::refusal::Refusal;
use crate::state::redis::Redis;
use crate::state::redis::Shared;
use crate::state::redis::client::{CommandError, Servers};
use crate::state::redis::decide::decide_codec::{self, Answer, Decided, Verdict};
use crate::state::redis::decide::key_cache::CachedKey;
use crate::state::redis::decide::late_answer::LateAnswer;
use crate::state::redis::record_codec::{StoredKey, StoredOrg};
use crate::state::redis::record_names;
use crate::state::redis::slots::lease::Permit;
use crate::state::redis::slots::slot_report::PendingReport;
use crate::state::{Admitted, DecideRequest, Decision, Permit as AnyPermit};

/// How often a decision begins anew because the records have changed meanwhile. More says that somebody changes them
/// all the time.
const TRIES: usize = 5;

/// What became of a question.
enum Outcome {
    /// A token and a slot were taken; the slot is given back when this is dropped.
    Admitted(Decided, Permit),
    Refused(Decided, Refusal),
    /// No slot is left, but some that we released may not have been counted as free.
    Crowded(Decided),
    /// The lease is not as Redis has it.
    Unsettled,
    Stale(Box<CachedKey>),
    Unknown,
}

impl Redis {
    /// Decides one request, without regard to the deadline.
    pub(in crate::state::redis) async fn decide_with_retry(
        &self,
        ask: DecideRequest<'_>,
        late_answer: Option<&Arc<LateAnswer>>,
    ) -> Result<Decision, CommandError> {
        let unknown = Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None };
        let mut known = self.shared.cache_get(ask.digest);
        // Released slots that are on their way for longer are as good as taken.
        let crossing = self.shared.settings.deadline / 4;
        for tries in 0..TRIES {
            let Some(key) = known else {
                known = self.find(&ask).await?;
                if known.is_none() {
                    return Ok(unknown);
                }
                continue;
            };
            let verdict = key.refuses(&ask).map_or(Verdict::Allowed, Verdict::Refused);
            let question = DecideCall::new(self, &key, verdict, ask.now, late_answer.cloned());
            known = match question.await? {
                Outcome::Admitted(decided, permit) => return Ok(admitted(&key, &decided, permit)),
                Outcome::Refused(decided, refusal) => return Ok(refused(&key, &decided, refusal)),
                Outcome::Crowded(decided) if tries + 1 == TRIES => {
                    return Ok(refused(&key, &decided, Refusal::TooManyInFlight));
                }
                Outcome::Crowded(decided) => match timeout(crossing, key.lease.heard()).await {
                    Ok(()) => Some(key),
                    Err(_) => return Ok(refused(&key, &decided, Refusal::TooManyInFlight)),
                },
                Outcome::Stale(fresh) => Some(self.shared.cache_put(ask.digest, *fresh)),
                Outcome::Unsettled if self.shared.resync(&self.servers, &key.lease).await? => Some(key),
                // Without its organization there is no key.
                Outcome::Unsettled => return Ok(unknown),
                Outcome::Unknown => {
                    self.shared.known.remove(ask.digest);
                    None
                }
            };
        }
        Err(CommandError::Overloaded)
    }

    /// Reads the key that a digest belongs to: under the id that the presented key names, else by the digest's index.
    async fn find(&self, ask: &DecideRequest<'_>) -> Result<Option<Arc<CachedKey>>, CommandError> {
        if let Some(id) = ask.id
            && let Some((key, org)) = self.read_records(id).await?
            && (key.digest == *ask.digest || key.previous == Some(*ask.digest))
        {
            return Ok(Some(self.shared.cache_put(ask.digest, self.shared.cached_key(ask.digest, &key, &org, None))));
        }
        let Some(id) = self.find_key_id(ask.digest).await? else { return Ok(None) };
        let found = self.read_records(id).await?;
        Ok(found
            .map(|(key, org)| self.shared.cache_put(ask.digest, self.shared.cached_key(ask.digest, &key, &org, None))))
    }

    /// The key that has, or had, a digest.
    pub(in crate::state::redis) async fn find_key_id(&self, digest: &KeyDigest) -> Result<Option<KeyId>, CommandError> {
        let name = self.shared.record_names.digest(digest);
        let mut get = cmd("HGET");
        get.arg(&name).arg("key");
        let id = self.servers.send(record_names::hash_slot(&name), &get).await?;
        let id = Option::<String>::from_redis_value(id).map_err(|_| CommandError::UnexpectedReply)?;
        id.map(|id| id.parse().map_err(|_| CommandError::UnexpectedReply)).transpose()
    }

    /// The records of a key and its organization.
    pub(in crate::state::redis) async fn read_records(
        &self,
        id: KeyId,
    ) -> Result<Option<(StoredKey, StoredOrg)>, CommandError> {
        let shared = &self.shared;
        let (key, org) = (shared.record_names.key(id), shared.record_names.org(id.tag()));
        let question = decide_codec::encode_read();
        let keys: [&[u8]; 2] = [key.as_bytes(), org.as_bytes()];
        let slot = record_names::hash_slot(id.tag().as_str());
        let answer = self.servers.run(slot, &shared.scripts.decide, &keys, &[&shared.holder, &question]).await?;
        match Answer::read(answer)? {
            Answer::Stale(records) => Ok(Some(*records)),
            Answer::Unknown => Ok(None),
            Answer::Decided(_) | Answer::Unregistered => Err(CommandError::UnexpectedReply),
        }
    }
}

/// A question on its way. Polled to its end by whoever asked, or by a task when they have gone.
struct DecideCall {
    answer: Option<Answering>,
    known: Arc<CachedKey>,
    shared: Arc<Shared>,
    /// Whom to tell what became of it, when somebody decided without it meanwhile.
    late_answer: Option<Arc<LateAnswer>>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Outcome, CommandError>> + Send>>;

impl DecideCall {
    fn new(
        redis: &Redis,
        known: &Arc<CachedKey>,
        verdict: Verdict,
        now: Micros,
        late_answer: Option<Arc<LateAnswer>>,
    ) -> Self {
        let (shared, servers) = (Arc::clone(&redis.shared), redis.servers.clone());
        let answer = Box::pin(decide_once(Arc::clone(&shared), servers, Arc::clone(known), verdict, now));
        Self { answer: Some(answer), known: Arc::clone(known), shared, late_answer }
    }
}

impl Future for DecideCall {
    type Output = Result<Outcome, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answer) = self.answer.as_mut() else { return Poll::Ready(Err(CommandError::Lost(None))) };
        let outcome = std::task::ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(outcome)
    }
}

impl Drop for DecideCall {
    fn drop(&mut self) {
        // Without a runtime the process ends: what is held is given back by the lease.
        let Some(answer) = self.answer.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (late_answer, known, shared) = (self.late_answer.take(), Arc::clone(&self.known), Arc::clone(&self.shared));
        late_answer.iter().for_each(|late_answer| late_answer.mark_pending());
        runtime.spawn(async move {
            // What was fenced ran as well: only its slot was forgotten.
            let ran = matches!(answer.await, Ok(Outcome::Admitted(..)) | Err(CommandError::Fenced));
            if late_answer.is_some_and(|late_answer| late_answer.complete(ran)) {
                shared.record_unreported(&known);
            }
        });
    }
}

/// Asks, and keeps the books.
async fn decide_once(
    shared: Arc<Shared>,
    servers: Servers,
    known: Arc<CachedKey>,
    verdict: Verdict,
    now: Micros,
) -> Result<Outcome, CommandError> {
    let report = match verdict {
        Verdict::Refused(_) | Verdict::Look => None,
        Verdict::Allowed => match known.lease.begin_report() {
            Some(report) => Some(report),
            None => return Ok(Outcome::Unsettled),
        },
    };
    let debt = known.usage.debt();
    let owed = debt.map_or(0, |debt| debt.total);
    let question = decide_codec::encode_request(&shared.settings, &known, verdict, owed, report.as_ref(), now);
    let answer = send_decide(&shared, &servers, &known, &question, debt.map(|debt| debt.name)).await;
    let answer = match answer.and_then(Answer::read) {
        Err(failure) => {
            if failure.did_not_run() {
                report.into_iter().for_each(PendingReport::not_sent);
            }
            return Err(failure);
        }
        Ok(answer) => answer,
    };
    if let (Answer::Decided(_), Some(debt)) = (&answer, debt) {
        known.usage.paid(debt);
    }
    match answer {
        Answer::Decided(decided) => Ok(apply_decision(&known, decided, report)?),
        Answer::Stale(records) => {
            report.into_iter().for_each(PendingReport::not_sent);
            let (key, org) = *records;
            let usage = Some(Arc::clone(&known.usage));
            Ok(Outcome::Stale(Box::new(shared.cached_key(&known.digest, &key, &org, usage))))
        }
        Answer::Unregistered => {
            report.into_iter().for_each(PendingReport::unregistered);
            Ok(Outcome::Unsettled)
        }
        Answer::Unknown => {
            report.into_iter().for_each(PendingReport::not_sent);
            Ok(Outcome::Unknown)
        }
    }
}

/// Puts the question, with the name of the debt that is part of it, if there is one.
async fn send_decide(
    shared: &Shared,
    servers: &Servers,
    known: &CachedKey,
    question: &[u8],
    debt: Option<[u8; 8]>,
) -> Result<Value, CommandError> {
    let (slot, decide) = (known.lease.slot, &shared.scripts.decide);
    let (key, org): (&[u8], &[u8]) = (&known.record, &known.lease.org);
    match debt {
        None => servers.run(slot, decide, &[key, org], &[&shared.holder, question]).await,
        Some(name) => {
            let debts = shared.record_names.debts(known.tag());
            servers.run(slot, decide, &[key, org, debts.as_bytes()], &[&shared.holder, question, &name]).await
        }
    }
}

fn apply_decision(known: &CachedKey, decided: Decided, report: Option<PendingReport>) -> Result<Outcome, CommandError> {
    known.usage.heard(decided.level, decided.uses, clock::now());
    match (decided.refusal, report) {
        (None, Some(report)) => match report.acquired(decided.taken, known.concurrent) {
            Some(permit) => Ok(Outcome::Admitted(decided, permit)),
            // The lease was settled without this slot, which is not ours then.
            None => Err(CommandError::Fenced),
        },
        (Some(refusal), report) => {
            let early = report.is_some_and(PendingReport::denied);
            let near_limit = early && refusal == Refusal::TooManyInFlight;
            Ok(if near_limit { Outcome::Crowded(decided) } else { Outcome::Refused(decided, refusal) })
        }
        (None, None) => Err(CommandError::UnexpectedReply),
    }
}

fn admitted(key: &CachedKey, decided: &Decided, permit: Permit) -> Decision {
    Decision::Admitted(Admitted {
        principal: Arc::clone(&key.principal),
        rate_limit: decided.rate_limit_status(key),
        number: decided.uses,
        permit: AnyPermit::Redis(permit),
        provisional: false,
    })
}

/// Those who are not authenticated learn nothing of where the key stands.
fn refused(key: &CachedKey, decided: &Decided, refusal: Refusal) -> Decision {
    use Refusal::{Expired, Revoked, Unknown, UserRemoved};
    let authenticated = !matches!(refusal, Unknown | Revoked | Expired | UserRemoved);
    let rate_limit = authenticated.then(|| decided.rate_limit_status(key));
    Decision::Denied { refusal, principal: Some(Arc::clone(&key.principal)), rate_limit }
}

/// Where a key stands, taking nothing; what it owes is paid.
pub(in crate::state::redis) async fn read_status(
    redis: &Redis,
    known: &Arc<CachedKey>,
    now: Micros,
) -> Result<Option<RateLimitStatus>, CommandError> {
    let mut known = Arc::clone(known);
    for _ in 0..TRIES {
        match DecideCall::new(redis, &known, Verdict::Look, now, None).await? {
            Outcome::Refused(decided, _) => return Ok(Some(decided.rate_limit_status(&known))),
            Outcome::Stale(fresh) => known = Arc::from(fresh),
            Outcome::Unknown => return Ok(None),
            Outcome::Admitted(..) | Outcome::Crowded(_) | Outcome::Unsettled => {
                return Err(CommandError::UnexpectedReply);
            }
        }
    }
    Err(CommandError::Overloaded)
}
