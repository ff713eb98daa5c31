//! Person limiter: bounds the requests of each signed-in person to the dashboard and its API.
//!
//! - A person has one bucket on a gateway, shared by all of their sessions and organizations, and a second one for what
//!   revokes: a stolen session that uses up the first one does not keep the person from ending that session.
//! - Requests reach the limiter with a live session only, so there are as many buckets as persons at most. Full buckets
//!   are forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Micros;
use crate::quota::Quota;

/// Buckets beyond which full ones are looked for.
const MIN_SWEEP: usize = 1024;

/// Limiter of requests by person, shared by all workers. A rate limit by GCRA (generic cell rate algorithm).
#[derive(Clone, Debug)]
pub(super) struct PersonLimiter(Arc<Limiter>);

#[derive(Debug)]
struct Limiter {
    /// Microseconds after which one request no longer counts.
    interval: u64,
    /// Microseconds of requests that may be counted at a time: the burst.
    burst: u64,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    /// For each person and purpose the time at which the last request no longer counts: GCRA's theoretical arrival time.
    arrivals: HashMap<(String, bool), u64>,
    /// Number of buckets at which full ones are removed.
    sweep_at: usize,
}

impl PersonLimiter {
    /// Makes a limiter that allows each person the requests of this quota.
    pub(super) fn new(quota: Quota) -> Self {
        let per = u64::try_from(quota.per.as_micros()).unwrap_or(u64::MAX);
        let interval = (per / u64::from(quota.requests).max(1)).max(1);
        let buckets = Buckets { arrivals: HashMap::new(), sweep_at: MIN_SWEEP };
        let burst = interval.saturating_mul(u64::from(quota.burst));
        Self(Arc::new(Limiter { interval, burst, buckets: Mutex::new(buckets) }))
    }

    /// Counts a request of a person.
    ///
    /// # Errors
    /// There were too many requests already; this one is not counted. The whole seconds until the next one is allowed, at
    /// least 1.
    pub(super) fn count_request(&self, person: &str, is_revocation: bool, now: Micros) -> Result<(), u64> {
        let limiter = &*self.0;
        // A panic under the lock cannot leave a bucket half changed.
        let mut buckets = limiter.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.sweep(now);
        let arrival = buckets.arrivals.entry((person.to_owned(), is_revocation)).or_default();
        // Time that the bucket was full earns nothing beyond the burst.
        let next = (*arrival).max(now.0).saturating_add(limiter.interval);
        if next - now.0 > limiter.burst {
            let wait = next.saturating_sub(now.0.saturating_add(limiter.burst));
            return Err(wait.div_ceil(1_000_000).max(1));
        }
        *arrival = next;
        Ok(())
    }
}

impl Buckets {
    /// Removes full buckets, when there are twice as many as after the last time.
    fn sweep(&mut self, now: Micros) {
        if self.arrivals.len() >= self.sweep_at {
            self.arrivals.retain(|_, arrival| *arrival > now.0);
            self.sweep_at = (2 * self.arrivals.len()).max(MIN_SWEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Micros = Micros(1_000_000_000);

    fn limiter() -> PersonLimiter {
        PersonLimiter::new(Quota { requests: 6, per: Duration::from_secs(60), burst: 3, strict: false })
    }

    #[test]
    fn requests_are_limited_by_person_and_purpose() {
        let limiter = limiter();
        let count = |person, is_revocation, at| limiter.count_request(person, is_revocation, Micros(at));
        assert!((0..3).all(|_| count("ada", false, NOW.0).is_ok()));
        assert_eq!(count("ada", false, NOW.0), Err(10));
        assert!(count("bob", false, NOW.0).is_ok(), "another person is not limited");
        assert!((0..3).all(|_| count("ada", true, NOW.0).is_ok()), "what revokes has a bucket of its own");
        assert_eq!(count("ada", true, NOW.0), Err(10));
        let later = NOW.0 + 10_000_000;
        assert!(count("ada", false, later).is_ok());
        assert_eq!(count("ada", false, later + 1), Err(10));
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let limiter = limiter();
        for second in 0..10 * MIN_SWEEP as u64 {
            let at = Micros(NOW.0 + second * 1_000_000);
            limiter.count_request(&second.to_string(), false, at).unwrap();
        }
        let count = limiter.0.buckets.lock().unwrap().arrivals.len();
        assert!(count <= MIN_SWEEP, "{count}");
    }
}
