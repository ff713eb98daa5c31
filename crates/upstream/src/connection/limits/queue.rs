//! Queue of one worker's requests for a connection.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::limiter::ConnectionLimiter;
use super::permit::ConnectionPermit;
use super::share::WorkerShare;
use super::sync::{Arc, Relaxed};

/// Too many requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Permit, or a place in the queue.
#[derive(Debug)]
pub(crate) enum Acquisition {
    /// There was room at the endpoint at this place of the list.
    Permit(usize, ConnectionPermit),
    /// The request waits.
    Queued(QueuePlace),
}

/// End of a wait. The number is the place of the endpoint in the list that the request accepts.
#[derive(Debug)]
pub(crate) enum Grant {
    /// A connection may be opened.
    Permit(usize, ConnectionPermit),
    /// A connection of the same worker was handed to the request.
    Local(usize),
}

/// Place in the queue. Dropped, it leaves the queue, and a permit that came meanwhile goes on to the next request.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    queue: Rc<Queue>,
    id: u64,
    /// Its other end is with the waiter, and is dropped with it, or used once. A permit that is in it when this is
    /// dropped is given back by its own drop.
    pub(super) granted: oneshot::Receiver<Grant>,
}

/// Queue of one worker's requests, in the order of arrival. It lives as long as a place in it, so that the count of the
/// limiter has all that wait.
#[derive(Debug)]
pub(super) struct Queue {
    /// Counts the waiters of all workers.
    limiter: Arc<ConnectionLimiter>,
    /// Borrowed for no longer than a decision, and never across a wake-up: what is woken may drop its place.
    waiters: RefCell<VecDeque<Waiter>>,
    /// Number of the next request; none comes twice.
    next_id: Cell<u64>,
}

/// Request in the queue.
#[derive(Debug)]
pub(super) struct Waiter {
    id: u64,
    /// Endpoints that the request may go to, the preferred one first.
    pub(super) endpoints: Vec<Rc<WorkerShare>>,
    /// True if the request needs a new connection: none is handed to it.
    needs_new: bool,
    /// Used once. Dropped unused, it has the request look again.
    pub(super) wake: oneshot::Sender<Grant>,
}

/// Request of this worker that a connection is handed to.
#[derive(Debug)]
pub(crate) struct LocalRequest {
    pub(super) waiter: Waiter,
    /// Place of the connection's endpoint in the list of the request.
    pub(super) place: usize,
}

impl Queue {
    pub(super) fn new(limiter: &Arc<ConnectionLimiter>) -> Rc<Self> {
        Rc::new(Self { limiter: Arc::clone(limiter), waiters: RefCell::default(), next_id: Cell::default() })
    }

    pub(super) fn waiters(&self) -> RefMut<'_, VecDeque<Waiter>> {
        self.waiters.borrow_mut()
    }

    /// Puts a request at the end. The counts must be locked, so that no connection is closed meanwhile.
    pub(super) fn push(self: &Rc<Self>, endpoints: Vec<Rc<WorkerShare>>, needs_new: bool) -> QueuePlace {
        self.limiter.waiting.fetch_add(1, Relaxed);
        let id = self.next_id.replace(self.next_id.get() + 1);
        let (wake, granted) = oneshot::channel();
        self.waiters().push_back(Waiter { id, endpoints, needs_new, wake });
        QueuePlace { queue: Rc::clone(self), id, granted }
    }

    /// Takes the request at this index out of the queue.
    pub(super) fn take(&self, waiters: &mut VecDeque<Waiter>, index: usize) -> Waiter {
        let before = self.limiter.waiting.fetch_sub(1, Relaxed);
        debug_assert!(before >= waiters.len(), "the requests of this queue are among those that wait");
        waiters.remove(index).unwrap_or_else(|| unreachable!("the caller has found the request there"))
    }

    /// Removes a request that no longer waits.
    fn leave(&self, id: u64) {
        let mut waiters = self.waiters();
        if let Some(index) = waiters.iter().position(|waiter| waiter.id == id) {
            self.take(&mut waiters, index);
        }
    }
}

impl QueuePlace {
    /// Number of the request, by which a connection is handed to it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits for a connection; none when the deadline passes.
    pub(crate) async fn wait(&mut self, deadline: Instant) -> Option<Grant> {
        timeout_at(deadline, &mut self.granted).await.ok()?.ok()
    }

    /// A connection that came, and was not waited for any more.
    pub(crate) fn take_late(&mut self) -> Option<Grant> {
        self.queue.leave(self.id);
        self.granted.try_recv().ok()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.queue.leave(self.id);
    }
}

impl Waiter {
    /// Place of an endpoint in the list, if a connection to it can be handed to the request.
    pub(super) fn place_of(&self, endpoint: &Rc<WorkerShare>) -> Option<usize> {
        let place = self.endpoints.iter().position(|accepted| Rc::ptr_eq(accepted, endpoint));
        place.filter(|_| !self.needs_new)
    }

    /// Returns whether the request can connect once a connection to this endpoint is closed, and cannot otherwise.
    pub(super) fn is_blocked_by(&self, endpoint: &Rc<WorkerShare>, total: &WorkerShare) -> bool {
        let is_allowed = |accepted: &Rc<WorkerShare>| accepted.allows_one_more();
        !(total.allows_one_more() && self.endpoints.iter().any(is_allowed))
            && self.endpoints.iter().any(|accepted| Rc::ptr_eq(accepted, endpoint) || is_allowed(accepted))
    }
}

impl LocalRequest {
    /// Number of the request.
    pub(crate) fn id(&self) -> u64 {
        self.waiter.id
    }

    /// Wakes the request, which finds the connection under its number, or looks again.
    pub(crate) fn wake(self) {
        // A request of this thread leaves the queue before it drops its end of the channel.
        drop(self.waiter.wake.send(Grant::Local(self.place)));
    }
}
