//! Health of the decisions: whether they can be made, as decisions themselves meet it, and not as a connection does.
//!
//! A server that is connected may refuse every decision: too few replicas (`min-replicas-to-write`), demoted, no disk
//! or no memory left, no permission for the script. So health has two sources, and both are decisions:
//!
//! - **those of requests**: [`FAILURES`] in a row without an answer in time. They count for [`REMEMBERED`], so that a
//!   gateway that a load balancer has taken out for them is tried again;
//! - **one that admits nothing**, of a key that does not exist, at each server every second (`probe`), for
//!   gateways without requests. The server checks before a script begins whether it may write, so it refuses this one
//!   as it would any other.
//!
//! | decisions of requests | of the probes | the state |
//! |---|---|---|
//! | fail | | fails |
//! | are answered, or there are none | fail at every server | fails |
//! | are answered, or there are none | fail at some servers | fails in part |

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use domain::clock::Micros;
use redis_client::Fault;

/// Decisions in a row without an answer in time from which on the state fails. One or two come with a fork of the
/// server, or a failover.
const FAILURES: u32 = 3;
/// Time for which failed decisions of requests count, when no other comes after them.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Health of the decisions, shared by all threads.
///
/// - An answer costs a read of `is_failing`, which is written only when it changes.
#[derive(Debug, Default)]
pub(crate) struct DecisionHealth {
    /// True while there is something to forget at the next answer.
    is_failing: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Decisions of requests without an answer since the last answer, with the last of them.
    failures: u32,
    last: Option<(Fault, Micros)>,
    /// The faults of all servers, by two rounds of probes in a row; none before.
    servers: Vec<Option<Fault>>,
    /// The faults of the last round.
    round: Vec<Option<Fault>>,
}

impl DecisionHealth {
    /// Notes that Redis has answered a decision of a request in time.
    pub(super) fn note_answer(&self) {
        // Read first: writing would take the cache line from the other workers.
        if self.is_failing.load(Ordering::Relaxed) {
            self.is_failing.store(false, Ordering::Relaxed);
            let mut seen = self.seen.lock();
            (seen.failures, seen.last) = (0, None);
        }
    }

    /// Notes a decision of a request without an answer in time, at `now`, in steady time.
    pub(super) fn note_failure(&self, fault: Fault, now: Micros) {
        let mut seen = self.seen.lock();
        seen.failures = seen.failures.saturating_add(1);
        seen.last = Some((fault, now));
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// Notes a round of probes: the faults of all servers, in any order that is the same in each round.
    pub(super) fn note_round(&self, round: Vec<Option<Fault>>) {
        let mut seen = self.seen.lock();
        let fault_twice = |(at, fault): (usize, &Option<Fault>)| fault.filter(|_| seen.round.get(at) != Some(&None));
        let servers = round.iter().enumerate().map(fault_twice).collect();
        (seen.servers, seen.round) = (servers, round);
    }

    /// The fault for which no decision can be made at `now`, in steady time; none while some can.
    pub(super) fn fault(&self, now: Micros) -> Option<Fault> {
        let seen = self.seen.lock();
        let of_requests = seen.last.filter(|(_, at)| seen.failures >= FAILURES && now < at.after(REMEMBERED));
        let of_servers = || seen.servers.iter().copied().min_by_key(Option::is_some).flatten();
        of_requests.map(|(fault, _)| fault).or_else(of_servers)
    }

    /// The faults that decisions meet at `now`, in steady time, also of some servers only; each once.
    pub(super) fn faults(&self, now: Micros) -> Vec<Fault> {
        let of_all = self.fault(now);
        let mut faults: Vec<Fault> = self.seen.lock().servers.iter().copied().flatten().chain(of_all).collect();
        faults.sort_unstable();
        faults.dedup();
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_000_000);

    #[test]
    fn state_fails_when_decisions_in_a_row_fail_and_works_after_an_answer() {
        let health = DecisionHealth::default();
        for _ in 1..FAILURES {
            health.note_failure(Fault::NoReplicas, NOW);
            assert_eq!(health.fault(NOW), None);
        }
        health.note_failure(Fault::ReadOnly, NOW);
        assert_eq!(health.fault(NOW), Some(Fault::ReadOnly));
        assert_eq!(health.faults(NOW), [Fault::ReadOnly]);
        assert_eq!(health.fault(NOW.after(REMEMBERED)), None, "it is to be tried again");
        health.note_answer();
        health.note_failure(Fault::ReadOnly, NOW);
        assert_eq!(health.fault(NOW), None, "one alone says nothing");
    }

    #[test]
    fn probes_count_when_they_fail_twice_and_in_whole_when_every_server_fails() {
        let health = DecisionHealth::default();
        let (works, away, full) = (None, Some(Fault::Unreachable), Some(Fault::OutOfMemory));
        let after = |round: &[Option<Fault>]| {
            health.note_round(round.to_vec());
            (health.fault(NOW), health.faults(NOW))
        };
        assert_eq!(after(&[works, works]), (None, vec![]));
        assert_eq!(after(&[away, works]), (None, vec![]), "one alone may be a hiccup");
        assert_eq!(after(&[away, works]), (None, vec![Fault::Unreachable]), "some organizations cannot be decided");
        assert_eq!(after(&[away, full]), (None, vec![Fault::Unreachable]));
        assert_eq!(after(&[away, full]), (away, vec![Fault::Unreachable, Fault::OutOfMemory]));
        assert_eq!(after(&[works, full]), (None, vec![Fault::OutOfMemory]));
    }

    #[test]
    fn first_round_counts_at_once() {
        let health = DecisionHealth::default();
        health.note_round(vec![Some(Fault::NoPermission)]);
        assert_eq!(health.fault(NOW), Some(Fault::NoPermission), "nothing says that it ever worked");
    }
}
