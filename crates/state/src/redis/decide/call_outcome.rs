//! The outcome of a decide call: its reply, applied to the lease and to the usage of the key.

use std::time::Instant;

use redis::Value;

use super::decide_codec::{DecideReply, Decided, Evaluation};
use super::key_cache::CachedKey;
use super::shared::DeciderShared;
use super::usage::UnreportedUses;
use crate::Unavailable;
use crate::redis::slots::{PendingReport, Permit};
use domain::clock::Micros;
use domain::refusal::Refusal;
use redis_client::CommandError;

/// A decide call without a result.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
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

impl DecideError {
    /// Returns whether Redis has given no answer, so that an offline decision may stand in for it.
    pub fn allows_offline(&self) -> bool {
        !matches!(self, Self::Fenced)
    }
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

/// Outcome of a decide call.
pub enum CallOutcome {
    /// A token and a slot were taken; the permit releases the slot on drop.
    Admitted(Decided, Permit),
    /// Nothing was taken.
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

/// Result of a decide call.
pub type CallResult = Result<CallOutcome, DecideError>;

/// Request and slot report of a call.
pub struct DecideInput {
    pub(super) evaluation: Evaluation,
    pub(super) now: Micros,
    /// Releases; and the slot, which the call may acquire. `None` for a refused request, which needs no valid lease.
    pub(super) report: Option<PendingReport>,
    /// Uses that were admitted offline.
    pub(super) uses: Option<UnreportedUses>,
}

impl DecideInput {
    /// Begins a call about a cached key, as evaluated; `None` when the slot lease has to be resynced first. `now` is
    /// the time of the request, `begun` that of the call.
    pub fn begin(key: &CachedKey, evaluation: Evaluation, now: Micros, begun: Instant) -> Option<Self> {
        let report = match evaluation {
            // A refused request acquires nothing, and so needs no valid lease.
            Evaluation::Refused(_) | Evaluation::StatusOnly => None,
            Evaluation::Allowed => Some(PendingReport::begin(&key.lease, begun)?),
        };
        Some(Self { evaluation, now, report, uses: key.usage.unreported() })
    }
}

/// Returns whether a call took a token. A fenced call did as well: only its slot was forgotten.
pub fn took_token(result: &CallResult) -> bool {
    matches!(result, Ok(CallOutcome::Admitted(..)) | Err(DecideError::Fenced))
}

/// Applies the reply to the lease and the usage. `now` is steady.
pub fn complete(
    shared: &DeciderShared,
    key: &CachedKey,
    input: DecideInput,
    reply: Result<Value, CommandError>,
    now: Micros,
) -> CallResult {
    let DecideInput { now: requested, report, uses, .. } = input;
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
    apply_reply(shared, key, reply, report, requested, now)
}

fn apply_reply(
    shared: &DeciderShared,
    key: &CachedKey,
    reply: DecideReply,
    report: Option<PendingReport>,
    requested: Micros,
    now: Micros,
) -> CallResult {
    match reply {
        DecideReply::Decided(decided) => apply_decision(key, decided, report, requested, now),
        // The script returned before it applied the report, so its releases are still to be reported.
        DecideReply::Stale(records) => {
            report.into_iter().for_each(PendingReport::not_sent);
            Ok(CallOutcome::Stale(Box::new(shared.cached_key(&key.digest, &records, now))))
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
    mut decided: Decided,
    report: Option<PendingReport>,
    requested: Micros,
    now: Micros,
) -> CallResult {
    decided.refusal = decided.refusal.map(|refusal| key.refusal_of(refusal, requested));
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
