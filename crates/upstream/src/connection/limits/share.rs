//! Share of one worker in the connections under one bound: those to one endpoint, or to all endpoints of an upstream.

use std::cell::Cell;

use super::sync::{Arc, AtomicUsize, Relaxed};

/// Open connections under one bound, of all workers. Changed under the lock of the limiter, read without.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections {
    /// Connections that are open, being made, or being closed. The bound holds for these.
    count: AtomicUsize,
    /// Connections beyond the shares of their workers, without those that are being closed.
    borrowed: AtomicUsize,
}

/// Connections of one worker under one bound. Used by the worker's thread only. Dropped with its last connection, it
/// holds none.
///
/// - Never are more connections borrowed than the bound has beyond the shares of all workers, unless it was lowered. So
///   there is room for each worker's share, except for connections that are still being closed.
#[derive(Debug)]
pub(super) struct WorkerShare {
    /// Shared by the shares of all workers, and by those of connections that are left when the endpoint has gone.
    all: Arc<OpenConnections>,
    /// Number of workers, each with a share as large.
    workers: usize,
    /// The bound, as of the configuration that the worker has.
    max: Cell<usize>,
    /// Connections that the worker can always have.
    guaranteed: Cell<usize>,
    /// Connections of the worker, without those that are being closed.
    held: Cell<usize>,
}

impl OpenConnections {
    /// Connections that are open, being made, or being closed.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

impl WorkerShare {
    /// Share without connections and without a bound, of one of so many workers.
    pub(super) fn new(all: &Arc<OpenConnections>, workers: usize) -> Self {
        let none = || Cell::new(0);
        let share = Self { all: Arc::clone(all), workers, max: none(), guaranteed: none(), held: none() };
        share.set_max(None);
        share
    }

    /// Takes the bound of a changed configuration.
    pub(super) fn set_max(&self, max: Option<usize>) {
        let max = max.unwrap_or(usize::MAX);
        let at_least = usize::from(max >= self.workers);
        self.change(|| {
            self.max.set(max);
            self.guaranteed.set((max / 2 / self.workers).max(at_least));
        });
    }

    /// Returns whether the worker may have one more, as soon as those that are being closed are closed.
    pub(super) fn allows_one_more(&self) -> bool {
        self.held.get() < self.guaranteed.get() || self.all.borrowed.load(Relaxed) < self.rest()
    }

    pub(super) fn has_room(&self) -> bool {
        self.all.count() < self.max.get() && self.allows_one_more()
    }

    /// Returns whether the worker has borrowed, and there are too few connections beyond the shares for all that are
    /// borrowed and so many more.
    pub(super) fn owes(&self, more: usize) -> bool {
        self.held.get() > self.guaranteed.get() && self.all.borrowed.load(Relaxed) + more > self.rest()
    }

    /// Counts a connection. There must be room.
    pub(super) fn open(&self) {
        debug_assert!(self.has_room(), "the caller has looked under the same lock");
        self.change(|| self.held.set(self.held.get() + 1));
        self.all.count.fetch_add(1, Relaxed);
    }

    /// Returns a connection that is about to be closed to the others.
    pub(super) fn give_back(&self) {
        debug_assert!(self.held.get() > 0, "each connection is given back once");
        self.change(|| self.held.set(self.held.get() - 1));
    }

    /// Counts a connection that was given back as closed.
    pub(super) fn note_closed(&self) {
        debug_assert!(self.all.count() > 0, "each connection is counted as closed once");
        self.all.count.fetch_sub(1, Relaxed);
    }

    /// Connections that the bound has beyond the shares.
    fn rest(&self) -> usize {
        debug_assert!(self.guaranteed.get() <= self.max.get() / self.workers, "the shares fit in the bound");
        self.max.get() - self.guaranteed.get() * self.workers
    }

    /// Changes what the worker holds, or its share, and counts what it has borrowed then.
    fn change(&self, change: impl FnOnce()) {
        let borrowed = || self.held.get().saturating_sub(self.guaranteed.get());
        let before = borrowed();
        change();
        // The difference wraps when it is negative, and so does the sum.
        self.all.borrowed.fetch_add(borrowed().wrapping_sub(before), Relaxed);
    }
}
