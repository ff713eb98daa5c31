//! Budget of retries of one upstream: a token bucket that requests fill and retries empty.
//!
//! - It is shared by all workers. N requests allow at most `N * budget + 10` retries, whichever workers serve them.
//! - A worker deposits for [`STEP`] requests at once, so that an ordinary request touches no memory of other workers.
//! - The log has the beginning and the end of its exhaustion ([`Episode`]): a budget that is used as it fills is one
//!   message and not many.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::episode::Episode;
use domain::clock::{self, Micros};

/// Retry in the unit of the bucket: one request deposits its `budget` in per cent.
const RETRY: u64 = 100;

/// Retries at the start: a gateway that has just started, or has few requests, can retry some of them.
const INITIAL: u64 = 10 * RETRY;

/// Retries at most: an outage after a long time without failures does not begin with a storm.
const MOST: u64 = 100 * RETRY;

/// Requests that a worker counts before it deposits for them.
const STEP: u32 = 32;

/// Budget of retries, shared by the workers.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// Name of the upstream, in the log.
    upstream: Arc<str>,
    /// Hundredths of a retry.
    available: AtomicU64,
    /// Retries that were refused.
    refusals: Episode,
}

/// Requests of one worker that it has not deposited for yet.
#[derive(Debug, Default)]
pub(crate) struct Deposits(Cell<u32>);

impl Deposits {
    /// Counts a request, and now and then deposits. `percent` is the configured budget.
    pub(crate) fn count_request(&self, budget: &RetryBudget, percent: u32) {
        self.0.set(self.0.get() + 1);
        if self.0.get() >= STEP {
            self.deposit(budget, percent);
        }
    }

    /// Takes one retry from the budget, with what this worker has not deposited yet. False when there is none.
    pub(crate) fn withdraw(&self, budget: &RetryBudget, percent: u32) -> bool {
        self.deposit(budget, percent);
        budget.withdraw()
    }

    fn deposit(&self, budget: &RetryBudget, percent: u32) {
        budget.deposit(u64::from(self.0.take()) * u64::from(percent));
    }
}

impl RetryBudget {
    /// Budget of an upstream that had no requests yet.
    pub(crate) fn new(upstream: &Arc<str>) -> Self {
        let available = AtomicU64::new(INITIAL);
        Self { upstream: Arc::clone(upstream), available, refusals: Episode::default() }
    }

    /// Logs the end of an exhaustion. To be called now and then.
    pub(crate) fn tick(&self, now: Micros) {
        if let Some(refused) = self.refusals.end_if_quiet(now) {
            tracing::info!(
                upstream = %self.upstream,
                refused,
                "the budget of retries has recovered; requests that fail are sent again"
            );
        }
    }

    fn deposit(&self, hundredths: u64) {
        let filled = |available: u64| Some((available + hundredths).min(MOST));
        self.available.fetch_update(Relaxed, Relaxed, filled).expect("there is always a next value");
    }

    fn withdraw(&self) -> bool {
        let is_granted =
            self.available.fetch_update(Relaxed, Relaxed, |available| available.checked_sub(RETRY)).is_ok();
        if !is_granted && self.refusals.note(clock::steady()) {
            tracing::warn!(
                upstream = %self.upstream,
                "the budget of retries is exhausted, because too many requests fail; they are answered with their \
                 failure"
            );
        }
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    fn budget() -> RetryBudget {
        RetryBudget::new(&"default".into())
    }

    /// Bucket that needs no workers: all deposits at once.
    struct Model {
        available: u64,
        pending: [u64; 3],
    }

    proptest! {
        #[test]
        fn budget_grants_exactly_what_requests_have_deposited(
            percent in 1_u32..=100,
            steps in proptest::collection::vec((0_usize..3, prop::bool::weighted(0.3)), 0..2000),
        ) {
            let budget = budget();
            let workers = [(); 3].map(|()| Deposits::default());
            let mut model = Model { available: INITIAL, pending: [0; 3] };
            let mut requests = 0_u64;
            let mut retries = 0_u64;
            for (worker, is_retry) in steps {
                let pending = &mut model.pending[worker];
                if is_retry {
                    model.available = (model.available + *pending).min(MOST);
                    *pending = 0;
                    let expected = model.available >= RETRY;
                    prop_assert_eq!(workers[worker].withdraw(&budget, percent), expected);
                    model.available -= if expected { RETRY } else { 0 };
                    retries += u64::from(expected);
                } else {
                    workers[worker].count_request(&budget, percent);
                    requests += 1;
                    *pending += u64::from(percent);
                    if *pending == u64::from(STEP * percent) {
                        model.available = (model.available + *pending).min(MOST);
                        *pending = 0;
                    }
                }
                prop_assert!(retries * RETRY <= requests * u64::from(percent) + INITIAL);
            }
        }
    }

    #[test]
    fn budget_holds_a_hundred_retries_at_most_and_ten_at_first() {
        let budget = budget();
        let worker = Deposits::default();
        let granted = || (0..1000).filter(|_| worker.withdraw(&budget, 20)).count();
        assert_eq!(granted(), 10);
        (0..100_000).for_each(|_| worker.count_request(&budget, 20));
        assert_eq!(granted(), 100);
        (0..7).for_each(|_| worker.count_request(&budget, 20));
        assert_eq!(granted(), 1, "seven requests are 1.4 retries");
        (0..3).for_each(|_| worker.count_request(&budget, 20));
        assert_eq!(granted(), 1, "the rest stays");
    }

    #[test]
    fn exhaustion_is_one_episode_while_the_budget_is_used_as_it_fills() {
        let budget = budget();
        let worker = Deposits::default();
        let later = || clock::steady().after(std::time::Duration::from_secs(1));
        assert!((0..10).all(|_| worker.withdraw(&budget, 100)));
        assert_eq!(budget.refusals.end_if_quiet(later()), None, "none was refused");
        for _ in 0..20 {
            (0..INITIAL / RETRY).for_each(|_| worker.count_request(&budget, 100));
            assert!((0..10).all(|_| worker.withdraw(&budget, 100)));
            assert!(!worker.withdraw(&budget, 100));
        }
        assert_eq!(budget.refusals.end_if_quiet(later()), Some(20));
    }

    #[test]
    fn workers_together_stay_within_the_budget() {
        let budget = budget();
        let retries = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let worker = Deposits::default();
                    for _ in 0..10_000 {
                        worker.count_request(&budget, 20);
                        retries.fetch_add(u64::from(worker.withdraw(&budget, 20)), Relaxed);
                    }
                });
            }
        });
        assert_eq!(retries.into_inner(), 40_000 / 5 + 10, "every deposit is used, and none twice");
    }
}
