//! Deciding without Redis, while it is away: keys that it vouched for a short while ago, against this gateway's share.
//!
//! - The share is the limit divided by the number of gateways that lived when Redis was last heard: of the bucket as it
//!   was then, of what flows in, of the burst, and of the concurrency. So all gateways together stay within the limits,
//!   as long as no slots were held unevenly when Redis went away. Where a burst or a concurrency is smaller than the
//!   number of gateways, the share is nothing.
//! - What a key was told by its records is what counts: a revocation made meanwhile is not seen. `max_staleness` bounds
//!   for how long.
//! - Redis is told of the uses when it is back, once each, and not of those that it admitted itself with an answer that
//!   was late. Only an answer that was lost leaves it unknown: that use is told of, which errs on the side of the limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Micros;
use crate::quota::{Quota, RateLimitStatus};
use crate::refusal::Refusal;
use crate::state::bucket::Bucket;
use crate::state::redis::Redis;
use crate::state::redis::decide::decide_codec::rate_limit_status;
use crate::state::redis::decide::key_cache::{CachedKey, UsageState};
use crate::state::redis::decide::late_answer::LateAnswer;
use crate::state::redis::settings::OnUnavailable;
use crate::state::redis::slots::lease::Permit;
use crate::state::{Admitted, DecideRequest, Decision, Permit as AnyPermit};

impl Redis {
    /// Decides without Redis; none when that is not to be.
    pub(in crate::state::redis) fn provisional(
        &self,
        ask: &DecideRequest<'_>,
        late_answer: Option<&LateAnswer>,
    ) -> Option<Decision> {
        let OnUnavailable::KnownKeys { max_staleness } = self.shared.settings.on_unavailable else { return None };
        let known = self.shared.known.get(ask.digest)?;
        let seen = known.usage.told().seen;
        if seen.after(max_staleness) < ask.now {
            return None;
        }
        let refusal = known.refuses(ask).or((known.valid_until() <= ask.now).then_some(Refusal::Expired));
        let principal = Some(Arc::clone(&known.principal));
        if let Some(refusal) = refusal {
            return Some(Decision::Denied { refusal, principal, rate_limit: None });
        }
        let gateways = self.shared.gateways.load(Ordering::Relaxed).max(1);
        Some(match self.take_share(&known, gateways, ask.now) {
            Ok((permit, rate_limit, number)) => {
                if late_answer.is_none_or(LateAnswer::admit_locally) {
                    self.shared.record_unreported(&known);
                }
                let permit = AnyPermit::Redis(permit);
                let principal = Arc::clone(&known.principal);
                Decision::Admitted(Admitted { principal, rate_limit, number, permit, provisional: true })
            }
            Err((refusal, rate_limit)) => Decision::Denied { refusal, principal, rate_limit: Some(rate_limit) },
        })
    }

    /// Takes a token and a slot of this gateway's share, or says which is missing.
    fn take_share(
        &self,
        known: &Arc<CachedKey>,
        gateways: u32,
        now: Micros,
    ) -> Result<(Permit, RateLimitStatus, u64), (Refusal, RateLimitStatus)> {
        let quota = share_of(known.quota, gateways);
        let concurrent = known.concurrent / gateways;
        let mut told = known.usage.told();
        let bucket = share(&told, known.quota, gateways).refilled(quota, now);
        let status_with = |bucket: Bucket| rate_limit_status(bucket, quota, concurrent, known.lease.held());
        let taken = bucket.try_take(quota, now).map_err(|_| (Refusal::RateLimited, status_with(bucket)))?;
        let permit = known.lease.take_provisionally(concurrent);
        let permit = permit.ok_or_else(|| (Refusal::TooManyInFlight, status_with(bucket)))?;
        told.share = Some(taken);
        let number = told.uses + told.debt.owed() + 1;
        Ok((permit, status_with(taken), number))
    }
}

/// The quota of one of so many gateways. A token takes as many times longer to flow in, which leaves the level of a
/// bucket the number that it is.
fn share_of(quota: Quota, gateways: u32) -> Quota {
    Quota { per: quota.per.saturating_mul(gateways), burst: quota.burst / gateways, ..quota }
}

/// The bucket of this gateway: the one it has already, or its part of what Redis last told.
fn share(told: &UsageState, quota: Quota, gateways: u32) -> Bucket {
    let part = || {
        let full = Bucket::full(share_of(quota, gateways), told.bucket.at).level;
        let bucket = told.bucket.charged(quota, told.debt.owed());
        Bucket { level: bucket.level.min(full), ..bucket }
    };
    told.share.unwrap_or_else(part)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::redis::decide::key_cache::UnreportedUses;

    const QUOTA: Quota = Quota { requests: 100, per: Duration::from_secs(100), burst: 40 };
    const NOW: Micros = Micros(1_800_000_000_000_000);

    fn tokens(level: u64, gateways: u32, after: Duration) -> u32 {
        let told = UsageState {
            bucket: Bucket { level, at: NOW },
            uses: 0,
            seen: NOW,
            share: None,
            debt: UnreportedUses::default(),
        };
        let quota = share_of(QUOTA, gateways);
        share(&told, QUOTA, gateways).refilled(quota, NOW.after(after)).remaining(quota)
    }

    #[test]
    fn the_shares_add_up_to_no_more_than_the_whole() {
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
