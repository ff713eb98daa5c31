//! The inexact share of a gateway while Redis is unavailable (`share: level`): the limit divided by the number of gateways
//! that were live when Redis last answered; of the bucket as it was then, of the refill, of the burst, and of the
//! concurrency. Where a burst or a concurrency limit is smaller than the number of gateways, the share is 0.
//!
//! All gateways together exceed the limits when they know different levels, because each was told at another time; when
//! slots were held unevenly; and with a gateway that joined a moment ago.

use super::usage::UsageState;
use crate::bucket::Bucket;
use domain::quota::Quota;

/// The quota of one of so many gateways. A token takes as many times longer to flow in, so that a bucket level has the
/// same unit in the share as in the whole.
pub(super) fn quota_share(quota: Quota, gateways: u32) -> Quota {
    // Burst and inflow are those of the whole, also of a strict quota.
    let requests = quota.inflow();
    Quota { requests, per: quota.per.saturating_mul(gateways), burst: quota.burst / gateways, strict: false }
}

/// The bucket of this gateway: the one of the present outage, or at its begin a part of what Redis last reported.
pub(super) fn bucket_share(state: &UsageState, quota: Quota, gateways: u32) -> Bucket {
    let first = || {
        let full = Bucket::full(quota_share(quota, gateways), state.bucket.at).level;
        let bucket = state.bucket.charge(quota, state.unreported.pending());
        Bucket { level: bucket.level.min(full), ..bucket }
    };
    state.level_share.unwrap_or_else(first)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::usage::UnreportedUses;
    use super::*;
    use domain::clock::Micros;

    const QUOTA: Quota = Quota { requests: 100, per: Duration::from_secs(100), burst: 40, strict: false };
    const NOW: Micros = Micros(1_800_000_000_000_000);

    fn tokens(level: i64, gateways: u32, after: Duration) -> u32 {
        let bucket = Bucket { level, at: NOW };
        let unreported = UnreportedUses::default();
        let state = UsageState {
            bucket,
            uses: 0,
            confirmed: NOW,
            last_admitted: NOW,
            share: None,
            level_share: None,
            unreported,
        };
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
