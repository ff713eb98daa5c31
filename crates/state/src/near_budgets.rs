//! Budgets that are nearly spent: decisions hand them over to the task that announces them, once for each subject and
//! period.
//!
//! - A decision compares the status that it has anyway, and never waits: where the queue is full, the next decision
//!   about the budget hands it over.
//! - [`crate::Change::claim`] puts a ticket, so that one of all gateways announces a budget, also after a restart.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, mpsc};

use domain::budget::{BudgetStatus, BudgetSubject};
use domain::identity::OrgId;

/// Budgets that wait to be announced at a time.
const CAPACITY: usize = 1000;

/// A budget of which 80 % or more are spent or reserved.
#[derive(Clone, Copy, Debug)]
pub struct NearBudget {
    /// Its subject.
    pub subject: BudgetSubject,
    /// The organization of the subject.
    pub org: OrgId,
    /// Its status, as the first decision found it.
    pub status: BudgetStatus,
}

/// Queue of the budgets that one process has found nearly spent.
#[derive(Debug)]
pub(crate) struct NearBudgets {
    sender: mpsc::Sender<NearBudget>,
    receiver: Mutex<mpsc::Receiver<NearBudget>>,
}

impl Default for NearBudgets {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        Self { sender, receiver: Mutex::new(receiver) }
    }
}

impl NearBudgets {
    /// Hands a budget over if it is nearly spent. `announced` is of its subject: the start of the last period in which
    /// this process has done so.
    pub(crate) fn notice(&self, announced: &AtomicU64, subject: BudgetSubject, org: OrgId, status: BudgetStatus) {
        let start = status.start.0;
        if status.is_near()
            && announced.load(Ordering::Relaxed) < start
            && announced.fetch_max(start, Ordering::Relaxed) < start
            && self.sender.try_send(NearBudget { subject, org, status }).is_err()
        {
            announced.store(0, Ordering::Relaxed);
        }
    }

    /// Waits for the next one.
    pub(crate) async fn next(&self) -> NearBudget {
        let next = self.receiver.lock().await.recv().await;
        next.unwrap_or_else(|| unreachable!("the sender lives as long as the receiver"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::clock::Micros;

    fn status(used: u64, start: u64) -> BudgetStatus {
        BudgetStatus { units: 100, used, start: Micros(start), end: Micros(start + 10) }
    }

    #[test]
    fn budget_is_handed_over_once_in_a_period_and_again_where_the_queue_was_full() {
        let (near, announced) = (NearBudgets::default(), AtomicU64::new(0));
        let org = OrgId::generate();
        let notice = |used, start| near.notice(&announced, BudgetSubject::Org(org), org, status(used, start));
        let waiting = || near.sender.max_capacity() - near.sender.capacity();
        notice(79, 10);
        assert_eq!(waiting(), 0);
        for (used, start, expected) in [(80, 10, 1), (81, 10, 1), (79, 20, 1), (100, 20, 2), (100, 10, 2)] {
            notice(used, start);
            assert_eq!(waiting(), expected, "{used} {start}");
        }
        let full = std::iter::from_fn(|| near.sender.try_reserve().ok()).collect::<Vec<_>>();
        notice(90, 30);
        drop(full);
        assert_eq!(waiting(), 2);
        notice(91, 30);
        assert_eq!(waiting(), 3, "the next decision hands it over");
    }
}
