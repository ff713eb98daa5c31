//! How many attempts with unknown keys are recorded: a bucket of one second, so that an attacker cannot fill the disk.

use crate::clock::Micros;

/// What one attempt costs, so that integers suffice: a rate per second flows in per microsecond.
const ATTEMPT: u64 = 1_000_000;

/// A token bucket that holds one second's worth.
#[derive(Debug)]
pub(crate) struct Limiter {
    per_second: u64,
    level: u64,
    at: Micros,
}

impl Limiter {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        Self { per_second, level: per_second * ATTEMPT, at: Micros(0) }
    }

    /// Whether one more may be recorded now.
    pub(crate) fn admit(&mut self, now: Micros) -> bool {
        let inflow = now.since(self.at).min(ATTEMPT) * self.per_second;
        self.level = (self.level + inflow).min(self.per_second * ATTEMPT);
        self.at = self.at.max(now);
        let admitted = self.level >= ATTEMPT;
        self.level -= if admitted { ATTEMPT } else { 0 };
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_a_burst_and_then_the_rate() {
        let mut limiter = Limiter::new(10);
        let admitted =
            |limiter: &mut Limiter, from: u64, to: u64| (from..to).filter(|t| limiter.admit(Micros(t * 1000))).count();
        assert_eq!(admitted(&mut limiter, 5000, 5001), 1);
        assert_eq!(admitted(&mut limiter, 5001, 6001), 9 + 10);
        assert_eq!(admitted(&mut limiter, 6001, 9001), 30);
        assert_eq!(admitted(&mut Limiter::new(0), 0, 5000), 0);
    }
}
