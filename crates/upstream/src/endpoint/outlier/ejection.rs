//! Ejection state of one endpoint, shared by all workers.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use super::state::{EjectionState, Phase, Reason};
use super::streaks::Streaks;
use crate::endpoint::failure::Failure;
use domain::clock::Micros;

/// Ejection state of one endpoint.
///
/// - Phase, reason and times are written only by the worker that decides. Requests read the phase
///   alone, which is written last.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    /// Failures in a row, as [`Streaks`].
    streaks: AtomicU64,
    phase: AtomicU8,
    reason: AtomicU8,
    since: AtomicU64,
    until: AtomicU64,
    times: AtomicU32,
    /// True while a probe of the endpoint is under way.
    probing: AtomicBool,
    /// True while the active checks fail.
    fails_checks: AtomicBool,
    /// Ejections since the start.
    count: AtomicU64,
}

impl Ejection {
    /// The part of the endpoint in the traffic.
    pub(crate) fn phase(&self) -> Phase {
        Phase::from_byte(self.phase.load(Relaxed))
    }

    /// Share of its requests that an endpoint takes that returns, from a tenth to 1; of the others 1.
    pub(crate) fn slow_start_share(&self, now: Micros) -> f32 {
        let since = self.since.load(Relaxed);
        let until = self.until.load(Relaxed);
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let passed = now.0.saturating_sub(since) as f32 / until.saturating_sub(since).max(1) as f32;
        passed.clamp(0.1, 1.0)
    }

    /// Returns whether requests go to other endpoints.
    pub(crate) fn is_out(&self) -> bool {
        !self.phase().takes_requests() || self.fails_checks()
    }

    /// Returns whether the active checks fail.
    pub(crate) fn fails_checks(&self) -> bool {
        self.fails_checks.load(Relaxed)
    }

    /// Counts a success, which ends all rows of failures.
    pub(crate) fn succeed(&self) {
        // Read first: a write would take the cache line from the other workers at each request.
        if self.streaks.load(Relaxed) != 0 {
            self.streaks.store(0, Relaxed);
        }
    }

    pub(super) fn state(&self) -> EjectionState {
        EjectionState {
            phase: self.phase(),
            reason: Reason::from_byte(self.reason.load(Relaxed)),
            since: Micros(self.since.load(Relaxed)),
            until: Micros(self.until.load(Relaxed)),
            times: self.times.load(Relaxed),
        }
    }

    pub(super) fn store(&self, state: EjectionState) {
        if self.phase().takes_requests() && !state.phase.takes_requests() {
            self.count.fetch_add(1, Relaxed);
        }
        self.reason.store(state.reason as u8, Relaxed);
        self.since.store(state.since.0, Relaxed);
        self.until.store(state.until.0, Relaxed);
        self.times.store(state.times, Relaxed);
        // Failures before an ejection say nothing about the endpoint after it.
        if state.phase != Phase::In {
            self.streaks.store(0, Relaxed);
        }
        self.phase.store(state.phase as u8, Release);
    }

    /// Counts a failure. Returns the rows with it.
    pub(super) fn count_failure(&self, failure: Failure) -> Streaks {
        self.streaks_after(|streaks| streaks.after(failure))
    }

    /// Notes that a connection was made.
    pub(super) fn count_connection(&self) {
        self.streaks_after(Streaks::after_connection);
    }

    pub(super) fn streaks(&self) -> Streaks {
        Streaks(self.streaks.load(Relaxed))
    }

    pub(super) fn set_failing(&self, fails: bool) {
        self.fails_checks.store(fails, Relaxed);
    }

    /// State for reports, and the number of ejections since the start.
    pub(crate) fn report(&self) -> (EjectionState, u64) {
        (self.state(), self.count.load(Relaxed))
    }

    fn streaks_after(&self, change: impl Fn(Streaks) -> Streaks) -> Streaks {
        let before = self.streaks.fetch_update(Relaxed, Relaxed, |streaks| Some(change(Streaks(streaks)).0));
        change(Streaks(before.unwrap_or_else(|streaks| streaks)))
    }

    /// Takes a probe that is due. Give it back with [`Ejection::end_probe`].
    pub(super) fn take_probe(&self, now: Micros) -> bool {
        self.phase() == Phase::Unreachable && now.0 >= self.until.load(Relaxed) && !self.probing.swap(true, Relaxed)
    }

    pub(super) fn end_probe(&self) {
        self.probing.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_grows_from_a_tenth_to_the_whole_within_the_slow_start() {
        let ejection = Ejection::default();
        let until = Micros(10_000_000);
        ejection.store(EjectionState { phase: Phase::Returning, until, ..EjectionState::default() });
        let shares = [0, 1, 5, 10, 20].map(|seconds| ejection.slow_start_share(Micros(seconds * 1_000_000)));
        assert_eq!(shares, [0.1, 0.1, 0.5, 1.0, 1.0]);
    }
}
