//! Limiter of connections, shared by all workers: permits for connections, and the queue of the requests that wait for one.
//!
//! # Wake-ups
//!
//! A request that waits on one worker may be served by closing an idle connection of another. No wake-up is lost:
//!
//! - The request sets `needs_offers` first, and then every worker is woken ([`ConnectionLimiter::wake_workers`]). A
//!   worker that is woken offers all of its idle connections ([`super::worker_link`]).
//! - A worker whose connection becomes idle reads `needs_offers`, and offers the connection if it is set. Reading it and
//!   keeping the connection is one step of the worker's thread, which comes either before its turn of offering or behind
//!   it. Before: the turn finds the connection. Behind: the turn has synchronized with the wake-up (`Notify`), and so with
//!   the write that came before it: the read, later in the same thread, sees it. A relaxed read is enough.
//! - Whenever a connection is closed and requests still wait, all workers are woken again: what helped none of them
//!   before may help one now.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::counts::OpenConnections;
use super::ledger::{Ledger, Offer, QueueFull, Waiter};
use super::settings::ConnectionBounds;

/// Limiter of the connections to the endpoints of one upstream.
///
/// - Its lock is held for the time of a decision, never over an await, and never while a permit is dropped.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimiter {
    ledger: Mutex<Ledger<Grant>>,
    /// True if idle connections are to be offered: requests wait. As of the last change.
    needs_offers: AtomicBool,
    workers: Mutex<Workers>,
}

/// Workers that have connections.
#[derive(Debug, Default)]
struct Workers {
    next_id: u64,
    list: Vec<(u64, Arc<Notify>)>,
}

/// Permit of an open connection. Dropped after the socket, it lets the next one connect.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    endpoint: Arc<OpenConnections>,
    closing: ClosingMark,
}

/// Mark of a connection that is closed for a waiting request. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClosingMark(Arc<AtomicBool>);

/// Permit, or a place in the queue.
#[derive(Debug)]
pub(super) enum Acquired {
    /// Permit for the endpoint at this place of the list.
    Permit(usize, ConnectionPermit),
    /// Number of the request, and its end of the channel.
    Queued(u64, oneshot::Receiver<Grant>),
}

/// End of a wait. The number is the place of the endpoint in the list that the request accepts.
#[derive(Debug)]
pub(crate) enum Grant {
    /// A connection may be opened.
    Permit(usize, ConnectionPermit),
    /// A connection of the same worker was handed to the request.
    Local(usize),
}

impl ConnectionLimiter {
    /// Takes the bounds of a changed configuration.
    pub(crate) fn set_bounds<'a>(
        self: &Arc<Self>,
        bounds: &ConnectionBounds,
        endpoints: impl Iterator<Item = &'a Arc<OpenConnections>>,
    ) {
        let mut ledger = self.lock();
        if !ledger.set_bounds(bounds, endpoints) {
            return;
        }
        let granted = self.take_grants(&mut ledger);
        drop(ledger);
        self.send(granted);
        // Connections beyond a lower bound close when they are idle.
        self.wake_workers();
    }

    /// Acquires a permit if there is room.
    pub(crate) fn try_acquire(self: &Arc<Self>, endpoint: &Arc<OpenConnections>) -> Option<ConnectionPermit> {
        let has_room = self.lock().try_open(endpoint);
        has_room.then(|| self.permit(endpoint))
    }

    /// Returns whether there is room for a connection.
    pub(crate) fn has_room(&self, endpoint: &OpenConnections) -> bool {
        self.lock().has_room(endpoint)
    }

    /// Acquires a permit for one of the endpoints, or a place in the queue.
    pub(super) fn acquire_or_enqueue(
        self: &Arc<Self>,
        worker: u64,
        endpoints: Vec<Arc<OpenConnections>>,
        has_none: bool,
    ) -> Result<Acquired, QueueFull> {
        let mut ledger = self.lock();
        // Since the caller looked, a connection may have been closed.
        if let Some(place) = endpoints.iter().position(|endpoint| ledger.try_open(endpoint)) {
            return Ok(Acquired::Permit(place, self.permit(&endpoints[place])));
        }
        let (id, granted) = ledger.enqueue(worker, endpoints, has_none, Instant::now())?;
        self.publish(&ledger);
        drop(ledger);
        self.wake_workers();
        Ok(Acquired::Queued(id, granted))
    }

    /// Removes a request from the queue.
    pub(super) fn leave(&self, id: u64) {
        let mut ledger = self.lock();
        ledger.leave(id);
        self.publish(&ledger);
    }

    /// Has connections retired for a request that has waited for long.
    pub(super) fn urge(&self, id: u64) {
        self.lock().urge(id);
        self.wake_workers();
    }

    pub(super) fn patience(&self) -> std::time::Duration {
        self.lock().patience()
    }

    /// Decides on an idle connection. The lock is not held when this returns.
    pub(super) fn offer(&self, worker: u64, endpoint: &Arc<OpenConnections>) -> Offer<Grant> {
        let mut ledger = self.lock();
        let offer = ledger.offer(worker, endpoint, Instant::now());
        self.publish(&ledger);
        offer
    }

    pub(super) fn take_local(&self, worker: u64, endpoint: &Arc<OpenConnections>) -> Option<(Waiter<Grant>, usize)> {
        let mut ledger = self.lock();
        let local = ledger.take_local(worker, endpoint);
        self.publish(&ledger);
        local
    }

    pub(super) fn take_urgent(&self, worker: u64, endpoint: &Arc<OpenConnections>) -> bool {
        self.lock().take_urgent(worker, endpoint)
    }

    /// Returns whether idle connections are to be offered: one relaxed read.
    pub(super) fn needs_offers(&self) -> bool {
        self.needs_offers.load(Relaxed)
    }

    /// Adds a worker, which is woken by `notify` from now on. Returns its number.
    pub(super) fn add_worker(&self, notify: Arc<Notify>) -> u64 {
        let mut workers = self.workers();
        let id = workers.next_id;
        workers.next_id += 1;
        workers.list.push((id, notify));
        id
    }

    pub(super) fn remove_worker(&self, id: u64) {
        self.workers().list.retain(|(other, _)| *other != id);
    }

    /// Place of a worker among those that there are now.
    pub(super) fn place_of_worker(&self, id: u64) -> usize {
        self.workers().list.iter().position(|(other, _)| *other == id).unwrap_or_default()
    }

    /// Wakes the upkeep of every worker.
    fn wake_workers(&self) {
        self.workers().list.iter().for_each(|(_, notify)| notify.notify_one());
    }

    fn release(self: &Arc<Self>, endpoint: &OpenConnections, was_closing: bool) {
        let mut ledger = self.lock();
        ledger.release(endpoint, was_closing);
        let granted = self.take_grants(&mut ledger);
        let needs_offers = ledger.needs_offers();
        drop(ledger);
        self.send(granted);
        if needs_offers {
            self.wake_workers();
        }
    }

    fn take_grants(&self, ledger: &mut Ledger<Grant>) -> Vec<(Waiter<Grant>, usize)> {
        let granted = std::iter::from_fn(|| ledger.next_grant()).collect();
        self.publish(ledger);
        granted
    }

    /// Sends permits. Without the lock: a request that has left drops its permit at once.
    fn send(self: &Arc<Self>, granted: Vec<(Waiter<Grant>, usize)>) {
        for (waiter, place) in granted {
            let permit = self.permit(&waiter.endpoints[place]);
            drop(waiter.wake.send(Grant::Permit(place, permit)));
        }
    }

    fn permit(self: &Arc<Self>, endpoint: &Arc<OpenConnections>) -> ConnectionPermit {
        ConnectionPermit { limiter: Arc::clone(self), endpoint: Arc::clone(endpoint), closing: ClosingMark::default() }
    }

    fn publish(&self, ledger: &Ledger<Grant>) {
        self.needs_offers.store(ledger.needs_offers(), Relaxed);
    }

    /// No holder of the lock panics half-way: a poisoned ledger is whole.
    fn lock(&self) -> MutexGuard<'_, Ledger<Grant>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Permit of a limiter of its own, without bounds.
    #[cfg(test)]
    pub(crate) fn unbounded() -> Self {
        Arc::<ConnectionLimiter>::default().try_acquire(&Arc::default()).expect("there are no bounds")
    }

    /// The mark by which the connection is told apart when it is closed for a waiting request.
    pub(crate) fn closing_mark(&self) -> &ClosingMark {
        &self.closing
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.release(&self.endpoint, self.closing.is_set());
    }
}

impl ClosingMark {
    /// Marks a connection that [`Offer::Close`] is for.
    pub(crate) fn set(&self) {
        self.0.store(true, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Limiter with one connection to each endpoint at most, an endpoint, and what wakes a worker.
    fn limiter() -> (Arc<ConnectionLimiter>, Arc<OpenConnections>, Arc<Notify>) {
        let (limiter, endpoint, woken) =
            (Arc::<ConnectionLimiter>::default(), Arc::default(), Arc::<Notify>::default());
        set_max(&limiter, 1);
        limiter.add_worker(Arc::clone(&woken));
        (limiter, endpoint, woken)
    }

    fn set_max(limiter: &Arc<ConnectionLimiter>, max: usize) {
        let bounds = ConnectionBounds { max: Some(max), ..ConnectionBounds::default() };
        limiter.set_bounds(&bounds, std::iter::empty());
    }

    /// Enqueues a request for which there is no room.
    fn enqueue(limiter: &Arc<ConnectionLimiter>, endpoint: &Arc<OpenConnections>) -> (u64, oneshot::Receiver<Grant>) {
        match limiter.acquire_or_enqueue(0, vec![Arc::clone(endpoint)], false).unwrap() {
            Acquired::Queued(id, granted) => (id, granted),
            Acquired::Permit(..) => panic!("there is no room"),
        }
    }

    fn is_woken(woken: &Notify) -> bool {
        woken.notified().now_or_never().is_some()
    }

    #[test]
    fn workers_offer_their_connections_while_a_request_waits() {
        let (limiter, endpoint, woken) = limiter();
        let _open = limiter.try_acquire(&endpoint).expect("there is room");
        assert!(!limiter.needs_offers());
        let (id, _granted) = enqueue(&limiter, &endpoint);
        assert!(limiter.needs_offers() && is_woken(&woken) && !is_woken(&woken));
        limiter.urge(id);
        assert!(is_woken(&woken), "it has waited for long");
        limiter.leave(id);
        assert!(!limiter.needs_offers());
    }

    #[test]
    fn room_that_appears_after_the_look_is_taken() {
        let (limiter, endpoint, _) = limiter();
        drop(limiter.try_acquire(&endpoint));
        let acquired = limiter.acquire_or_enqueue(0, vec![endpoint], false).unwrap();
        assert!(matches!(acquired, Acquired::Permit(0, _)));
    }

    #[test]
    fn closed_connection_goes_to_the_first_request_and_wakes_the_workers_for_the_others() {
        let (limiter, endpoint, woken) = limiter();
        let open = limiter.try_acquire(&endpoint);
        let ((_, mut first), (_, mut second)) = (enqueue(&limiter, &endpoint), enqueue(&limiter, &endpoint));
        assert!(is_woken(&woken));
        drop(open);
        let granted = first.try_recv();
        assert!(matches!(granted, Ok(Grant::Permit(0, _))) && second.try_recv().is_err());
        assert!(is_woken(&woken));
    }

    #[test]
    fn raised_bound_serves_the_requests_that_wait() {
        let (limiter, endpoint, _) = limiter();
        let _open = limiter.try_acquire(&endpoint);
        let (_, mut granted) = enqueue(&limiter, &endpoint);
        set_max(&limiter, 2);
        assert!(matches!(granted.try_recv(), Ok(Grant::Permit(0, _))));
    }
}
