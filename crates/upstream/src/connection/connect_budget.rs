//! Budget of the time that one request spends on connections: waits for a free one, and attempts to make one.
//!
//! With `timeouts.connect: 2s`, and endpoints that answer no attempt:
//!
//! | the request | has spent | its next attempt has |
//! |---|---|---|
//! | begins | 0 s | 2 s |
//! | has waited 1 s for room | 1 s | 1 s |
//! | has tried one endpoint, and before waited 1 s | 2 s | 1 s |
//! | has tried two endpoints | 4 s | none: it ends |
//!
//! - All waits and attempts together have twice `timeouts.connect`, however many endpoints there are: meanwhile the
//!   request holds a slot of its organization.
//! - No attempt has less than a quarter of `timeouts.connect`: it would say nothing about the endpoint.

use std::cell::Cell;
use std::time::Duration;

/// Time that one request has spent on connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectBudget {
    /// Waits for room for a connection.
    waited: Cell<Duration>,
    /// Attempts to connect.
    connecting: Cell<Duration>,
}

impl ConnectBudget {
    pub(crate) fn waited(&self) -> Duration {
        self.waited.get()
    }

    /// Counts a wait for room for a connection.
    pub(crate) fn spend_on_wait(&self, duration: Duration) {
        self.waited.set(self.waited.get() + duration);
    }

    /// Counts an attempt to connect.
    pub(crate) fn spend_on_attempt(&self, duration: Duration) {
        self.connecting.set(self.connecting.get() + duration);
    }

    /// Time for the next attempt to connect; none when the budget is spent. `timeout` is `timeouts.connect`.
    pub(crate) fn next_attempt(&self, timeout: Duration) -> Option<Duration> {
        let waited = self.waited.get();
        let connecting = self.connecting.get();
        let rest = timeout.saturating_mul(2).saturating_sub(waited + connecting);
        let attempt = timeout.saturating_sub(waited).min(rest);
        let least = timeout / 4;
        // A request whose wait ended late, because the machine was busy, still has its first attempt.
        if connecting.is_zero() {
            return Some(attempt.max(least));
        }
        (attempt >= least).then_some(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn attempts_of_a_request_have_twice_the_time_out_together() {
        let budget = ConnectBudget::default();
        assert_eq!(budget.next_attempt(TIMEOUT), Some(TIMEOUT));
        budget.spend_on_attempt(seconds(2.0));
        assert_eq!(budget.next_attempt(TIMEOUT), Some(TIMEOUT));
        budget.spend_on_attempt(seconds(1.7));
        assert_eq!(budget.next_attempt(TIMEOUT), None, "0.3 s are too few");
    }

    #[test]
    fn wait_counts_for_each_attempt_and_once_for_all() {
        let budget = ConnectBudget::default();
        budget.spend_on_wait(seconds(1.0));
        assert_eq!(budget.next_attempt(TIMEOUT), Some(seconds(1.0)));
        budget.spend_on_attempt(seconds(1.0));
        assert_eq!(budget.next_attempt(TIMEOUT), Some(seconds(1.0)));
        budget.spend_on_attempt(seconds(1.0));
        assert_eq!(budget.next_attempt(TIMEOUT), Some(seconds(1.0)), "a third one has the rest");
        budget.spend_on_attempt(seconds(1.0));
        assert_eq!(budget.next_attempt(TIMEOUT), None);
    }

    #[test]
    fn first_attempt_is_made_after_a_wait_that_ended_late() {
        let budget = ConnectBudget::default();
        budget.spend_on_wait(seconds(5.0));
        assert_eq!(budget.next_attempt(TIMEOUT), Some(seconds(0.5)));
    }
}
