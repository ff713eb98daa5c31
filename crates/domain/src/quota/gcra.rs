//! Rate limit by the generic cell rate algorithm (GCRA), for all limits but the buckets of keys: the only state is a
//! time, so that many threads share it without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Micros;

/// A rate of events, and how many of them may come at once.
#[derive(Clone, Copy, Debug)]
pub struct Gcra {
    /// Microseconds after which one event no longer counts.
    interval: u64,
    /// Microseconds of events that may be counted at a time: the burst.
    burst: u64,
}

/// State of one limit: the time at which its last event no longer counts, GCRA's theoretical arrival time.
#[derive(Debug, Default)]
pub struct ArrivalTime(AtomicU64);

impl Gcra {
    /// So many events per time, of which `burst` may come at once. None at all with 0 events.
    pub fn new(events: u32, per: Duration, burst: u32) -> Self {
        let per = u64::try_from(per.as_micros()).unwrap_or(u64::MAX);
        // At least a microsecond: without an interval, there would be no limit.
        let interval = per.checked_div(u64::from(events)).unwrap_or(u64::MAX).max(1);
        Self { interval, burst: interval.saturating_mul(u64::from(burst)) }
    }

    /// Counts an event.
    ///
    /// # Errors
    /// There were too many already; this one is not counted. Microseconds until the next one is allowed.
    pub fn count(self, arrival: &ArrivalTime, now: Micros) -> Result<(), u64> {
        let counted = arrival.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |arrival| {
            // Time without events earns nothing beyond the burst.
            let next = arrival.max(now.0).saturating_add(self.interval);
            (next - now.0 <= self.burst).then_some(next)
        });
        counted
            .map(drop)
            .map_err(|arrival| arrival.saturating_add(self.interval).saturating_sub(now.0.saturating_add(self.burst)))
    }

    /// Takes back an event that was counted.
    pub fn uncount(self, arrival: &ArrivalTime) {
        let earlier = |arrival: u64| Some(arrival.saturating_sub(self.interval));
        // Never refused: there is an earlier time for each.
        arrival.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier).ok();
    }
}

impl ArrivalTime {
    /// Returns whether no event counts any more.
    pub fn is_over(&mut self, now: Micros) -> bool {
        *self.0.get_mut() <= now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_admits_a_burst_and_then_the_rate() {
        let second = Duration::from_secs(1);
        let limit = Gcra::new(10, second, 10);
        let arrival = ArrivalTime::default();
        let admitted = |limit: Gcra, arrival: &ArrivalTime, from: u64, to: u64| {
            (from..to).filter(|t| limit.count(arrival, Micros(t * 1000)).is_ok()).count()
        };
        assert_eq!(admitted(limit, &arrival, 5000, 5001), 1);
        assert_eq!(admitted(limit, &arrival, 5001, 6001), 9 + 10);
        assert_eq!(admitted(limit, &arrival, 6001, 9001), 30);
        assert_eq!(admitted(Gcra::new(0, second, 0), &ArrivalTime::default(), 0, 5000), 0);
        assert_eq!(admitted(Gcra::new(u32::MAX, second, u32::MAX), &ArrivalTime::default(), 1, 1001), 1000);
    }

    #[test]
    fn refused_event_is_told_when_to_come_back() {
        let limit = Gcra::new(6, Duration::from_secs(60), 3);
        let arrival = ArrivalTime::default();
        let now = Micros(1_000_000_000);
        assert!((0..3).all(|_| limit.count(&arrival, now).is_ok()));
        assert_eq!(limit.count(&arrival, now), Err(10_000_000));
        assert_eq!(limit.count(&arrival, Micros(now.0 + 9_999_999)), Err(1));
        assert_eq!(limit.count(&arrival, Micros(now.0 + 10_000_000)), Ok(()));
    }
}
