//! The outcome of a decide call: its reply, applied to the lease and to the usage of the key.

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use super::budget::BudgetCall;
use super::decide_codec::{DecideError, DecideReply, Decided, Evaluation};
use super::key_cache::CachedKey;
use super::pending_reports::PendingReports;
use super::reservation::RedisReservation;
use super::shared::DeciderShared;
use super::usage::UnreportedUses;
use crate::redis::slots::{Permits, SlotLease};
use domain::clock::Micros;
use domain::refusal::Refusal;
use redis_client::CommandError;

/// Outcome of a decide call.
pub enum CallOutcome {
    /// A token and slots were taken; the permits release the slots on drop.
    Admitted(Decided, Permits),
    /// Nothing was taken.
    Refused(Decided, Refusal),
    /// No slot is free, but releases of this gateway may not have been counted yet.
    StaleDenial(Decided),
    /// This slot lease has to be resynced first.
    LeaseInDoubt(Arc<SlotLease>),
    /// By the clock of Redis, which is this, the budget is in another period.
    OtherPeriod(Micros),
    /// The cached records were stale; this is the new entry.
    Stale(Box<CachedKey>),
    /// There is no such key.
    Unknown,
}

/// Result of a decide call.
pub type CallResult = Result<CallOutcome, DecideError>;

/// Request and slot reports of a call.
#[derive(Debug)]
pub struct DecideInput {
    pub(super) evaluation: Evaluation,
    pub(super) now: Micros,
    /// Releases; and the slots, which the call may acquire.
    pub(super) reports: PendingReports,
    /// Uses that were admitted offline.
    pub(super) uses: Option<UnreportedUses>,
    /// The budget, of a key whose plan has one.
    pub(super) budget: Option<Box<BudgetCall>>,
}

impl DecideInput {
    /// Begins a call about a cached key, as evaluated. `now` is the time of the request, `begun` that of the call.
    ///
    /// # Errors
    /// The slot lease that has to be resynced first.
    pub fn begin(
        shared: &DeciderShared,
        key: &CachedKey,
        evaluation: Evaluation,
        now: Micros,
        begun: Instant,
    ) -> Result<Self, Arc<SlotLease>> {
        let reports = match evaluation {
            // A refused request acquires nothing, and so needs no valid lease.
            Evaluation::Refused(_) | Evaluation::StatusOnly => PendingReports::default(),
            Evaluation::Allowed { .. } => PendingReports::begin(key, begun)?,
        };
        let budget = key.budget.as_deref().map(|budget| Box::new(BudgetCall::new(budget, shared.redis_time(now))));
        Ok(Self { evaluation, now, reports, uses: key.usage.unreported(), budget })
    }
}

/// Returns whether a call took a token. A fenced call did as well: only its slot was forgotten.
pub fn took_token(result: &CallResult) -> bool {
    matches!(result, Ok(CallOutcome::Admitted(..)) | Err(DecideError::Fenced))
}

/// Gives back what a call has reserved of a budget whose caller has gone: its request was not forwarded.
pub fn give_back(shared: &DeciderShared, key: &Arc<CachedKey>, units: u32, result: CallResult) {
    if let Ok(CallOutcome::Admitted(decided, _)) = result
        && let Some(status) = decided.budget
    {
        RedisReservation::new(key, &shared.unreported_keys).settle(status.start, units.into(), 0);
    }
}

/// Applies the reply to the lease and the usage. `now` is steady.
pub fn complete(
    shared: &DeciderShared,
    key: &CachedKey,
    input: DecideInput,
    reply: Result<Value, CommandError>,
    now: Micros,
) -> CallResult {
    let DecideInput { now: requested, reports, uses, budget, .. } = input;
    let reply = match reply.and_then(|reply| DecideReply::decode(reply, budget.as_deref())) {
        Ok(reply) => reply,
        Err(error) => {
            // If it may have run, the reports are dropped below as lost, which puts the leases in doubt.
            if error.did_not_run() {
                reports.not_sent();
            }
            return Err(error.into());
        }
    };
    if let DecideReply::Decided(decided) = &reply {
        uses.into_iter().for_each(|uses| key.usage.mark_reported(uses));
        if let (Some(call), Some(budget)) = (&budget, key.budget.as_deref()) {
            call.answered(&budget.counter);
            if let Some(status) = decided.budget {
                budget.counter.notice(&shared.near, key.principal.org_id, status);
            }
        }
    }
    apply_reply(shared, key, reply, reports, requested, now)
}

fn apply_reply(
    shared: &DeciderShared,
    key: &CachedKey,
    reply: DecideReply,
    reports: PendingReports,
    requested: Micros,
    now: Micros,
) -> CallResult {
    match reply {
        DecideReply::Decided(decided) => apply_decision(key, decided, reports, requested, now),
        // The script returned before it applied the reports, so their releases are still to be reported.
        DecideReply::Stale(records) => {
            reports.not_sent();
            Ok(CallOutcome::Stale(Box::new(shared.cached_key(&key.digest, &records, now))))
        }
        DecideReply::OtherPeriod(redis) => {
            reports.not_sent();
            shared.note_redis_time(redis, requested);
            Ok(CallOutcome::OtherPeriod(redis))
        }
        DecideReply::Unknown => {
            reports.not_sent();
            Ok(CallOutcome::Unknown)
        }
        DecideReply::Unregistered { of_key } => Ok(CallOutcome::LeaseInDoubt(reports.unregistered(key, of_key))),
    }
}

fn apply_decision(
    key: &CachedKey,
    mut decided: Decided,
    reports: PendingReports,
    requested: Micros,
    now: Micros,
) -> CallResult {
    decided.refusal = decided.refusal.map(|refusal| key.refusal_of(refusal, requested));
    key.confirm(now);
    key.usage.confirm(decided.level, decided.uses, now, decided.refusal.is_none().then_some(requested));
    let Some(refusal) = decided.refusal else {
        let permits = reports.acquired(key, &decided)?;
        return Ok(CallOutcome::Admitted(decided, permits));
    };
    let is_stale = reports.denied(key, &decided, refusal);
    Ok(if is_stale { CallOutcome::StaleDenial(decided) } else { CallOutcome::Refused(decided, refusal) })
}
