//! One call of `decide.lua`, from the report that it carries to the permit that it acquires.
//!
//! A call that is dropped before its reply arrived, because the client has gone or the deadline has passed, is finished
//! by a task of its own: the slot that it may have acquired is released as soon as the reply arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redis::Value;

use super::decide_codec::{DecideReply, Decided, Evaluation, encode_request};
use super::key_cache::CachedKey;
use super::late_answer::LateAnswer;
use super::shared::DeciderShared;
use crate::clock::{self, Micros};
use crate::refusal::Refusal;
use crate::state::Unavailable;
use crate::state::redis::client::{CommandError, RedisClient};
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

type CallFuture = Pin<Box<dyn Future<Output = Result<CallOutcome, DecideError>> + Send>>;

/// A decide call in flight.
pub(super) struct DecideCall {
    /// `None` once it has completed.
    call: Option<CallFuture>,
    key: Arc<CachedKey>,
    shared: Arc<DeciderShared>,
    /// Shared with the request, which may be admitted offline while this call is still in flight.
    late_answer: Option<Arc<LateAnswer>>,
}

impl DecideCall {
    /// A call about a cached key, as evaluated.
    pub(super) fn new(
        shared: &Arc<DeciderShared>,
        client: &RedisClient,
        key: &Arc<CachedKey>,
        evaluation: Evaluation,
        now: Micros,
        late_answer: Option<Arc<LateAnswer>>,
    ) -> Self {
        // Boxed and 'static, so that a task can finish it.
        let call = Box::pin(decide_once(Arc::clone(shared), client.clone(), Arc::clone(key), evaluation, now));
        Self { call: Some(call), key: Arc::clone(key), shared: Arc::clone(shared), late_answer }
    }
}

impl Future for DecideCall {
    type Output = Result<CallOutcome, DecideError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = self.call.as_mut() else { return Poll::Ready(Err(CommandError::Lost(None).into())) };
        let outcome = std::task::ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(outcome)
    }
}

impl Drop for DecideCall {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        // Without a runtime the process is ending: the slots are released when the lease expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (late_answer, key, shared) = (self.late_answer.take(), Arc::clone(&self.key), Arc::clone(&self.shared));
        late_answer.iter().for_each(|late_answer| late_answer.mark_pending());
        runtime.spawn(async move {
            // A fenced call took its token as well: only its slot was forgotten.
            let ran = matches!(call.await, Ok(CallOutcome::Admitted(..)) | Err(DecideError::Fenced));
            if late_answer.is_some_and(|late_answer| late_answer.complete(ran)) {
                shared.record_unreported(&key);
            }
        });
    }
}

/// Calls the script once, and updates the lease and the usage by its reply.
async fn decide_once(
    shared: Arc<DeciderShared>,
    client: RedisClient,
    key: Arc<CachedKey>,
    evaluation: Evaluation,
    now: Micros,
) -> Result<CallOutcome, DecideError> {
    let report = match evaluation {
        // A refused request acquires nothing, and so needs no valid lease.
        Evaluation::Refused(_) | Evaluation::StatusOnly => None,
        Evaluation::Allowed => match PendingReport::begin(&key.lease) {
            Some(report) => Some(report),
            None => return Ok(CallOutcome::LeaseInDoubt),
        },
    };
    let uses = key.usage.unreported();
    let total = uses.map_or(0, |uses| uses.total);
    let request = encode_request(&shared.settings, &key, evaluation, total, report.as_ref(), now);
    let reply = send_decide(&shared, &client, &key, &request, uses.map(|uses| uses.name)).await;
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
    apply_reply(&shared, &key, reply, report, now)
}

/// Sends the call, with the name of the unreported uses in it, if there are any.
async fn send_decide(
    shared: &DeciderShared,
    client: &RedisClient,
    key: &CachedKey,
    request: &[u8],
    uses_name: Option<[u8; 8]>,
) -> Result<Value, CommandError> {
    let (slot, decide, gateway_id) = (key.lease.hash_slot, &shared.scripts.decide, &shared.slots.gateway_id);
    let (key_record, org_record, user_record): (&[u8], &[u8], &[u8]) =
        (&key.record, &key.lease.org_record, &key.user_record);
    match uses_name {
        None => client.run(slot, decide, &[key_record, org_record, user_record], &[gateway_id, request]).await,
        Some(name) => {
            let reported = shared.names.reported_uses(key.tag());
            let keys = [key_record, org_record, user_record, reported.as_bytes()];
            client.run(slot, decide, &keys, &[gateway_id, request, &name]).await
        }
    }
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
