//! One call of `decide.lua`, from the report that it carries to the permit that it acquires.
//!
//! A call that is dropped before its reply arrived, because the client has gone or the deadline has passed, is finished
//! by a task of its own: the slot that it may have acquired is released as soon as the reply arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::Value;

use super::decide_codec::{DecideReply, Decided, Evaluation, REQUEST_LENGTH, encode_request};
use super::key_cache::CachedKey;
use super::late_answer::LateAnswer;
use super::shared::DeciderShared;
use super::usage::UnreportedUses;
use crate::clock::{self, Micros};
use crate::refusal::Refusal;
use crate::state::Unavailable;
use crate::state::redis::client::{CommandError, RedisClient, SentCommand};
use crate::state::redis::slots::{PendingReport, Permit};

/// A decide call without a result.
#[derive(Debug, thiserror::Error)]
pub(in crate::state::redis) enum DecideError {
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The script ran, but a resync that began meanwhile did not count the slot: Redis has forgotten it.
    #[error("the reply came after a resync of the slot lease")]
    Fenced,
    /// The records changed again and again.
    #[error("the records kept changing")]
    Contended,
}

impl From<&DecideError> for Unavailable {
    fn from(error: &DecideError) -> Self {
        match error {
            DecideError::Command(error) => error.into(),
            DecideError::Fenced => Self::Unreachable,
            DecideError::Contended => Self::Overloaded,
        }
    }
}

/// Result of a decide call.
pub(super) enum CallOutcome {
    /// A token and a slot were taken; the permit releases the slot on drop.
    Admitted(Decided, Permit),
    Refused(Decided, Refusal),
    /// No slot is free, but releases of this gateway may not have been counted yet.
    StaleDenial(Decided),
    /// The slot lease has to be resynced first.
    LeaseInDoubt,
    /// The cached records were stale; this is the new entry.
    Stale(Box<CachedKey>),
    /// There is no such key.
    Unknown,
}

type CallResult = Result<CallOutcome, DecideError>;
type CallFuture = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// A decide call in flight.
///
/// - It is sent when it is made. Polled, it waits for the reply, however long that takes: the deadline is the caller's.
/// - A reply at the first attempt is applied without a future of its own. What is rare is one: a second attempt, and a
///   call whose caller has gone.
pub(super) struct DecideCall<'a> {
    shared: &'a Arc<DeciderShared>,
    client: &'a RedisClient,
    key: &'a Arc<CachedKey>,
    /// Shared with the request, which may be admitted offline while this call is still in flight.
    late_answer: Option<&'a Arc<LateAnswer>>,
    stage: Stage,
}

/// How far a call is.
#[allow(clippy::large_enum_variant, reason = "nearly every call is sent; a box would be an allocation for each")]
enum Stage {
    /// Its reply is awaited.
    Sent(SentCall),
    /// It is finished by a future of its own.
    Finishing(CallFuture),
    /// This is the result, which was not taken yet; nothing was sent.
    NotSent(CallResult),
    Completed,
}

/// A call that was sent, and what its reply is applied to.
struct SentCall {
    command: SentCommand,
    question: Question,
}

/// What a call asks and reports.
struct Question {
    evaluation: Evaluation,
    now: Micros,
    /// Releases; and the slot, which the call may acquire. `None` for a refused request, which needs no valid lease.
    report: Option<PendingReport>,
    /// Uses that were admitted offline.
    uses: Option<UnreportedUses>,
}

impl<'a> DecideCall<'a> {
    /// A call about a cached key, as evaluated.
    pub(super) fn new(
        shared: &'a Arc<DeciderShared>,
        client: &'a RedisClient,
        key: &'a Arc<CachedKey>,
        evaluation: Evaluation,
        now: Micros,
        late_answer: Option<&'a Arc<LateAnswer>>,
    ) -> Self {
        let stage = send(shared, client, key, evaluation, now);
        Self { shared, client, key, late_answer, stage }
    }

    /// Waits for the result as long as the link waits for replies.
    pub(super) async fn finish(mut self) -> CallResult {
        match self.take_finishing() {
            Ok(finishing) => finishing.await,
            Err(result) => result,
        }
    }

    /// Takes the future that finishes the call; the result, if nothing was sent.
    fn take_finishing(&mut self) -> Result<CallFuture, CallResult> {
        match std::mem::replace(&mut self.stage, Stage::Completed) {
            Stage::Sent(sent) => Ok(self.finishing(sent, None)),
            Stage::Finishing(finishing) => Ok(finishing),
            Stage::NotSent(result) => Err(result),
            Stage::Completed => Err(Err(CommandError::Lost(None).into())),
        }
    }

    /// The future that finishes a call; `first` is the error of its first attempt, if that has ended.
    fn finishing(&self, sent: SentCall, first: Option<CommandError>) -> CallFuture {
        // 'static, so that a task can run it.
        let (shared, client, key) = (Arc::clone(self.shared), self.client.clone(), Arc::clone(self.key));
        Box::pin(finish(shared, client, key, sent, first))
    }
}

impl Future for DecideCall<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        let first = match &mut call.stage {
            Stage::Sent(sent) => ready!(sent.command.poll_reply(cx)),
            Stage::Finishing(finishing) => {
                let result = ready!(finishing.as_mut().poll(cx));
                call.stage = Stage::Completed;
                return Poll::Ready(result);
            }
            Stage::NotSent(_) | Stage::Completed => {
                let result = call.take_finishing().err();
                return Poll::Ready(result.unwrap_or_else(|| Err(CommandError::Lost(None).into())));
            }
        };
        let Stage::Sent(sent) = std::mem::replace(&mut call.stage, Stage::Completed) else { return Poll::Pending };
        match first {
            Err(error) if error.asks_for_another_attempt() => {
                call.stage = Stage::Finishing(call.finishing(sent, Some(error)));
                self.poll(cx)
            }
            reply => Poll::Ready(complete(call.shared, call.key, sent.question, reply)),
        }
    }
}

impl Drop for DecideCall<'_> {
    fn drop(&mut self) {
        let Ok(finishing) = self.take_finishing() else { return };
        // Without a runtime the process is ending: the slots are released when the lease expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (late_answer, key, shared) = (self.late_answer.cloned(), Arc::clone(self.key), Arc::clone(self.shared));
        late_answer.iter().for_each(|late_answer| late_answer.mark_pending());
        runtime.spawn(async move {
            // A fenced call took its token as well: only its slot was forgotten.
            let ran = matches!(finishing.await, Ok(CallOutcome::Admitted(..)) | Err(DecideError::Fenced));
            if late_answer.is_some_and(|late_answer| late_answer.complete(ran)) {
                shared.record_unreported(&key);
            }
        });
    }
}

/// Sends a call once, unless the lease has to be resynced first.
fn send(
    shared: &DeciderShared,
    client: &RedisClient,
    key: &Arc<CachedKey>,
    evaluation: Evaluation,
    now: Micros,
) -> Stage {
    let report = match evaluation {
        // A refused request acquires nothing, and so needs no valid lease.
        Evaluation::Refused(_) | Evaluation::StatusOnly => None,
        Evaluation::Allowed => match PendingReport::begin(&key.lease) {
            Some(report) => Some(report),
            None => return Stage::NotSent(Ok(CallOutcome::LeaseInDoubt)),
        },
    };
    let question = Question { evaluation, now, report, uses: key.usage.unreported() };
    let words = CallWords::new(shared, key, &question);
    let (keys, arguments) = words.keys_and_arguments(shared, key);
    match client.begin(key.lease.hash_slot, &shared.scripts.decide, &keys[..words.keys], &arguments[..words.keys - 1]) {
        Ok(command) => Stage::Sent(SentCall { command, question }),
        Err(error) => Stage::NotSent(complete(shared, key, question, Err(error))),
    }
}

/// Waits for the reply as long as the link does, sends the call again where the reply asks for that, and applies the
/// result.
async fn finish(
    shared: Arc<DeciderShared>,
    client: RedisClient,
    key: Arc<CachedKey>,
    sent: SentCall,
    first: Option<CommandError>,
) -> CallResult {
    let SentCall { command, question } = sent;
    let link = Arc::clone(command.link());
    let reply = match first {
        Some(error) => Err(error),
        None => command.finish().await,
    };
    let reply = match reply {
        Err(error) if error.asks_for_another_attempt() => {
            let words = CallWords::new(&shared, &key, &question);
            let (keys, arguments) = words.keys_and_arguments(&shared, &key);
            let (keys, arguments) = (&keys[..words.keys], &arguments[..words.keys - 1]);
            client.run_again(link, error, &shared.scripts.decide, keys, arguments).await
        }
        reply => reply,
    };
    complete(&shared, &key, question, reply)
}

/// The words of a call that have to be put together.
struct CallWords {
    request: [u8; REQUEST_LENGTH],
    /// Name of the record of reported uses, and the name of the uses; empty without uses to report.
    reported_uses: String,
    uses_name: [u8; 8],
    /// Number of keys; there is one argument less.
    keys: usize,
}

impl CallWords {
    fn new(shared: &DeciderShared, key: &CachedKey, question: &Question) -> Self {
        let Question { evaluation, now, report, uses } = question;
        let total = uses.map_or(0, |uses| uses.total);
        Self {
            request: encode_request(&shared.settings, key, *evaluation, total, report.as_ref(), *now),
            reported_uses: uses.map(|_| shared.names.reported_uses(key.tag())).unwrap_or_default(),
            uses_name: uses.map(|uses| uses.name).unwrap_or_default(),
            keys: if uses.is_some() { 4 } else { 3 },
        }
    }

    /// All keys and arguments, those for uses to report last.
    fn keys_and_arguments<'a>(
        &'a self,
        shared: &'a DeciderShared,
        key: &'a CachedKey,
    ) -> ([&'a [u8]; 4], [&'a [u8]; 3]) {
        let keys = [&*key.record, &*key.lease.org_record, &*key.user_record, self.reported_uses.as_bytes()];
        (keys, [&*shared.slots.gateway_id, &self.request, &self.uses_name])
    }
}

/// Applies the reply to the lease and the usage.
fn complete(
    shared: &DeciderShared,
    key: &CachedKey,
    question: Question,
    reply: Result<Value, CommandError>,
) -> CallResult {
    let Question { now, report, uses, .. } = question;
    let reply = match reply.and_then(DecideReply::decode) {
        Ok(reply) => reply,
        Err(error) => {
            // If it may have run, the report is dropped below as lost, which puts the lease in doubt.
            if error.did_not_run() {
                report.into_iter().for_each(PendingReport::not_sent);
            }
            return Err(error.into());
        }
    };
    if let (DecideReply::Decided(_), Some(uses)) = (&reply, uses) {
        key.usage.mark_reported(uses);
    }
    apply_reply(shared, key, reply, report, now)
}

fn apply_reply(
    shared: &DeciderShared,
    key: &CachedKey,
    reply: DecideReply,
    report: Option<PendingReport>,
    requested: Micros,
) -> Result<CallOutcome, DecideError> {
    match reply {
        DecideReply::Decided(decided) => apply_decision(key, decided, report, requested),
        // The script returned before it applied the report, so its releases are still to be reported.
        DecideReply::Stale(records) => {
            report.into_iter().for_each(PendingReport::not_sent);
            Ok(CallOutcome::Stale(Box::new(shared.cached_key(&key.digest, &records))))
        }
        DecideReply::Unknown => {
            report.into_iter().for_each(PendingReport::not_sent);
            Ok(CallOutcome::Unknown)
        }
        DecideReply::Unregistered => {
            report.into_iter().for_each(PendingReport::unregistered);
            Ok(CallOutcome::LeaseInDoubt)
        }
    }
}

fn apply_decision(
    key: &CachedKey,
    decided: Decided,
    report: Option<PendingReport>,
    requested: Micros,
) -> Result<CallOutcome, DecideError> {
    let now = clock::steady();
    key.confirm(now);
    key.usage.confirm(decided.level, decided.uses, now, decided.refusal.is_none().then_some(requested));
    match (decided.refusal, report) {
        (None, Some(report)) => match report.acquired(decided.taken, key.concurrent) {
            Some(permit) => Ok(CallOutcome::Admitted(decided, permit)),
            None => Err(DecideError::Fenced),
        },
        (Some(refusal), report) => {
            let may_be_stale = match report {
                Some(report) => report.denied(decided.taken),
                None => {
                    key.lease.note_answer(decided.taken);
                    false
                }
            };
            // Only a denial for lack of slots depends on releases.
            let is_stale = may_be_stale && refusal == Refusal::TooManyInFlight;
            Ok(if is_stale { CallOutcome::StaleDenial(decided) } else { CallOutcome::Refused(decided, refusal) })
        }
        // Only an evaluation `Allowed` can be admitted, and that has a report.
        (None, None) => Err(CommandError::UnexpectedReply.into()),
    }
}
