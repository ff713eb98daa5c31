//! Place of a request in the queue for a connection.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::limiter::{ConnectionLimiter, ConnectionPermit, Grant};

/// Permit, or a place in the queue.
#[derive(Debug)]
pub(crate) enum Acquisition {
    /// There was room at the endpoint at this place of the list.
    Permit(usize, ConnectionPermit),
    /// The request waits.
    Queued(QueuePlace),
}

/// Place in the queue. Dropped, it leaves the queue, and a permit that came meanwhile goes on to the next request.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    granted: oneshot::Receiver<Grant>,
    since: Instant,
}

impl QueuePlace {
    pub(super) fn new(limiter: &Arc<ConnectionLimiter>, id: u64, granted: oneshot::Receiver<Grant>) -> Self {
        Self { limiter: Arc::clone(limiter), id, granted, since: Instant::now() }
    }

    /// Number of the request, by which a connection is handed to it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits for a connection; none when the deadline passes.
    pub(crate) async fn wait(&mut self, deadline: Instant) -> Option<Grant> {
        let urgent = deadline.min(self.since + self.limiter.patience());
        if let Ok(granted) = timeout_at(urgent, &mut self.granted).await {
            return granted.ok();
        }
        self.limiter.urge(self.id);
        timeout_at(deadline, &mut self.granted).await.ok()?.ok()
    }

    /// A connection that came, and was not waited for any more.
    pub(crate) fn take_late(&mut self) -> Option<Grant> {
        self.limiter.leave(self.id);
        self.granted.try_recv().ok()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.limiter.leave(self.id);
    }
}
