//! Local refusal: a key that Redis has refused several times in a row is refused here by a verdict, without asking
//! Redis, for a short time.
//!
//! A verdict never refuses what Redis would admit, but for these times after Redis has last refused the key:
//!
//! - one second where a change of the directory could admit it: a raised limit, a granted permission, an organization
//!   that is resumed. The first decision after that asks Redis again;
//! - 10 ms while the organization or the key has no free slot, since one can become free at any time, and until this
//!   gateway releases one of them;
//! - for good when the key is revoked, as long as the key is cached and the servers are the same.
//!
//! A verdict on an empty bucket ends when its next token has flowed in, and its response says when that is. Every
//! change that this process makes, and every failover, ends all verdicts: what was changed here is effective at once.
//!
//! An admitted request reads a few numbers more than it would without verdicts.

use std::sync::Arc;
use std::time::Duration;

use super::decide_codec::{Decided, rate_limit_status};
use super::key_cache::CachedKey;
use super::verdict::Basis;
use crate::bucket::{Bucket, REORDERED_US};
use crate::{DecideRequest, Decision};
use domain::clock::Micros;
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;

/// Time for which a verdict holds where a change of the directory could admit the key.
const CHANGES_SEEN_AFTER: Duration = Duration::from_secs(1);
/// Time for which a verdict holds when no slot is free: some ten round trips, in which a slot is rarely missed, and few
/// enough decisions that a loop costs Redis next to nothing.
const SLOTS_SEEN_AFTER: Duration = Duration::from_millis(10);

/// Notes that Redis has refused a request; `epoch` is the one in which the request was sent.
pub(super) fn add_refusal(
    key: &CachedKey,
    request: &DecideRequest<'_>,
    decided: &Decided,
    refusal: Refusal,
    epoch: u64,
) {
    // It says something about this client, and nothing about the next one.
    if refusal == Refusal::AddressRefused {
        return;
    }
    key.verdict.add_refusal(Basis {
        refusal,
        at: request.now,
        bucket: Bucket { level: decided.level, at: bucket_time(key, request.now) },
        held_elsewhere: decided.held_elsewhere(),
        held: key.lease.held(),
        key_slots_elsewhere: decided.key_slots_elsewhere(),
        budget: decided.budget,
        key_slots_held: key.slots.as_deref().map_or(0, |slots| slots.lease.held()),
        epoch,
    });
}

/// The time of the bucket of a request that was refused at `now`: that of a later request, if that was admitted before.
fn bucket_time(key: &CachedKey, now: Micros) -> Micros {
    let admitted = key.usage.state().last_admitted;
    if admitted.since(now) > REORDERED_US { now } else { now.max(admitted) }
}

/// Refuses a request, if a verdict of this epoch holds.
pub(super) fn refuse(key: &CachedKey, request: &DecideRequest<'_>, epoch: u64) -> Option<Decision> {
    let basis = key.verdict.basis(epoch)?;
    let refusal = find_refusal(&basis, key, request)?;
    let rate_limit = refusal.is_of_authenticated_caller().then(|| status_at(&basis, key, request));
    Some(Decision::Denied { refusal, principal: Some(Arc::clone(&key.principal)), rate_limit })
}

/// The refusal that holds for this request; `None` when Redis is to be asked.
fn find_refusal(basis: &Basis, key: &CachedKey, request: &DecideRequest<'_>) -> Option<Refusal> {
    if basis.refusal == Refusal::Revoked {
        return Some(Refusal::Revoked);
    }
    // A time before the refusal means that the clock was set back, and how far is unknown.
    let is_recent = request.now >= basis.at && request.now < basis.at.after(CHANGES_SEEN_AFTER);
    is_recent.then_some(())?;
    // By the clock of Redis, which may differ from this gateway's.
    if let Refusal::Expired | Refusal::KeyExpired = basis.refusal {
        return Some(basis.refusal);
    }
    if key.valid_until() <= request.now {
        return None;
    }
    key.refusal(request).or_else(|| find_exceeded_limit(basis, key, request))
}

fn find_exceeded_limit(basis: &Basis, key: &CachedKey, request: &DecideRequest<'_>) -> Option<Refusal> {
    let now = request.now;
    // By the cost of this request: what another one could not pay may be enough.
    if basis.bucket.try_take(key.quota, request.cost.tokens(), now).is_err() {
        return Some(Refusal::RateLimited);
    }
    if basis.refusal == Refusal::QuotaExhausted
        && let Some(status) = basis.budget
        && u64::from(request.cost.units()) > status.remaining()
        && now < status.end
    {
        return Some(Refusal::QuotaExhausted);
    }
    let is_full = match basis.refusal {
        Refusal::TooManyInFlight => key.lease.held() >= basis.held,
        Refusal::KeyTooManyInFlight => {
            key.slots.as_deref().is_some_and(|slots| slots.lease.held() >= basis.key_slots_held)
        }
        _ => false,
    };
    (is_full && now < basis.at.after(SLOTS_SEEN_AFTER)).then_some(basis.refusal)
}

fn status_at(basis: &Basis, key: &CachedKey, request: &DecideRequest<'_>) -> RateLimitStatus {
    let in_flight = basis.held_elsewhere.saturating_add(key.lease.held());
    let key_slots = key.slot_status(basis.key_slots_elsewhere);
    let bucket = basis.bucket.refill(key.quota, request.now);
    let status = rate_limit_status((bucket, key.quota), request.cost.tokens(), key.concurrent, in_flight, key_slots);
    RateLimitStatus { budget: basis.budget.map(Box::new), ..status }
}
