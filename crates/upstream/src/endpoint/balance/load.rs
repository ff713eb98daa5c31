//! Load of one endpoint, as its recent responses show it: latency and share of failures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use domain::clock::Micros;

/// Latency that all endpoints have in common. Below it differences are chance: a scheduler's slice, a lost packet.
const LEAST_LATENCY: f32 = 5_000.0;
/// Time in which the estimate of the latency falls to e^-1.
const LATENCY_DECAY: Duration = Duration::from_secs(2);
/// Time in which the share of failures falls to e^-1, without requests.
const FAILURE_DECAY: Duration = Duration::from_secs(10);
/// Weight of one outcome in the share of failures.
const OUTCOME_WEIGHT: f32 = 1.0 / 16.0;
/// Share of failures that is none.
const NO_FAILURES: f32 = 0.001;

/// Estimates of one endpoint, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Microseconds, as an [`Estimate`].
    latency: AtomicU64,
    /// Share from 0 to 1, as an [`Estimate`].
    failures: AtomicU64,
}

/// Value that falls with time, in one word that workers can exchange at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Estimate {
    value: f32,
    /// Time of the value in milliseconds, modulo 2^32.
    time: u32,
}

impl Load {
    /// Notes the latency of a response.
    pub(crate) fn observe_latency(&self, micros: u64, now: Micros) {
        update(&self.latency, |latency| latency.with_peak(micros_f32(micros), milliseconds(now)));
    }

    /// Notes the latency of a failure, which counts only when it is high.
    pub(crate) fn observe_failed_latency(&self, micros: u64, now: Micros) {
        if micros_f32(micros) > self.latency(now) {
            self.observe_latency(micros, now);
        }
    }

    /// Notes a success.
    pub(crate) fn succeed(&self, now: Micros) {
        // Read first: a write would take the cache line from the other workers at each request.
        if self.failures.load(Relaxed) != 0 {
            update(&self.failures, |failures| failures.with_outcome(0.0, milliseconds(now)));
        }
    }

    /// Notes a failure.
    pub(crate) fn fail(&self, now: Micros) {
        update(&self.failures, |failures| failures.with_outcome(1.0, milliseconds(now)));
    }

    /// Cost of one more request.
    #[allow(clippy::cast_precision_loss, reason = "a number of requests in flight")]
    pub(crate) fn cost(&self, in_flight: usize, share: f32, now: Micros) -> f32 {
        let penalty = 1.0 + (10.0 * self.failures(now)).powi(4);
        (self.latency(now) + LEAST_LATENCY) * (1.0 + in_flight as f32 / share) * penalty
    }

    /// Estimate of the latency in microseconds.
    fn latency(&self, now: Micros) -> f32 {
        Estimate::unpack(self.latency.load(Relaxed)).at(milliseconds(now), LATENCY_DECAY)
    }

    /// Share of failures.
    pub(crate) fn failures(&self, now: Micros) -> f32 {
        match self.failures.load(Relaxed) {
            0 => 0.0,
            packed => Estimate::unpack(packed).at(milliseconds(now), FAILURE_DECAY),
        }
    }
}

impl Estimate {
    fn at(self, now: u32, decay: Duration) -> f32 {
        self.value * remaining(now.wrapping_sub(self.time), decay)
    }

    /// The moving average, or the value itself when it is higher.
    fn with_peak(self, value: f32, now: u32) -> Self {
        let average = value + (self.value - value) * remaining(now.wrapping_sub(self.time), LATENCY_DECAY);
        Self { value: average.max(value), time: now }
    }

    fn with_outcome(self, failed: f32, now: u32) -> Self {
        let before = self.at(now, FAILURE_DECAY);
        let value = before + (failed - before) * OUTCOME_WEIGHT;
        if value < NO_FAILURES { Self::default() } else { Self { value, time: now } }
    }

    fn pack(self) -> u64 {
        u64::from(self.value.to_bits()) << 32 | u64::from(self.time)
    }

    #[allow(clippy::cast_possible_truncation, reason = "two halves")]
    fn unpack(packed: u64) -> Self {
        Self { value: f32::from_bits((packed >> 32) as u32), time: packed as u32 }
    }
}

/// Part of a value that remains after this time.
#[allow(clippy::cast_precision_loss, reason = "of an exponent")]
fn remaining(milliseconds: u32, decay: Duration) -> f32 {
    (-(milliseconds as f32) / (decay.as_millis() as f32)).exp()
}

fn update(word: &AtomicU64, change: impl Fn(Estimate) -> Estimate) {
    let mut before = word.load(Relaxed);
    while let Err(now) = word.compare_exchange_weak(before, change(Estimate::unpack(before)).pack(), Relaxed, Relaxed) {
        before = now;
    }
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn micros_f32(micros: u64) -> f32 {
    micros as f32
}

#[allow(clippy::cast_possible_truncation, reason = "modulo 2^32, as `Estimate` has it")]
fn milliseconds(time: Micros) -> u32 {
    (time.0 / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Micros {
        Micros(milliseconds * 1000)
    }

    #[test]
    fn peak_replaces_the_estimate_and_falls_with_time() {
        let load = Load::default();
        load.observe_latency(20_000, at(0));
        load.observe_latency(100_000, at(1));
        assert!((load.latency(at(1)) - 100_000.0).abs() < 1.0);
        load.observe_latency(20_000, at(2001));
        let falling = load.latency(at(2001));
        assert!((45_000.0..55_000.0).contains(&falling), "{falling}");
        assert!(load.latency(at(20_000)) < 100.0);
    }

    #[test]
    fn fast_failures_cost_more_and_more() {
        let load = Load::default();
        load.observe_latency(20_000, at(0));
        let whole = load.cost(0, 1.0, at(0));
        let costs: Vec<f32> = (0..5)
            .map(|_| {
                load.observe_failed_latency(10, at(0));
                load.fail(at(0));
                load.cost(0, 1.0, at(0)) / whole
            })
            .collect();
        assert!(costs[0] < 1.5, "one failure alone weighs little: {costs:?}");
        assert!(costs[1] > 2.0 && costs[4] > 20.0 && costs.is_sorted(), "{costs:?}");
        assert!(load.cost(0, 1.0, at(60_000)) < whole);
        (0..100).for_each(|_| load.succeed(at(0)));
        assert_eq!(load.failures.load(Relaxed), 0, "successes end it");
    }

    #[test]
    fn requests_in_flight_cost_by_share() {
        let load = Load::default();
        assert_eq!(load.cost(3, 1.0, at(0)), 4.0 * LEAST_LATENCY);
        assert_eq!(load.cost(3, 0.5, at(0)), 7.0 * LEAST_LATENCY);
    }
}
