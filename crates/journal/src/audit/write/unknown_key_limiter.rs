//! Rate limit for records of attempts with unknown keys, so that an attacker cannot fill the disk.

use domain::clock::Micros;

/// Tokens that one attempt costs. A rate of `n` per second then adds `n` tokens per microsecond, and integers suffice.
const ATTEMPT_COST: u64 = 1_000_000;

/// Token bucket with the capacity of one second.
#[derive(Debug)]
pub(crate) struct UnknownKeyLimiter {
    per_second: u64,
    level: u64,
    /// The latest time that was given.
    at: Micros,
}

impl UnknownKeyLimiter {
    /// A full bucket.
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        Self { per_second, level: per_second * ATTEMPT_COST, at: Micros(0) }
    }

    /// Takes the tokens of one attempt. Returns false, and takes none, when there are too few.
    pub(crate) fn try_acquire(&mut self, now: Micros) -> bool {
        let inflow = now.since(self.at).min(ATTEMPT_COST) * self.per_second;
        self.level = (self.level + inflow).min(self.per_second * ATTEMPT_COST);
        self.at = self.at.max(now);
        let acquired = self.level >= ATTEMPT_COST;
        self.level -= if acquired { ATTEMPT_COST } else { 0 };
        acquired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiter_admits_a_burst_and_then_the_rate() {
        let mut limiter = UnknownKeyLimiter::new(10);
        let admitted = |limiter: &mut UnknownKeyLimiter, from: u64, to: u64| {
            (from..to).filter(|t| limiter.try_acquire(Micros(t * 1000))).count()
        };
        assert_eq!(admitted(&mut limiter, 5000, 5001), 1);
        assert_eq!(admitted(&mut limiter, 5001, 6001), 9 + 10);
        assert_eq!(admitted(&mut limiter, 6001, 9001), 30);
        assert_eq!(admitted(&mut UnknownKeyLimiter::new(0), 0, 5000), 0);
    }
}
