//! Limiter of the connections of one upstream: what its workers share.

use super::share::OpenConnections;
use super::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Notify, Relaxed};

/// Limiter of the connections to the endpoints of one upstream, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimiter {
    /// Connections to all endpoints, those that left the configuration included.
    pub(super) total: Arc<OpenConnections>,
    /// Requests of all workers that wait.
    pub(super) waiting: AtomicUsize,
    /// Connections that were closed so far.
    pub(super) releases: AtomicUsize,
    /// Held while counts are compared and changed: for the time of a decision, never over an await.
    counts: Mutex<()>,
    /// Wakes the upkeep of each worker.
    workers: Mutex<Vec<Arc<Notify>>>,
}

impl ConnectionLimiter {
    /// Requests of all workers that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(super) fn lock_counts(&self) -> MutexGuard<'_, ()> {
        self.counts.lock()
    }

    /// Counts a connection that was closed. The counts must be locked.
    pub(super) fn note_release(&self) {
        self.releases.fetch_add(1, Relaxed);
    }

    /// Wakes the upkeep of every worker, if requests wait.
    pub(super) fn wake_if_needed(&self) {
        if self.waiting() > 0 {
            self.lock_workers().iter().for_each(|worker| worker.notify_one());
        }
    }

    pub(super) fn lock_workers(&self) -> MutexGuard<'_, Vec<Arc<Notify>>> {
        self.workers.lock()
    }
}
