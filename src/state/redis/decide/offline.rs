//! Deciding while Redis is unavailable: recently confirmed keys are admitted against this gateway's share.
//!
//! - The share is the limit divided by the number of gateways that were live when Redis last answered: of the bucket as
//!   it was then, of the refill, of the burst, and of the concurrency. So all gateways together stay within the limits,
//!   unless slots were held unevenly when Redis became unavailable. Where a burst or a concurrency limit is smaller than
//!   the number of gateways, the share is 0.
//! - The cached records decide: a revocation made meanwhile is not seen. `max_staleness` bounds for how long.
//! - The uses are reported to Redis once it is available again, each once, except those that Redis admitted itself with
//!   a late reply (`late_answer`). If that reply was lost, this is unknown: the use is reported, which errs on the side
//!   of the limit.

use std::sync::Arc;

use super::decide_codec::rate_limit_status;
use super::decider::Decider;
use super::key_cache::CachedKey;
use super::late_answer::LateAnswer;
use super::usage::UsageState;
use crate::clock::Micros;
use crate::quota::{Quota, RateLimitStatus};
use crate::refusal::Refusal;
use crate::state::bucket::Bucket;
use crate::state::redis::settings::OnUnavailable;
use crate::state::redis::slots::Permit;
use crate::state::{Admitted, DecideRequest, Decision, Permit as StatePermit};

impl Decider {
    /// Decides without Redis; `None` when the settings or the age of the cached key forbid it.
    pub(super) fn decide_offline(
        &self,
        request: &DecideRequest<'_>,
        late_answer: Option<&LateAnswer>,
    ) -> Option<Decision> {
        let OnUnavailable::KnownKeys { max_staleness } = self.shared.settings.on_unavailable else { return None };
        let key = self.shared.cache.lookup_offline(request.digest)?;
        let confirmed = key.usage.state().confirmed;
        if confirmed.after(max_staleness) < request.now {
            return None;
        }
        let expired = key.valid_until() <= request.now;
        let refusal = key.refusal(request).or(expired.then_some(Refusal::Expired));
        let principal = Arc::clone(&key.principal);
        if let Some(refusal) = refusal {
            return Some(Decision::Denied { refusal, principal: Some(principal), rate_limit: None });
        }
        let gateways = self.shared.slots.live_gateways();
        Some(match take_share(&key, gateways, request.now) {
            Ok((permit, rate_limit, number)) => {
                // While the reply of Redis is still awaited, the awaiting task decides whether to report the use.
                if late_answer.is_none_or(LateAnswer::admit_locally) {
                    self.shared.record_unreported(&key);
                }
                let permit = StatePermit::Redis(permit);
                Decision::Admitted(Admitted { principal, rate_limit, number, permit, provisional: true })
            }
            Err((refusal, rate_limit)) => {
                Decision::Denied { refusal, principal: Some(principal), rate_limit: Some(rate_limit) }
            }
        })
    }
}

/// Takes a token and a slot of this gateway's share. Fails with the refusal by which one is missing.
fn take_share(
    key: &CachedKey,
    gateways: u32,
    now: Micros,
) -> Result<(Permit, RateLimitStatus, u64), (Refusal, RateLimitStatus)> {
    let quota = quota_share(key.quota, gateways);
    let concurrent = key.concurrent / gateways;
    let mut state = key.usage.state();
    let bucket = bucket_share(&state, key.quota, gateways).refill(quota, now);
    let status = |bucket: Bucket| rate_limit_status(bucket, quota, concurrent, key.lease.held());
    let taken = bucket.try_take(quota, now).map_err(|_| (Refusal::RateLimited, status(bucket)))?;
    let permit = key.lease.acquire_offline(concurrent);
    let permit = permit.ok_or_else(|| (Refusal::TooManyInFlight, status(bucket)))?;
    // Stored only now: without a slot no token is taken.
    state.share = Some(taken);
    let number = state.uses + state.unreported.pending() + 1;
    Ok((permit, status(taken), number))
}

/// The quota of one of so many gateways. A token takes as many times longer to flow in, so that a bucket level has the
/// same unit in the share as in the whole.
fn quota_share(quota: Quota, gateways: u32) -> Quota {
    // Its burst and its inflow are those of the whole, also of a strict quota.
    let requests = quota.inflow();
    Quota { requests, per: quota.per.saturating_mul(gateways), burst: quota.burst / gateways, strict: false }
}

/// The bucket of this gateway: the one of the present outage, or at its begin a part of what Redis last reported.
fn bucket_share(state: &UsageState, quota: Quota, gateways: u32) -> Bucket {
    let first = || {
        let full = Bucket::full(quota_share(quota, gateways), state.bucket.at).level;
        let bucket = state.bucket.charge(quota, state.unreported.pending());
        Bucket { level: bucket.level.min(full), ..bucket }
    };
    state.share.unwrap_or_else(first)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::usage::UnreportedUses;
    use super::*;

    const QUOTA: Quota = Quota { requests: 100, per: Duration::from_secs(100), burst: 40, strict: false };
    const NOW: Micros = Micros(1_800_000_000_000_000);

    fn tokens(level: u64, gateways: u32, after: Duration) -> u32 {
        let bucket = Bucket { level, at: NOW };
        let unreported = UnreportedUses::default();
        let state = UsageState { bucket, uses: 0, confirmed: NOW, share: None, unreported };
        let quota = quota_share(QUOTA, gateways);
        bucket_share(&state, QUOTA, gateways).refill(quota, NOW.after(after)).remaining(quota)
    }

    #[test]
    fn shares_add_up_to_no_more_than_the_whole() {
        let full = Bucket::full(QUOTA, NOW).level;
        for gateways in 1..50 {
            assert!(tokens(full, gateways, Duration::ZERO) * gateways <= 40);
            assert!(tokens(full / 2, gateways, Duration::ZERO) * gateways <= 20);
            assert!(tokens(0, gateways, Duration::from_secs(8)) * gateways <= 8);
            assert!(tokens(0, gateways, Duration::from_secs(1_000_000)) * gateways <= 40);
        }
        assert_eq!(tokens(full, 4, Duration::ZERO), 10);
        assert_eq!(tokens(0, 4, Duration::from_secs(8)), 2);
    }
}
