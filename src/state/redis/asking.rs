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

use super::account::Permit;
use super::fate::Fate;
use super::known::Known;
use super::layout;
use super::question::{self, Answer, Decided, Verdict};
use super::servers::{Failure, Servers};
use super::stored::{StoredKey, StoredOrg};
use super::telling::Telling;
use super::{Redis, Shared};
use crate::clock::{self, Micros};
use crate::key::{KeyDigest, KeyId};
use crate::quota::RateLimitStatus;
use crate::state::{Admitted, DecideRequest, Decision, Permit as AnyPermit, Refusal};

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
    /// The account is not as Redis has it.
    Unsettled,
    Stale(Box<Known>),
    Unknown,
}

impl Redis {
    /// Decides one request, without regard to the deadline.
    pub(super) async fn asked(&self, ask: DecideRequest<'_>, fate: Option<&Arc<Fate>>) -> Result<Decision, Failure> {
        let unknown = Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None };
        let mut known = self.shared.recall(ask.digest);
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
            let question = Asking::new(self, &key, verdict, ask.now, fate.cloned());
            known = match question.await? {
                Outcome::Admitted(decided, permit) => return Ok(admitted(&key, &decided, permit)),
                Outcome::Refused(decided, refusal) => return Ok(refused(&key, &decided, refusal)),
                Outcome::Crowded(decided) if tries + 1 == TRIES => {
                    return Ok(refused(&key, &decided, Refusal::TooManyInFlight));
                }
                Outcome::Crowded(decided) => match timeout(crossing, key.account.heard()).await {
                    Ok(()) => Some(key),
                    Err(_) => return Ok(refused(&key, &decided, Refusal::TooManyInFlight)),
                },
                Outcome::Stale(fresh) => Some(self.shared.remember(ask.digest, *fresh)),
                Outcome::Unsettled if self.shared.settle(&self.servers, &key.account).await? => Some(key),
                // Without its organization there is no key.
                Outcome::Unsettled => return Ok(unknown),
                Outcome::Unknown => {
                    self.shared.known.remove(ask.digest);
                    None
                }
            };
        }
        Err(Failure::Overloaded)
    }

    /// Reads the key that a digest belongs to: under the id that the presented key names, else by the digest's index.
    async fn find(&self, ask: &DecideRequest<'_>) -> Result<Option<Arc<Known>>, Failure> {
        if let Some(id) = ask.id
            && let Some((key, org)) = self.records(id).await?
            && (key.digest == *ask.digest || key.previous == Some(*ask.digest))
        {
            return Ok(Some(self.shared.remember(ask.digest, self.shared.known_of(ask.digest, &key, &org, None))));
        }
        let Some(id) = self.indexed(ask.digest).await? else { return Ok(None) };
        let found = self.records(id).await?;
        Ok(found.map(|(key, org)| self.shared.remember(ask.digest, self.shared.known_of(ask.digest, &key, &org, None))))
    }

    /// The key that has, or had, a digest.
    pub(super) async fn indexed(&self, digest: &KeyDigest) -> Result<Option<KeyId>, Failure> {
        let name = self.shared.layout.digest(digest);
        let mut get = cmd("HGET");
        get.arg(&name).arg("key");
        let id = self.servers.send(layout::slot(&name), &get).await?;
        let id = Option::<String>::from_redis_value(id).map_err(|_| Failure::Nonsense)?;
        id.map(|id| id.parse().map_err(|_| Failure::Nonsense)).transpose()
    }

    /// The records of a key and its organization.
    pub(super) async fn records(&self, id: KeyId) -> Result<Option<(StoredKey, StoredOrg)>, Failure> {
        let shared = &self.shared;
        let (key, org) = (shared.layout.key(id), shared.layout.org(id.tag()));
        let question = question::unknown();
        let keys: [&[u8]; 2] = [key.as_bytes(), org.as_bytes()];
        let slot = layout::slot(id.tag().as_str());
        let answer = self.servers.run(slot, &shared.scripts.decide, &keys, &[&shared.holder, &question]).await?;
        match Answer::read(answer)? {
            Answer::Stale(records) => Ok(Some(*records)),
            Answer::Unknown => Ok(None),
            Answer::Decided(_) | Answer::Unregistered => Err(Failure::Nonsense),
        }
    }
}

/// A question on its way. Polled to its end by whoever asked, or by a task when they have gone.
struct Asking {
    answer: Option<Answering>,
    known: Arc<Known>,
    shared: Arc<Shared>,
    /// Whom to tell what became of it, when somebody decided without it meanwhile.
    fate: Option<Arc<Fate>>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;

impl Asking {
    fn new(redis: &Redis, known: &Arc<Known>, verdict: Verdict, now: Micros, fate: Option<Arc<Fate>>) -> Self {
        let (shared, servers) = (Arc::clone(&redis.shared), redis.servers.clone());
        let answer = Box::pin(ask(Arc::clone(&shared), servers, Arc::clone(known), verdict, now));
        Self { answer: Some(answer), known: Arc::clone(known), shared, fate }
    }
}

impl Future for Asking {
    type Output = Result<Outcome, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answer) = self.answer.as_mut() else { return Poll::Ready(Err(Failure::Lost(None))) };
        let outcome = std::task::ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Without a runtime the process ends: what is held is given back by the lease.
        let Some(answer) = self.answer.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (fate, known, shared) = (self.fate.take(), Arc::clone(&self.known), Arc::clone(&self.shared));
        fate.iter().for_each(|fate| fate.is_followed());
        runtime.spawn(async move {
            // What was fenced ran as well: only its slot was forgotten.
            let ran = matches!(answer.await, Ok(Outcome::Admitted(..)) | Err(Failure::Fenced));
            if fate.is_some_and(|fate| fate.is_decided(ran)) {
                shared.owe_use(&known);
            }
        });
    }
}

/// Asks, and keeps the books.
async fn ask(
    shared: Arc<Shared>,
    servers: Servers,
    known: Arc<Known>,
    verdict: Verdict,
    now: Micros,
) -> Result<Outcome, Failure> {
    let telling = match verdict {
        Verdict::Refused(_) | Verdict::Look => None,
        Verdict::Allowed => match known.account.tell() {
            Some(telling) => Some(telling),
            None => return Ok(Outcome::Unsettled),
        },
    };
    let debt = known.usage.debt();
    let owed = debt.map_or(0, |debt| debt.total);
    let question = question::question(&shared.settings, &known, verdict, owed, telling.as_ref(), now);
    let answer = put(&shared, &servers, &known, &question, debt.map(|debt| debt.name)).await;
    let answer = match answer.and_then(Answer::read) {
        Err(failure) => {
            if failure.did_not_run() {
                telling.into_iter().for_each(Telling::untold);
            }
            return Err(failure);
        }
        Ok(answer) => answer,
    };
    if let (Answer::Decided(_), Some(debt)) = (&answer, debt) {
        known.usage.paid(debt);
    }
    match answer {
        Answer::Decided(decided) => Ok(decided_upon(&known, decided, telling)?),
        Answer::Stale(records) => {
            telling.into_iter().for_each(Telling::untold);
            let (key, org) = *records;
            let usage = Some(Arc::clone(&known.usage));
            Ok(Outcome::Stale(Box::new(shared.known_of(&known.digest, &key, &org, usage))))
        }
        Answer::Unregistered => {
            telling.into_iter().for_each(Telling::unknown);
            Ok(Outcome::Unsettled)
        }
        Answer::Unknown => {
            telling.into_iter().for_each(Telling::untold);
            Ok(Outcome::Unknown)
        }
    }
}

/// Puts the question, with the name of the debt that is part of it, if there is one.
async fn put(
    shared: &Shared,
    servers: &Servers,
    known: &Known,
    question: &[u8],
    debt: Option<[u8; 8]>,
) -> Result<Value, Failure> {
    let (slot, decide) = (known.account.slot, &shared.scripts.decide);
    let (key, org): (&[u8], &[u8]) = (&known.record, &known.account.org);
    match debt {
        None => servers.run(slot, decide, &[key, org], &[&shared.holder, question]).await,
        Some(name) => {
            let debts = shared.layout.debts(known.tag());
            servers.run(slot, decide, &[key, org, debts.as_bytes()], &[&shared.holder, question, &name]).await
        }
    }
}

fn decided_upon(known: &Known, decided: Decided, telling: Option<Telling>) -> Result<Outcome, Failure> {
    known.usage.heard(decided.level, decided.uses, clock::now());
    match (decided.refusal, telling) {
        (None, Some(telling)) => match telling.took(decided.taken, known.concurrent) {
            Some(permit) => Ok(Outcome::Admitted(decided, permit)),
            // The account was settled without this slot, which is not ours then.
            None => Err(Failure::Fenced),
        },
        (Some(refusal), telling) => {
            let early = telling.is_some_and(Telling::refused);
            let crowded = early && refusal == Refusal::TooManyInFlight;
            Ok(if crowded { Outcome::Crowded(decided) } else { Outcome::Refused(decided, refusal) })
        }
        (None, None) => Err(Failure::Nonsense),
    }
}

fn admitted(key: &Known, decided: &Decided, permit: Permit) -> Decision {
    Decision::Admitted(Admitted {
        principal: Arc::clone(&key.principal),
        rate_limit: decided.rate_limit_status(key),
        number: decided.uses,
        permit: AnyPermit::Redis(permit),
        provisional: false,
    })
}

/// Those who are not authenticated learn nothing of where the key stands.
fn refused(key: &Known, decided: &Decided, refusal: Refusal) -> Decision {
    use Refusal::{Expired, Revoked, Unknown, UserRemoved};
    let authenticated = !matches!(refusal, Unknown | Revoked | Expired | UserRemoved);
    let rate_limit = authenticated.then(|| decided.rate_limit_status(key));
    Decision::Denied { refusal, principal: Some(Arc::clone(&key.principal)), rate_limit }
}

/// Where a key stands, taking nothing; what it owes is paid.
pub(super) async fn look(redis: &Redis, known: &Arc<Known>, now: Micros) -> Result<Option<RateLimitStatus>, Failure> {
    let mut known = Arc::clone(known);
    for _ in 0..TRIES {
        match Asking::new(redis, &known, Verdict::Look, now, None).await? {
            Outcome::Refused(decided, _) => return Ok(Some(decided.rate_limit_status(&known))),
            Outcome::Stale(fresh) => known = Arc::from(fresh),
            Outcome::Unknown => return Ok(None),
            Outcome::Admitted(..) | Outcome::Crowded(_) | Outcome::Unsettled => return Err(Failure::Nonsense),
        }
    }
    Err(Failure::Overloaded)
}
