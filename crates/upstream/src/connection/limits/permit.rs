//! Permit of one open connection.

use std::cell::Cell;
use std::rc::Rc;

use super::limiter::ConnectionLimiter;
use super::share::WorkerShare;
use super::sync::Arc;

/// Permit of an open connection. Dropped after the socket, it lets the next one connect.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    /// Shared by all workers.
    limiter: Arc<ConnectionLimiter>,
    /// Shares of the connection's worker: in the connections to its endpoint, and in all.
    shares: [Rc<WorkerShare>; 2],
    /// Shared with the pool, which sets it when it gives the connection back before the socket is closed.
    closing: ClosingMark,
}

/// Mark of a connection that is closed for a waiting request, and was given back already. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClosingMark(Rc<Cell<bool>>);

impl ConnectionPermit {
    /// Counts a connection. There must be room, and the counts must be locked.
    pub(super) fn open(limiter: &Arc<ConnectionLimiter>, endpoint: &Rc<WorkerShare>, total: &Rc<WorkerShare>) -> Self {
        let shares = [Rc::clone(endpoint), Rc::clone(total)];
        shares.iter().for_each(|share| share.open());
        Self { limiter: Arc::clone(limiter), shares, closing: ClosingMark::default() }
    }

    /// Permit of a limiter of its own, without bounds.
    #[cfg(test)]
    pub(crate) fn unbounded() -> Self {
        let share = || Rc::new(WorkerShare::new(&Arc::default(), 1));
        Self::open(&Arc::default(), &share(), &share())
    }

    /// The mark by which the connection is told apart when it is closed for a waiting request.
    pub(crate) fn closing_mark(&self) -> &ClosingMark {
        &self.closing
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let counts = self.limiter.lock_counts();
        for share in &self.shares {
            if !self.closing.0.get() {
                share.give_back();
            }
            share.note_closed();
        }
        self.limiter.note_release();
        drop(counts);
        self.limiter.wake_if_needed();
    }
}

impl ClosingMark {
    /// Marks a connection that [`super::IdleUse::Close`] is for.
    pub(crate) fn set(&self) {
        self.0.set(true);
    }
}
