//! What was promised: how many requests per how long, how many at once, and what a caller is told of where it stands.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A token bucket's promise to one key.
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

/// Why a quota cannot be kept.
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

/// The largest burst or rate: far beyond any use, and small enough that every product below stays an integer.
pub const MAX_TOKENS: u32 = 1_000_000_000;
/// The longest `per`.
pub const MAX_PER: Duration = Duration::from_secs(366 * 24 * 3600);
/// Integers stay exact in an `f64` up to here, and Redis's Lua computes in `f64`.
pub const EXACT: u64 = 1 << 53;

impl Quota {
    /// The quota the service promised: 1000 requests per hour, all of which may come at once.
    pub const DEFAULT: Self = Self { requests: 1000, per: Duration::from_secs(3600), burst: 1000 };

    /// Checks the ranges, and that a full bucket (`burst * per` in microseconds) stays exact.
    ///
    /// # Errors
    /// [`QuotaError`] names the first value that is out of range.
    pub fn checked(self) -> Result<Self, QuotaError> {
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

/// Where an authenticated caller stands after a decision; the numbers of the `RateLimit` fields.
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
    fn refuses_what_cannot_be_kept() {
        let quota = |requests, secs, burst| Quota { requests, per: Duration::from_secs(secs), burst }.checked();
        assert_eq!(quota(0, 1, 1), Err(QuotaError::Requests));
        assert_eq!(quota(1, 0, 1), Err(QuotaError::Per));
        assert_eq!(quota(1, 1, 0), Err(QuotaError::Burst));
        assert_eq!(quota(1, 366 * 24 * 3600, MAX_TOKENS), Err(QuotaError::TooSlow));
        assert_eq!(quota(1000, 3600, 1000), Ok(Quota::DEFAULT));
        let per = Duration::from_millis(1500);
        assert_eq!(Quota { per, ..Quota::DEFAULT }.checked(), Err(QuotaError::Per));
    }
}
