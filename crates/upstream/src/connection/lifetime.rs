//! Lifetime of a connection: its age and the number of its requests are bounded, so that connections move on to where
//! new ones would go, as behind a virtual address.
//!
//! - A connection that has reached a bound ends when its exchanges have: no request fails for it.
//! - Each connection's bounds are up to a tenth lower than configured, at random, so that connections which were made
//!   together do not end together.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Bounds of connections to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Age after which a connection takes no more requests; none: any.
    pub max_age: Option<Duration>,
    /// Requests after which a connection takes no more; none: any number.
    pub max_requests: Option<u32>,
}

/// Rest of a connection's life.
#[derive(Debug)]
pub(crate) struct Lifetime {
    ends: Option<Instant>,
    /// Requests that may still come.
    requests: Cell<u32>,
}

impl Lifetime {
    /// Lifetime of a connection that is made now.
    pub(crate) fn begin(bounds: &Lifetimes) -> Self {
        Self::new(bounds, Instant::now(), RandomState::new().hash_one(()))
    }

    fn new(bounds: &Lifetimes, now: Instant, random: u64) -> Self {
        // 0 to 1023 of 10240: a tenth at most.
        let cut = u32::try_from(random % 1024).expect("a number below 1024");
        let requests = bounds.max_requests.map_or(u32::MAX, |most| {
            let less = u64::from(most) * u64::from(cut) / 10_240;
            most - u32::try_from(less).expect("less than the bound")
        });
        let ends = bounds.max_age.map(|age| now + age - age * cut / 10_240);
        Self { ends, requests: Cell::new(requests) }
    }

    /// Counts a request.
    pub(crate) fn count_request(&self) {
        self.requests.set(self.requests.get().saturating_sub(1));
    }

    /// Returns whether the connection may carry another request. The clock is read only where the age is bounded.
    pub(crate) fn goes_on(&self) -> bool {
        self.requests.get() > 0 && self.ends.is_none_or(|ends| Instant::now() < ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_to_the_bound() {
        let bounds = Lifetimes { max_age: None, max_requests: Some(3) };
        let lifetime = Lifetime::new(&bounds, Instant::now(), 1023);
        for _ in 0..3 {
            assert!(lifetime.goes_on());
            lifetime.count_request();
        }
        assert!(!lifetime.goes_on());
        let endless = Lifetime::begin(&Lifetimes::default());
        endless.count_request();
        assert!(endless.goes_on());
    }

    #[test]
    fn bounds_are_up_to_a_tenth_lower() {
        let now = Instant::now();
        let bounds = Lifetimes { max_age: Some(Duration::from_secs(100)), max_requests: Some(1000) };
        let of = |random| Lifetime::new(&bounds, now, random);
        assert_eq!((of(0).requests.get(), of(1023).requests.get()), (1000, 901));
        assert_eq!(of(0).ends, Some(now + Duration::from_secs(100)));
        assert!((0..2048).all(|random| {
            let age = of(random).ends.unwrap() - now;
            (Duration::from_secs(90)..=Duration::from_secs(100)).contains(&age)
        }));
        let old = Lifetimes { max_age: Some(Duration::ZERO), max_requests: None };
        assert!(!Lifetime::new(&old, now, 0).goes_on());
    }
}
