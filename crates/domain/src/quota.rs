//! Quotas of keys, and the rate-limit status that responses show; and the rate limit of everything else ([`Gcra`]).

mod gcra;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::BudgetStatus;
pub use gcra::{ArrivalTime, Gcra};

/// Rate limit of one key: the parameters of its token bucket.
///
/// In any window of length `T` at most `burst + requests * T / per` requests are admitted. With the default of 1000 per
/// hour and a burst of 1000 that is up to 2000 in the worst sliding hour: a full bucket spent at its beginning, and the
/// hour's refill spent as it comes.
///
/// With `strict` it is at most `requests` in any window of `per`, exactly: the bucket's burst and what flows in
/// during one `per` share `requests`. A window `[t, t + per)` spans less than `per` between its first and its last
/// request, so less than `burst + inflow` whole tokens leave the bucket in it; with `inflow = requests + 1 -
/// burst` that is `requests` at most. The price is the rate of a client that sends all the time: `requests + 1 -
/// burst` for each `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Tokens that flow in during one `per`. 1 to 1,000,000,000.
    pub requests: u32,
    /// The time in which `requests` tokens flow in. Whole seconds, 1 second to 366 days.
    pub per: Duration,
    /// Tokens the bucket holds when full. 1 to 1,000,000,000.
    pub burst: u32,
    /// Never more than `requests` in any window of `per`. Then `burst` is at most `requests`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// Reason why a quota is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// `requests` is out of range.
    #[error("requests must be 1 to {MAX_TOKENS}")]
    Requests,
    /// `burst` is out of range.
    #[error("burst must be 1 to {MAX_TOKENS}")]
    Burst,
    /// `per` is out of range.
    #[error("per must be whole seconds, from 1s to 366d")]
    Per,
    /// A strict quota has a burst that leaves nothing to flow in.
    #[error("burst must be less than requests in a strict quota, in which both share the requests of one `per`")]
    Strict,
    /// The time to fill the bucket is too long to compute exactly.
    #[error(
        "{burst} per {seconds}s is too large; give at most {}, or use a shorter period, such as {} per 1s",
        Quota::largest_burst(Duration::from_secs(*.seconds)),
        u64::from(*.burst).div_ceil((*.seconds).max(1))
    )]
    TooSlow {
        /// The burst.
        burst: u32,
        /// The `per`, in seconds.
        seconds: u64,
    },
}

/// The largest burst or rate: far beyond any use, and small enough that every product of the arithmetic fits a `u64`.
pub const MAX_TOKENS: u32 = 1_000_000_000;
/// The longest `per`.
pub const MAX_PER: Duration = Duration::from_secs(366 * 24 * 3600);
/// Bound below which integers are exact in an `f64`, in which Redis's Lua computes.
pub const EXACT: u64 = 1 << 53;

impl Quota {
    /// The default quota: 1000 requests per hour, all of which may come at once.
    pub const DEFAULT: Self = Self { requests: 1000, per: Duration::from_secs(3600), burst: 1000, strict: false };

    /// Checks the ranges, and that a full bucket (`burst * per` in microseconds) stays exact.
    ///
    /// # Errors
    /// [`QuotaError`] names the first value that is out of range.
    pub fn validate(self) -> Result<Self, QuotaError> {
        if self.requests == 0 || self.requests > MAX_TOKENS {
            return Err(QuotaError::Requests);
        }
        if self.burst == 0 || self.burst > MAX_TOKENS {
            return Err(QuotaError::Burst);
        }
        if self.strict && self.burst >= self.requests.max(2) {
            return Err(QuotaError::Strict);
        }
        if self.per.as_secs() == 0 || self.per.subsec_nanos() != 0 || self.per > MAX_PER {
            return Err(QuotaError::Per);
        }
        if self.burst > Self::largest_burst(self.per) {
            return Err(QuotaError::TooSlow { burst: self.burst, seconds: self.per.as_secs() });
        }
        Ok(self)
    }

    /// The largest burst with which a bucket of this `per` stays exact.
    pub fn largest_burst(per: Duration) -> u32 {
        let micros = u64::try_from(per.as_micros()).unwrap_or(u64::MAX).max(1);
        u32::try_from((EXACT - 1) / micros).unwrap_or(MAX_TOKENS).min(MAX_TOKENS)
    }

    /// The burst of a strict quota where none is chosen: a tenth of the requests, so that nine tenths
    /// flow in all the time.
    pub fn strict_burst(requests: u32) -> u32 {
        requests.div_ceil(10)
    }

    /// Tokens that flow in during one `per`.
    pub fn inflow(self) -> u32 {
        // A strict burst is at most `requests`; the lower bound keeps the divisions by it safe for any value.
        if self.strict { self.requests.saturating_add(1).saturating_sub(self.burst).max(1) } else { self.requests }
    }

    /// The effective quota of a key where this one is configured: the key's own, or this one. A strict
    /// configuration makes own quotas strict, too; a burst that leaves nothing to flow in, as without a choice of
    /// one, becomes a tenth.
    #[must_use]
    pub fn in_force(self, own: Option<Self>) -> Self {
        match own {
            None => self,
            Some(own) if !self.strict => own,
            Some(own) if own.burst >= own.requests => {
                Self { burst: Self::strict_burst(own.requests), strict: true, ..own }
            }
            Some(own) => Self { strict: true, ..own },
        }
    }

    /// Returns whether it admits no more than another one in any stretch of time: neither at once nor in the long run.
    pub fn is_within(self, other: Self) -> bool {
        let rate = |quota: Self, per: Self| u128::from(quota.inflow()) * per.per.as_micros();
        self.burst <= other.burst && rate(self, other) <= rate(other, self) && (self.strict || !other.strict)
    }

    /// `per` in microseconds.
    pub fn per_micros(self) -> u64 {
        u64::try_from(self.per.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Rate-limit status of an authenticated caller after a decision: the numbers of the `RateLimit` fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitStatus {
    /// The effective quota of the key.
    pub quota: Quota,
    /// Whole tokens left in the key's bucket.
    pub remaining: u32,
    /// Microseconds until the bucket is full; zero when it is.
    pub full_in_us: u64,
    /// Microseconds until there are as many whole tokens as the request costs, one where there was no request; zero
    /// when there are.
    pub token_in_us: u64,
    /// Requests the organization may have in flight.
    pub concurrent: u32,
    /// Requests the organization has in flight, this one included when it was admitted.
    pub in_flight: u32,
    /// Slots of the key, if it has a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_slots: Option<SlotStatus>,
    /// The budget, if the key's plan has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Box<BudgetStatus>>,
}

/// Slots of a key with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// Requests the key may have in flight.
    pub concurrent: u32,
    /// Requests the key has in flight, this one included when it was admitted.
    pub in_flight: u32,
}

impl SlotStatus {
    /// Slots that are free.
    pub fn free(self) -> u32 {
        self.concurrent.saturating_sub(self.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_quotas_are_refused() {
        let quota =
            |requests, secs, burst| Quota { requests, per: Duration::from_secs(secs), burst, strict: false }.validate();
        assert_eq!(quota(0, 1, 1), Err(QuotaError::Requests));
        assert_eq!(quota(1, 0, 1), Err(QuotaError::Per));
        assert_eq!(quota(1, 1, 0), Err(QuotaError::Burst));
        let year = 366 * 24 * 3600;
        assert_eq!(quota(1, year, MAX_TOKENS), Err(QuotaError::TooSlow { burst: MAX_TOKENS, seconds: year }));
        assert_eq!(
            quota(10_000_000, 3600, 10_000_000).unwrap_err().to_string(),
            "10000000 per 3600s is too large; give at most 2501999, or use a shorter period, such as 2778 per 1s"
        );
        assert_eq!(quota(1000, 3600, 1000), Ok(Quota::DEFAULT));
        let per = Duration::from_millis(1500);
        assert_eq!(Quota { per, ..Quota::DEFAULT }.validate(), Err(QuotaError::Per));
        let strict = |requests, burst| Quota { requests, burst, strict: true, ..Quota::DEFAULT }.validate();
        assert_eq!((strict(10, 10), strict(10, 11)), (Err(QuotaError::Strict), Err(QuotaError::Strict)));
        assert!(strict(10, 9).is_ok() && strict(1, 1).is_ok());
    }

    #[test]
    fn own_quota_is_strict_where_the_configured_one_is() {
        let own = |burst| Some(Quota { requests: 50, burst, ..Quota::DEFAULT });
        let strict = Quota { burst: 100, strict: true, ..Quota::DEFAULT };
        assert_eq!(Quota::DEFAULT.in_force(own(50)), own(50).unwrap());
        assert_eq!((strict.in_force(None), strict.inflow()), (strict, 901));
        for (chosen, burst, inflow) in [(50, 5, 46), (500, 5, 46), (20, 20, 31), (1, 1, 50)] {
            let in_force = strict.in_force(own(chosen));
            assert_eq!((in_force.strict, in_force.burst, in_force.inflow()), (true, burst, inflow));
            assert!(in_force.validate().is_ok());
        }
    }
}
