//! Completion of a batch: tells those who wait for its lines whether they were written.

use super::sync::{Arc, AtomicU8, Notify, Ordering};

/// Completion of the lines that are written together; shared by all who wait for one of them.
#[derive(Debug, Default)]
pub struct BatchCompletion {
    /// 0 while the lines are pending, 1 when written, 2 when failed.
    /// Written once, by the thread that has taken the batch; read without a lock.
    state: AtomicU8,
    /// Wakes those who wait. Dropped with the last of them; what it was for is in the file then, or was refused.
    done: Notify,
}

/// Result of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchResult {
    /// The lines are as durable as configured.
    Written,
    /// They are not, and those who wait for them are refused.
    Failed,
}

impl BatchCompletion {
    /// The completion of a new batch: that of an earlier one, unless a request still waits with it.
    pub(crate) fn renew(earlier: Option<Arc<Self>>) -> Arc<Self> {
        let free = earlier.and_then(|mut completion| {
            *Arc::get_mut(&mut completion)? = Self::default();
            Some(completion)
        });
        free.unwrap_or_default()
    }

    /// The result; `None` while the lines are pending.
    pub fn result(&self) -> Option<BatchResult> {
        match self.state.load(Ordering::Acquire) {
            1 => Some(BatchResult::Written),
            2 => Some(BatchResult::Failed),
            _ => None,
        }
    }

    /// Sets the result, and wakes those who wait for it.
    pub(crate) fn complete(&self, result: BatchResult) {
        debug_assert!(self.result().is_none(), "a batch is completed once");
        self.state.store(if result == BatchResult::Written { 1 } else { 2 }, Ordering::Release);
        self.done.notify_waiters();
    }

    /// Waits for the result.
    pub(crate) async fn wait(&self) -> BatchResult {
        loop {
            // Registered before the result is read: `notify_waiters` wakes only those who wait already.
            let mut done = std::pin::pin!(self.done.notified());
            done.as_mut().enable();
            if let Some(result) = self.result() {
                return result;
            }
            done.await;
        }
    }
}
