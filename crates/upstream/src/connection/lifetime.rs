//! Lifetime of a connection: its age and the number of its requests are bounded, so that connections move on to where
//! new ones would go, as behind a virtual address.
//!
//! - A connection that has reached a bound ends when its exchanges have: no request fails for it.
//! - An idle connection is used for as long as the upstream keeps it: by its word (`Keep-Alive: timeout=…`), by what
//!   it does ([`LearnedIdle`]), and by the configuration, whichever is the least. A request that crosses the closing on
//!   its way is lost.
//! - Each connection's bounds are up to a tenth lower than configured, at random, so that connections which were made
//!   together do not end together.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Time by which an upstream is forestalled that closes idle connections.
const HEAD_START: Duration = Duration::from_secs(1);
/// Time for which a learnt closing counts: the upstream may have been restarted with another setting.
const LEARNT_FOR: Duration = Duration::from_secs(600);

/// Bounds of connections to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Time without an exchange after which a connection takes no more requests. Many servers close theirs after 60 s
    /// or more.
    pub max_idle: Duration,
    /// Age after which a connection takes no more requests; none: any.
    pub max_age: Option<Duration>,
    /// Requests after which a connection takes no more; none: any number.
    pub max_requests: Option<u32>,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { max_idle: Duration::from_secs(50), max_age: None, max_requests: None }
    }
}

/// Idle time after which an upstream has closed connections, as far as it did.
#[derive(Debug, Default)]
pub(crate) struct LearnedIdle(Option<(Duration, Instant)>);

impl LearnedIdle {
    /// Notes that the upstream has closed a connection that was idle for so long. What is closed younger says nothing:
    /// the upstream may have been restarted.
    pub(crate) fn note_closing(&mut self, idle: Duration, now: Instant) {
        if idle >= 2 * HEAD_START {
            let most = idle - HEAD_START;
            let known = self.at(now).unwrap_or(most);
            self.0 = Some((most.min(known), now));
        }
    }

    /// The most that a connection may be idle; none where nothing is known.
    pub(crate) fn at(&self, now: Instant) -> Option<Duration> {
        self.0.filter(|(_, noted)| now.saturating_duration_since(*noted) < LEARNT_FOR).map(|(most, _)| most)
    }
}

/// Rest of a connection's life.
#[derive(Debug)]
pub(crate) struct Lifetime {
    max_idle: Cell<Duration>,
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
        Self { max_idle: Cell::new(bounds.max_idle), ends, requests: Cell::new(requests) }
    }

    /// The most that the connection may be idle.
    pub(crate) fn max_idle(&self) -> Duration {
        self.max_idle.get()
    }

    /// Notes a `Keep-Alive` of the upstream, such as `timeout=5, max=100` (RFC 2068, section 19.7.1).
    pub(crate) fn note_keep_alive(&self, value: &[u8]) {
        let mut parameters = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let timeout = parameters.find_map(|parameter| {
            let (name, seconds) = parameter.split_at_checked("timeout=".len())?;
            name.eq_ignore_ascii_case(b"timeout=").then(|| std::str::from_utf8(seconds).ok()?.parse::<u32>().ok())?
        });
        if let Some(seconds) = timeout {
            let told = Duration::from_secs(seconds.into()).saturating_sub(HEAD_START);
            self.max_idle.set(told.min(self.max_idle.get()));
        }
    }

    /// Counts a request.
    pub(crate) fn count_request(&self) {
        self.requests.set(self.requests.get().saturating_sub(1));
    }

    /// Returns whether the connection may carry another request. The clock is read only where the age is bounded.
    pub(crate) fn goes_on(&self) -> bool {
        self.requests.get() > 0 && !self.max_idle.get().is_zero() && self.ends.is_none_or(|ends| Instant::now() < ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_to_the_bound() {
        let bounds = Lifetimes { max_requests: Some(3), ..Lifetimes::default() };
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
    fn upstreams_word_shortens_the_idle_time() {
        for (value, seconds) in [
            ("timeout=5", 4),
            ("max=100, Timeout=5", 4),
            ("timeout=1", 0),
            ("timeout=0", 0),
            ("timeout=120", 50),
            ("timeout=\"5\"", 50),
            ("timeout=-1", 50),
            ("max=5", 50),
            ("", 50),
        ] {
            let lifetime = Lifetime::begin(&Lifetimes::default());
            lifetime.note_keep_alive(value.as_bytes());
            assert_eq!(lifetime.max_idle(), Duration::from_secs(seconds), "{value}");
        }
    }

    #[test]
    fn closing_of_an_idle_connection_is_learnt_for_a_while() {
        let now = Instant::now();
        let mut learned = LearnedIdle::default();
        learned.note_closing(Duration::from_millis(1900), now);
        assert_eq!(learned.at(now), None, "a restart closes connections of any age");
        for (idle, most) in [(8, 7), (5, 4), (9, 4)] {
            learned.note_closing(Duration::from_secs(idle), now);
            assert_eq!(learned.at(now), Some(Duration::from_secs(most)));
        }
        assert_eq!(learned.at(now + LEARNT_FOR), None);
        learned.note_closing(Duration::from_secs(9), now + LEARNT_FOR);
        assert_eq!(learned.at(now + LEARNT_FOR), Some(Duration::from_secs(8)));
    }

    #[test]
    fn bounds_are_up_to_a_tenth_lower() {
        let now = Instant::now();
        let bounds =
            Lifetimes { max_age: Some(Duration::from_secs(100)), max_requests: Some(1000), ..Lifetimes::default() };
        let of = |random| Lifetime::new(&bounds, now, random);
        assert_eq!((of(0).requests.get(), of(1023).requests.get()), (1000, 901));
        assert_eq!(of(0).ends, Some(now + Duration::from_secs(100)));
        assert!((0..2048).all(|random| {
            let age = of(random).ends.unwrap() - now;
            (Duration::from_secs(90)..=Duration::from_secs(100)).contains(&age)
        }));
        let old = Lifetimes { max_age: Some(Duration::ZERO), ..Lifetimes::default() };
        assert!(!Lifetime::new(&old, now, 0).goes_on());
    }
}
