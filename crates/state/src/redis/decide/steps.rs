//! The steps of one decision, without I/O: what a decision does first, and what comes next after each result.
//!
//! The [`Decider`](super::decider::Decider) performs them with a client. The simulation of many gateways performs the
//! same steps on servers in virtual time.
//!
//! | after | next |
//! |---|---|
//! | the begin | a call, if the key is cached; else a read |
//! | a read | a call; refused when there is no such key |
//! | a call: admitted, refused | done |
//! | a call: no slot is free, while releases of this gateway are in flight | wait for these, then call again |
//! | a call: other versions of the records | call again with these |
//! | a call: a slot lease is in doubt, of the organization or the key | resync the lease, then call again |
//! | a call: the budget is in another period by the clock of Redis | call again, with that period |
//! | a call: there is no such key | a read: the digest may have another key by now |
//!
//! After [`MAX_ATTEMPTS`] calls the records are contended.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::call_outcome::CallOutcome;
use super::decide_codec::DecideError;
use super::decide_codec::{Decided, Evaluation};
use super::key_cache::CachedKey;
use super::local_refusal;
use super::reservation::RedisReservation;
use super::shared::DeciderShared;
use crate::redis::record_codec::StoredRecords;
use crate::redis::slots::{Permits, SlotLease};
use crate::{Admitted, DecideRequest, Decision, Permit, Reservation};
use domain::clock::Micros;
use domain::refusal::Refusal;
use redis_client::CommandError;

/// Attempts at one decision while the records keep changing. More means that they change all the time.
const MAX_ATTEMPTS: usize = 5;

/// The next step of a decision.
pub enum Step {
    /// The records of the key are read; then [`DecisionSteps::after_read`].
    Read,
    /// A decide call about this entry; then [`DecisionSteps::after_call`].
    Call(Arc<CachedKey>, Evaluation),
    /// This slot lease of the entry is resynced; then [`DecisionSteps::after_resync`].
    Resync(Arc<CachedKey>, Arc<SlotLease>),
    /// Waits until releases in flight of [`Decided::exhausted_lease`] have reached Redis; then
    /// [`DecisionSteps::after_releases`].
    AwaitReleases(Arc<CachedKey>, Decided),
}

/// The next step; or the end of the decision, with its result.
pub type Next = ControlFlow<Result<Decision, DecideError>, Step>;

/// Progress of one decision.
#[derive(Debug)]
pub struct DecisionSteps {
    /// Epoch of local verdicts in which it began.
    epoch: u64,
    /// Attempts that have begun.
    attempts: usize,
}

impl DecisionSteps {
    /// Begins a decision. A key that is not cached takes one more round trip.
    pub fn begin(shared: &DeciderShared, request: &DecideRequest<'_>) -> (Self, Next) {
        let mut steps = Self { epoch: shared.verdict_epoch(), attempts: 0 };
        let next = steps.begin_attempt(shared, request, shared.cache.lookup(request.digest));
        (steps, next)
    }

    fn begin_attempt(
        &mut self,
        shared: &DeciderShared,
        request: &DecideRequest<'_>,
        cached: Option<Arc<CachedKey>>,
    ) -> Next {
        if self.attempts == MAX_ATTEMPTS {
            return Next::Break(Err(DecideError::Contended));
        }
        self.attempts += 1;
        match cached {
            Some(key) => self.call(shared, request, key),
            None => Next::Continue(Step::Read),
        }
    }

    fn call(&self, shared: &DeciderShared, request: &DecideRequest<'_>, key: Arc<CachedKey>) -> Next {
        // Only where verdicts are as exact as the decisions.
        if shared.settings.may_refuse_locally()
            && let Some(decision) = local_refusal::refuse(&key, request, self.epoch)
        {
            return Next::Break(Ok(decision));
        }
        let evaluation = key.refusal(request).map_or(Evaluation::Allowed { cost: request.cost }, Evaluation::Refused);
        Next::Continue(Step::Call(key, evaluation))
    }

    /// The records that were found have been read at `now`, in steady time.
    pub fn after_read(
        &mut self,
        shared: &DeciderShared,
        request: &DecideRequest<'_>,
        found: Option<&StoredRecords>,
        now: Micros,
    ) -> Next {
        let Some(records) = found else { return Next::Break(Ok(unknown())) };
        let key = shared.cache.insert(request.digest, shared.cached_key(request.digest, records, now));
        self.call(shared, request, key)
    }

    /// A decide call about this entry has ended.
    pub fn after_call(
        &mut self,
        shared: &DeciderShared,
        request: &DecideRequest<'_>,
        key: Arc<CachedKey>,
        outcome: CallOutcome,
    ) -> Next {
        // A server that refuses writes may still say that a lease is in doubt: that decides nothing.
        if !matches!(outcome, CallOutcome::LeaseInDoubt(_)) {
            shared.health.note_answer();
        }
        match outcome {
            CallOutcome::Admitted(decided, permits) => {
                shared.count_missing_plan(&key);
                Next::Break(Ok(admitted(shared, &key, request, &decided, permits)))
            }
            CallOutcome::Refused(decided, refusal) => {
                shared.count_missing_plan(&key);
                // It counts towards a local verdict.
                local_refusal::add_refusal(&key, request, &decided, refusal, self.epoch);
                Next::Break(Ok(denied(&key, request, &decided, refusal)))
            }
            CallOutcome::StaleDenial(decided) if self.attempts == MAX_ATTEMPTS => {
                Next::Break(Ok(denied(&key, request, &decided, decided.slot_refusal())))
            }
            CallOutcome::StaleDenial(decided) => Next::Continue(Step::AwaitReleases(key, decided)),
            CallOutcome::Stale(fresh) => {
                let key = shared.cache.insert(request.digest, *fresh);
                self.begin_attempt(shared, request, Some(key))
            }
            CallOutcome::LeaseInDoubt(lease) => Next::Continue(Step::Resync(key, lease)),
            CallOutcome::OtherPeriod(_) => self.begin_attempt(shared, request, Some(key)),
            CallOutcome::Unknown => {
                shared.cache.remove(request.digest);
                self.begin_attempt(shared, request, None)
            }
        }
    }

    /// A slot lease was resynced; `exists` says that its organization or key does.
    pub fn after_resync(
        &mut self,
        shared: &DeciderShared,
        request: &DecideRequest<'_>,
        key: Arc<CachedKey>,
        exists: bool,
    ) -> Next {
        if exists {
            self.begin_attempt(shared, request, Some(key))
        } else {
            // The key is gone, perhaps with its organization.
            Next::Break(Ok(unknown()))
        }
    }

    /// Releases in flight have reached Redis. Unless `arrived`, they take so long that they might as well be taken
    /// slots.
    pub fn after_releases(
        &mut self,
        shared: &DeciderShared,
        request: &DecideRequest<'_>,
        (key, decided): (Arc<CachedKey>, Decided),
        arrived: bool,
    ) -> Next {
        if arrived {
            self.begin_attempt(shared, request, Some(key))
        } else {
            Next::Break(Ok(denied(&key, request, &decided, decided.slot_refusal())))
        }
    }
}

/// The step after a call that reads the status of a key: the call again, about a newer entry; or the decision about
/// it, which is `None` for a key that is gone. `attempts` counts the calls.
///
/// # Errors
/// The call has no such outcome, or the records kept changing.
pub fn after_status_call(
    attempts: &mut usize,
    outcome: CallOutcome,
) -> Result<ControlFlow<Option<Decided>, Arc<CachedKey>>, DecideError> {
    *attempts += 1;
    match outcome {
        CallOutcome::Stale(_) if *attempts == MAX_ATTEMPTS => Err(DecideError::Contended),
        CallOutcome::Refused(decided, _) => Ok(ControlFlow::Break(Some(decided))),
        CallOutcome::Stale(fresh) => Ok(ControlFlow::Continue(Arc::from(fresh))),
        CallOutcome::Unknown => Ok(ControlFlow::Break(None)),
        CallOutcome::Admitted(..)
        | CallOutcome::StaleDenial(_)
        | CallOutcome::LeaseInDoubt(_)
        | CallOutcome::OtherPeriod(_) => Err(CommandError::UnexpectedReply.into()),
    }
}

fn unknown() -> Decision {
    Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None }
}

fn admitted(
    shared: &DeciderShared,
    key: &Arc<CachedKey>,
    request: &DecideRequest<'_>,
    decided: &Decided,
    permits: Permits,
) -> Decision {
    key.verdict.clear();
    let permit = match key.budget.as_deref().zip(decided.budget) {
        Some((budget, status)) => {
            let counter = RedisReservation::new(key, &shared.unreported_keys);
            let total = budget.counter.total(status);
            Permit::Redis(permits).with_reservation(Reservation::redis(total, request.cost.units().into(), counter))
        }
        None => Permit::Redis(permits),
    };
    Decision::Admitted(Admitted {
        principal: Arc::clone(&key.principal),
        rate_limit: decided.rate_limit_status(key, request.cost.tokens()),
        number: decided.uses,
        permit,
        provisional: false,
        validity: key.validity(),
    })
}

/// Callers that are not authenticated learn nothing about the key's limits.
fn denied(key: &CachedKey, request: &DecideRequest<'_>, decided: &Decided, refusal: Refusal) -> Decision {
    let rate_limit =
        refusal.is_of_authenticated_caller().then(|| decided.rate_limit_status(key, request.cost.tokens()));
    Decision::Denied { refusal, principal: Some(Arc::clone(&key.principal)), rate_limit }
}
