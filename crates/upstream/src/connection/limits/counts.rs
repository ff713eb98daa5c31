//! Number of open connections to one endpoint, of all workers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Open connections to one endpoint. Changed by the limiter alone, under its lock; read without.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections {
    /// Connections that are open, or being made.
    count: AtomicUsize,
    /// Those among them that are being closed so that others can be opened.
    closing: AtomicUsize,
}

impl OpenConnections {
    /// Connections that are open, or being made.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn closing(&self) -> usize {
        self.closing.load(Relaxed)
    }

    pub(super) fn open(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Notes that a connection is about to be closed for another one.
    pub(super) fn begin_close(&self) {
        self.closing.fetch_add(1, Relaxed);
    }

    /// Counts a connection as closed.
    pub(super) fn close(&self, was_closing: bool) {
        self.count.fetch_sub(1, Relaxed);
        self.closing.fetch_sub(usize::from(was_closing), Relaxed);
    }
}
