//! Person limiter: bounds the requests of each signed-in person to the dashboard and its API, and of each program to
//! the management API.
//!
//! - A person has one bucket on a gateway, shared by all of their sessions and organizations.
//! - Revocations have a bucket for each session: a thief with one session cannot keep the person from ending it from
//!   another. Only a revocation that has changed something counts there, so that requests which fail use nothing up.
//! - Requests reach the limiter with a live session only, so there are as many buckets as persons and sessions, three
//!   times, at most. Full buckets are forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use domain::clock::Micros;
use domain::identity::{PersonId, SessionId};
use domain::quota::{ArrivalTime, Gcra, Quota};

/// Buckets beyond which full ones are looked for.
const MIN_SWEEP: usize = 1024;

/// Limiter of requests by person, shared by all workers. A rate limit by GCRA (generic cell rate algorithm).
#[derive(Clone, Debug)]
pub(crate) struct PersonLimiter(Arc<Limiter>);

/// A bucket: whose requests, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bucket {
    /// The requests of a person.
    Requests(PersonId),
    /// Requests of this session that have revoked a key or ended a session.
    Revocations(SessionId),
    /// The pages that ask before a revocation, in this session.
    Confirmations(SessionId),
}

#[derive(Debug)]
struct Limiter {
    limit: Gcra,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    arrivals: HashMap<Bucket, ArrivalTime>,
    /// Number of buckets at which full ones are removed.
    sweep_at: usize,
}

impl PersonLimiter {
    /// Makes a limiter that allows each bucket the requests of this quota.
    pub(crate) fn new(quota: Quota) -> Self {
        let limit = Gcra::new(quota.requests, quota.per, quota.burst);
        let buckets = Buckets { arrivals: HashMap::new(), sweep_at: MIN_SWEEP };
        Self(Arc::new(Limiter { limit, buckets: Mutex::new(buckets) }))
    }

    /// Counts a request.
    ///
    /// # Errors
    /// There were too many requests already; this one is not counted. The whole seconds until the next one is allowed,
    /// at least 1.
    pub(crate) fn count_request(&self, bucket: Bucket, now: Micros) -> Result<(), u64> {
        let mut buckets = self.0.buckets.lock();
        buckets.sweep(now);
        let arrival = buckets.arrivals.entry(bucket).or_default();
        self.0.limit.count(arrival, now).map_err(|wait| wait.div_ceil(1_000_000).max(1))
    }

    /// Takes back a request that was counted.
    pub(crate) fn uncount_request(&self, bucket: Bucket) {
        if let Some(arrival) = self.0.buckets.lock().arrivals.get_mut(&bucket) {
            self.0.limit.uncount(arrival);
        }
    }
}

impl Buckets {
    /// Removes full buckets, when there are twice as many as after the last time.
    fn sweep(&mut self, now: Micros) {
        if self.arrivals.len() >= self.sweep_at {
            self.arrivals.retain(|_, arrival| !arrival.is_over(now));
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

    fn person(name: &str) -> Bucket {
        Bucket::Requests(PersonId::from_subject("https://a.example", name))
    }

    #[test]
    fn requests_are_limited_by_person_and_revocations_by_session() {
        let limiter = limiter();
        let count = |bucket, at| limiter.count_request(bucket, Micros(at));
        let [ada, bob] = [person("ada"), person("bob")];
        assert!((0..3).all(|_| count(ada, NOW.0).is_ok()));
        assert_eq!(count(ada, NOW.0), Err(10));
        assert!(count(bob, NOW.0).is_ok(), "another person is not limited");
        let [stolen, own] = [SessionId::generate(), SessionId::generate()];
        assert!((0..3).all(|_| count(Bucket::Revocations(stolen), NOW.0).is_ok()), "what revokes has its own bucket");
        assert_eq!(count(Bucket::Revocations(stolen), NOW.0), Err(10));
        assert!(count(Bucket::Revocations(own), NOW.0).is_ok(), "another session of the person is not limited");
        assert!(count(Bucket::Confirmations(stolen), NOW.0).is_ok());
        let later = NOW.0 + 10_000_000;
        assert!(count(ada, later).is_ok());
        assert_eq!(count(ada, later + 1), Err(10));
    }

    #[test]
    fn request_that_is_taken_back_uses_nothing_up() {
        let limiter = limiter();
        let bucket = Bucket::Revocations(SessionId::generate());
        limiter.uncount_request(bucket);
        for _ in 0..100 {
            limiter.count_request(bucket, NOW).unwrap();
            limiter.uncount_request(bucket);
        }
        assert!((0..3).all(|_| limiter.count_request(bucket, NOW).is_ok()));
        assert_eq!(limiter.count_request(bucket, NOW), Err(10));
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let limiter = limiter();
        for second in 0..10 * MIN_SWEEP as u64 {
            let at = Micros(NOW.0 + second * 1_000_000);
            limiter.count_request(person(&second.to_string()), at).unwrap();
        }
        let count = limiter.0.buckets.lock().arrivals.len();
        assert!(count <= MIN_SWEEP, "{count}");
    }
}
