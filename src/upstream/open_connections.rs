//! Number of open connections to one endpoint, of all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Open connections. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenConnections(Arc<AtomicUsize>);

/// Open connection, counted until dropped.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnections {
    /// Counts a connection.
    pub(super) fn open(&self) -> OpenConnection {
        self.0.fetch_add(1, Relaxed);
        OpenConnection(Arc::clone(&self.0))
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
