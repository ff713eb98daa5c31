//! Links of one worker to the limiter of an upstream, and to each of its endpoints.
//!
//! # Wake-ups
//!
//! - Room appears when a connection is closed. That is counted under a lock; then all workers are woken if requests
//!   wait, and each gives its own requests what there is room for. A request looks for room and counts as waiting under
//!   the same lock: it finds the room, or is seen.
//! - A request that waits wakes all workers, and each offers its idle connections ([`EndpointLink::offer`]).
//! - A worker whose connection becomes idle reads the number of waiting requests, and offers the connection if there
//!   are any. Reading it and keeping the connection is one step of the worker's thread, which comes either before its
//!   turn of offering or behind it. Before: the turn finds the connection. Behind: the turn has synchronized with the
//!   wake-up (`Notify`), and so with the count that came before it: the read, later in the same thread, sees it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::limiter::ConnectionLimiter;
use super::permit::ConnectionPermit;
use super::queue::{Acquisition, Grant, LocalRequest, Queue, QueueFull, Waiter};
use super::share::{OpenConnections, WorkerShare};
use super::sync::{Arc, Notified, Notify, Relaxed};

/// Bounds of the connections to the endpoints, of all workers together, and of the wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Open connections to each endpoint at most; none: any number.
    pub max: Option<usize>,
    /// Open connections to all endpoints together at most; none: any number.
    pub max_total: Option<usize>,
    /// Requests that wait for a connection at most; more are refused at once.
    pub max_waiting: usize,
    /// Time that a request waits at most; never more than half of the time-out of connecting.
    pub max_wait: Duration,
}

impl Default for ConnectionBounds {
    fn default() -> Self {
        Self { max: None, max_total: None, max_waiting: 1000, max_wait: Duration::from_secs(1) }
    }
}

/// Link of one worker to the limiter. Used by the worker's thread only. Dropped, it is woken no more; connections that
/// are left keep their shares.
#[derive(Debug)]
pub(crate) struct WorkerLink {
    /// Shared by all workers of the upstream.
    limiter: Arc<ConnectionLimiter>,
    /// Number of workers.
    workers: usize,
    /// Share in the connections to all endpoints.
    total: Rc<WorkerShare>,
    /// Shared with the places in it.
    queue: Rc<Queue>,
    /// Requests of all workers that wait at most.
    max_waiting: Cell<usize>,
    /// Number of closed connections as of which there is room for none of the queue; none if it is to be seen.
    seen_releases: Cell<Option<usize>>,
    /// Shared with the limiter, by which other workers wake the upkeep of this one.
    woken: Arc<Notify>,
}

/// Link of one worker's connections to one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct EndpointLink {
    pub(super) worker: Rc<WorkerLink>,
    /// Shared with the permits of the worker's connections to the endpoint.
    share: Rc<WorkerShare>,
}

/// Use of a connection that is idle.
#[derive(Debug)]
pub(crate) enum IdleUse {
    /// It is kept.
    Keep,
    /// A request of this worker takes it.
    HandTo(LocalRequest),
    /// It was given back: it is to be [marked](super::ClosingMark::set) and closed.
    Close,
}

impl WorkerLink {
    /// Adds a worker, one of so many, to the limiter.
    pub(crate) fn new(limiter: &Arc<ConnectionLimiter>, workers: usize) -> Rc<Self> {
        let woken = Arc::new(Notify::new());
        limiter.lock_workers().push(Arc::clone(&woken));
        let workers = workers.max(1);
        Rc::new(Self {
            limiter: Arc::clone(limiter),
            workers,
            total: Rc::new(WorkerShare::new(&limiter.total, workers)),
            queue: Queue::new(limiter),
            max_waiting: Cell::default(),
            seen_releases: Cell::default(),
            woken,
        })
    }

    /// Another link of the same worker, whose requests take no connections of this one.
    pub(crate) fn renew(&self) -> Rc<Self> {
        Self::new(&self.limiter, self.workers)
    }

    /// Takes the bounds of a changed configuration, which has these endpoints.
    pub(crate) fn set_bounds<'a>(&self, bounds: &ConnectionBounds, endpoints: impl Iterator<Item = &'a EndpointLink>) {
        let counts = self.limiter.lock_counts();
        self.total.set_max(bounds.max_total);
        endpoints.for_each(|endpoint| endpoint.share.set_max(bounds.max));
        drop(counts);
        self.max_waiting.set(bounds.max_waiting);
        self.seen_releases.set(None);
        // Higher bounds have room for the queue; connections beyond lower ones are closed when they are idle.
        self.wake();
    }

    /// Has the upkeep look at the queue and at the idle connections.
    fn wake(&self) {
        self.woken.notify_one();
    }

    /// Completes when the worker is to grant permits and to offer its idle connections.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.woken.notified()
    }

    /// Acquires a permit for one of the endpoints, or a place in the queue. `needs_new`: no connection that is open can
    /// be handed to the request.
    pub(crate) fn acquire(&self, endpoints: Vec<EndpointLink>, needs_new: bool) -> Result<Acquisition, QueueFull> {
        // The requests that came before have what there is room for.
        self.grant_permits();
        let counts = self.limiter.lock_counts();
        if let Some(place) = endpoints.iter().position(EndpointLink::has_room) {
            return Ok(Acquisition::Permit(place, self.open(&endpoints[place].share)));
        }
        if self.limiter.waiting() >= self.max_waiting.get() {
            return Err(QueueFull);
        }
        let place = self.queue.push(endpoints.into_iter().map(|endpoint| endpoint.share).collect(), needs_new);
        drop(counts);
        self.limiter.wake_if_needed();
        Ok(Acquisition::Queued(place))
    }

    /// Returns whether there is room for a connection to an endpoint.
    fn has_room(&self, endpoint: &WorkerShare) -> bool {
        self.total.has_room() && endpoint.has_room()
    }

    /// Opens a connection to an endpoint, if there is room.
    fn try_open(&self, endpoint: &Rc<WorkerShare>) -> Option<ConnectionPermit> {
        let _counts = self.limiter.lock_counts();
        self.has_room(endpoint).then(|| self.open(endpoint))
    }

    fn open(&self, endpoint: &Rc<WorkerShare>) -> ConnectionPermit {
        ConnectionPermit::open(&self.limiter, endpoint, &self.total)
    }

    /// Gives requests that wait the permits for which there is room, in their order.
    pub(crate) fn grant_permits(&self) {
        while let Some((waiter, place, permit)) = self.next_grant() {
            // Without the lock: a request that has left drops its permit at once.
            drop(waiter.wake.send(Grant::Permit(place, permit)));
        }
    }

    fn next_grant(&self) -> Option<(Waiter, usize, ConnectionPermit)> {
        let mut waiters = self.queue.waiters();
        let releases = Some(self.limiter.releases.load(Relaxed));
        if waiters.is_empty() || self.seen_releases.get() == releases {
            return None;
        }
        for (index, waiter) in waiters.iter().enumerate() {
            let mut endpoints = waiter.endpoints.iter().enumerate();
            let opened = endpoints.find_map(|(place, endpoint)| Some((place, self.try_open(endpoint)?)));
            if let Some((place, permit)) = opened {
                return Some((self.queue.take(&mut waiters, index), place, permit));
            }
        }
        // Until the next release, none of these needs to look again.
        self.seen_releases.set(releases);
        None
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        self.limiter.lock_workers().retain(|worker| !Arc::ptr_eq(worker, &self.woken));
    }
}

impl EndpointLink {
    /// Link without connections.
    pub(crate) fn new(worker: &Rc<WorkerLink>, endpoint: &Arc<OpenConnections>) -> Self {
        Self { worker: Rc::clone(worker), share: Rc::new(WorkerShare::new(endpoint, worker.workers)) }
    }

    /// Returns whether there is room for a connection of this worker.
    pub(crate) fn has_room(&self) -> bool {
        self.worker.has_room(&self.share)
    }

    /// Acquires a permit if there is room, and no request of this worker waits for it.
    pub(crate) fn try_acquire(&self) -> Option<ConnectionPermit> {
        self.worker.grant_permits();
        self.worker.try_open(&self.share)
    }

    /// Returns whether idle connections are to be offered, because requests of any worker wait, or the
    /// bounds were lowered.
    pub(crate) fn needs_offers(&self) -> bool {
        self.worker.limiter.waiting() > 0 || self.owes(0)
    }

    /// Decides on an idle connection. One beyond lowered bounds is closed. Another goes to the first request in
    /// the worker's queue that can use it, or is closed for it; and then it is closed for requests of other
    /// workers, if it is borrowed.
    pub(crate) fn offer(&self) -> IdleUse {
        let _counts = self.worker.limiter.lock_counts();
        if self.owes(0) {
            return self.begin_close();
        }
        let mut waiters = self.worker.queue.waiters();
        for (index, waiter) in waiters.iter().enumerate() {
            if let Some(place) = waiter.place_of(&self.share) {
                return IdleUse::HandTo(LocalRequest { waiter: self.worker.queue.take(&mut waiters, index), place });
            }
            if waiter.is_blocked_by(&self.share, &self.worker.total) {
                return self.begin_close();
            }
        }
        if self.owes(self.worker.limiter.waiting()) { self.begin_close() } else { IdleUse::Keep }
    }

    /// Takes the request of this worker that has waited longest for this endpoint.
    pub(crate) fn take_local(&self) -> Option<LocalRequest> {
        let mut waiters = self.worker.queue.waiters();
        let mut found = waiters.iter().enumerate();
        let (index, place) = found.find_map(|(index, waiter)| Some((index, waiter.place_of(&self.share)?)))?;
        Some(LocalRequest { waiter: self.worker.queue.take(&mut waiters, index), place })
    }

    /// Has this worker offer its idle connections soon.
    pub(crate) fn wake(&self) {
        self.worker.wake();
    }

    fn owes(&self, more: usize) -> bool {
        self.share.owes(more) || self.worker.total.owes(more)
    }

    fn begin_close(&self) -> IdleUse {
        self.give_back();
        IdleUse::Close
    }

    fn give_back(&self) {
        self.share.give_back();
        self.worker.total.give_back();
    }
}
