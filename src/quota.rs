//! Quotas of keys, and the rate-limit status that responses show.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Rate limit of one key: the parameters of its token bucket.
///
/// In any window of length `T` at most `burst + requests * T / per` requests are admitted. With the default of 1000 per
/// hour and a burst of 1000 that is up to 2000 in the worst sliding hour: a full bucket spent at its beginning, and the
/// hour's refill spent as it comes. For a strict sliding hour choose `burst + requests` equal to what the hour may hold,
/// for instance `requests: 900, burst: 100` for 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Tokens that flow in during one `per`. 1 to 1,000,000,000.
    pub requests: u32,
    /// The time in which `requests` tokens flow in. Whole seconds, 1 second to 366 days.
    pub per: Duration,
    /// Tokens the bucket holds when full. 1 to 1,000,000,000.
    pub burst: u32,
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
    /// The time to fill the bucket is too long to compute exactly.
    #[error("burst times per is too large: the bucket could not be computed exactly")]
    TooSlow,
}

/// The largest burst or rate: far beyond any use, and small enough that every product of the arithmetic fits a `u64`.
pub const MAX_TOKENS: u32 = 1_000_000_000;
/// The longest `per`.
pub const MAX_PER: Duration = Duration::from_secs(366 * 24 * 3600);
/// Bound below which integers are exact in an `f64`, in which Redis's Lua computes.
pub const EXACT: u64 = 1 << 53;

impl Quota {
    /// The default quota: 1000 requests per hour, all of which may come at once.
    pub const DEFAULT: Self = Self { requests: 1000, per: Duration::from_secs(3600), burst: 1000 };

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
        if self.per.as_secs() == 0 || self.per.subsec_nanos() != 0 || self.per > MAX_PER {
            return Err(QuotaError::Per);
        }
        match u64::from(self.burst).checked_mul(self.per_micros()) {
            Some(full) if full < EXACT => Ok(self),
            _ => Err(QuotaError::TooSlow),
        }
    }

    /// `per` in microseconds.
    pub fn per_micros(self) -> u64 {
        u64::try_from(self.per.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Rate-limit status of an authenticated caller after a decision: the numbers of the `RateLimit` fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitStatus {
    /// The key's quota in force.
    pub quota: Quota,
    /// Whole tokens left in the key's bucket.
    pub remaining: u32,
    /// Microseconds until the bucket is full; zero when it is.
    pub full_in_us: u64,
    /// Microseconds until there is a whole token; zero when there is one.
    pub token_in_us: u64,
    /// Requests the organization may have in flight.
    pub concurrent: u32,
    /// Requests the organization has in flight, this one included when it was admitted.
    pub in_flight: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_quotas_are_refused() {
        let quota = |requests, secs, burst| Quota { requests, per: Duration::from_secs(secs), burst }.validate();
        assert_eq!(quota(0, 1, 1), Err(QuotaError::Requests));
        assert_eq!(quota(1, 0, 1), Err(QuotaError::Per));
        assert_eq!(quota(1, 1, 0), Err(QuotaError::Burst));
        assert_eq!(quota(1, 366 * 24 * 3600, MAX_TOKENS), Err(QuotaError::TooSlow));
        assert_eq!(quota(1000, 3600, 1000), Ok(Quota::DEFAULT));
        let per = Duration::from_millis(1500);
        assert_eq!(Quota { per, ..Quota::DEFAULT }.validate(), Err(QuotaError::Per));
    }
}
