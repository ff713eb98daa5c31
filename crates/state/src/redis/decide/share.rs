//! The share of a gateway while Redis is unavailable (`on_unavailable: known_keys`).
//!
//! # Theorem
//!
//! A key has the quota `burst` and `rate`, and Redis decides for it in windows of the bound `burst + rate * T`. Let the
//! outage begin, for each gateway, when it notices that Redis does not answer, and let Redis decide for no gateway from
//! the first of these moments on. Then in every window of length `T` that ends in the outage, all gateways together
//! admit at most `burst + rate * T` requests with the key, whatever was admitted before.
//!
//! *Proof.* Until the outage, Redis admits at most `burst + rate * T'` in the window's part `T'` before it. From then
//! on a share is a token bucket that begins *empty* when its gateway notices, so it admits at most its inflow, which is
//! the gateway's portion of `rate`; the portions add up to at most `rate` (`slots::membership`). A window that begins
//! in the outage finds at most the shares' capacities, which add up to at most `burst`, and the same inflow.
//!
//! Assumptions: the monotonic clocks of the gateways and the clock of Redis run at the same speed, Redis was not set
//! back to an earlier state, and heartbeats of the gateways were answered before the outage.
//!
//! - **Only some gateways are cut off**: Redis goes on deciding for the others within the bound, so the excess is at
//!   most the inflow of the shares of those that are cut off. A gateway that is connected again, and has not reported
//!   its uses yet, counts as cut off.
//! - **Repayment**: every use is reported and charged to the bucket, below zero if need be. It is charged later than it
//!   was made, so the bucket then has no more than if Redis had decided all along.
//! - A share is of a key id: all secrets of a rotated key draw on it.
//! - Time is the gateway's steady clock, and counts from the moment at which it noticed the outage, or at which Redis
//!   last answered about the key, or at which its portion began, whichever was last.

use crate::bucket::Bucket;
use crate::redis::slots::Portion;
use domain::clock::Micros;
use domain::quota::Quota;

/// This gateway's share of a key's bucket in one outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Begin of the outage, in steady time.
    since: Micros,
    portion: Portion,
    /// Measured in the quota of the share.
    pub(super) bucket: Bucket,
}

impl Share {
    /// The share in the outage that began at `since`: `before`, if it is of this outage, else an empty one.
    pub(super) fn in_outage(before: Option<Self>, since: Micros, portion: Portion) -> Self {
        let same = before.filter(|before| before.since == since && before.portion == portion);
        // Outages overlap when the hash slot moves to a server that this gateway had lost before. What flowed in until
        // the last use was the other share's.
        let at = before.map_or(since, |before| since.max(before.bucket.at));
        same.unwrap_or(Self { since, portion, bucket: Bucket { level: 0, at } })
    }

    /// The share after `cost` tokens were taken.
    ///
    /// # Errors
    /// The share as of now, when it has fewer.
    pub(super) fn try_take(self, quota: Quota, cost: u32, now: Micros) -> Result<Self, Self> {
        let bucket = self.bucket.refill(quota, now);
        bucket.try_take(quota, cost, now).map(|bucket| Self { bucket, ..self }).map_err(|_| Self { bucket, ..self })
    }
}

/// The quota of a portion: as many tokens as are its own, which flow in that much slower. `None` when there are fewer
/// tokens than gateways, and the gateways that joined earlier have them all.
pub(super) fn quota_of(portion: Portion, quota: Quota) -> Option<Quota> {
    let portion = portion.among(quota.burst)?;
    // Burst and inflow are those of the whole, also of a strict quota.
    let requests = quota.inflow();
    let burst = portion.of(quota.burst);
    Some(Quota { requests, per: quota.per.saturating_mul(portion.count()), burst, strict: false })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn share_of_an_outage_that_overlaps_the_one_before_gives_no_inflow_twice() {
        let quota = Quota { requests: 1, per: Duration::from_secs(1), burst: 5, strict: false };
        let (portion, at) = (Portion::new(1, 0), |seconds: u64| Micros(seconds * 1_000_000));
        let first = Share::in_outage(None, at(10), portion).try_take(quota, 1, at(12)).unwrap();
        let second = Share::in_outage(Some(first), at(11), portion);
        assert!(second.try_take(quota, 1, at(12)).is_err(), "the second from 11 to 12 was the first share's");
        assert!(second.try_take(quota, 1, at(13)).is_ok());
        let later = Share::in_outage(Some(first), at(20), portion);
        assert!(later.try_take(quota, 1, at(20)).is_err() && later.try_take(quota, 1, at(21)).is_ok());
    }
}
