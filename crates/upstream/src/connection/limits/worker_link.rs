//! Links of one worker to the limiter.
//!
//! - A connection that becomes idle is offered when requests wait ([`EndpointLink::offer`]), before it is kept.
//! - When the worker is woken, it offers all that are idle (`reclaim`).

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::counts::OpenConnections;
use super::ledger::{Offer, QueueFull, Waiter};
use super::limiter::{Acquired, ConnectionLimiter, Grant};
use super::queue_place::{Acquisition, QueuePlace};

/// Number that no worker has.
const NO_WORKER: u64 = u64::MAX;

/// Link of one worker to the limiter.
#[derive(Debug)]
pub(crate) struct WorkerLink {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    /// Number of workers.
    workers: usize,
    woken: Arc<Notify>,
}

/// Link of one worker's connections to one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct EndpointLink {
    worker: Rc<WorkerLink>,
    endpoint: Arc<OpenConnections>,
}

/// Use of a connection that is idle.
#[derive(Debug)]
pub(crate) enum IdleUse {
    /// It is kept.
    Keep,
    /// A request of this worker takes it.
    HandTo(LocalRequest),
    /// It is closed, and marked as closing.
    Close,
}

/// Request of this worker that a connection is handed to.
#[derive(Debug)]
pub(crate) struct LocalRequest {
    waiter: Waiter<Grant>,
    place: usize,
}

impl WorkerLink {
    /// Adds a worker, one of so many, to the limiter.
    pub(crate) fn new(limiter: &Arc<ConnectionLimiter>, workers: usize) -> Rc<Self> {
        let woken = Arc::new(Notify::new());
        let id = limiter.add_worker(Arc::clone(&woken));
        Rc::new(Self { limiter: Arc::clone(limiter), id, workers: workers.max(1), woken })
    }

    /// Another link of the same worker, whose requests take no connections of this one.
    pub(crate) fn renew(&self) -> Rc<Self> {
        Self::new(&self.limiter, self.workers)
    }

    pub(crate) fn limiter(&self) -> &Arc<ConnectionLimiter> {
        &self.limiter
    }

    /// Completes when the worker is to offer its idle connections.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.woken.notified()
    }

    /// Part of so many connections that this worker keeps.
    pub(crate) fn share_of(&self, connections: usize) -> usize {
        let rest = connections % self.workers;
        connections / self.workers + usize::from(self.limiter.place_of_worker(self.id) < rest)
    }

    /// Acquires a permit for one of the endpoints, or a place in the queue. `has_none`: the worker has no connection to
    /// them that it could share.
    pub(crate) fn acquire(
        &self,
        endpoints: Vec<Arc<OpenConnections>>,
        has_none: bool,
    ) -> Result<Acquisition, QueueFull> {
        self.acquire_as(self.id, endpoints, has_none)
    }

    /// The same for a request that needs a new connection: none is handed to it.
    pub(crate) fn acquire_permit(&self, endpoint: Arc<OpenConnections>) -> Result<Acquisition, QueueFull> {
        self.acquire_as(NO_WORKER, vec![endpoint], false)
    }

    fn acquire_as(
        &self,
        worker: u64,
        endpoints: Vec<Arc<OpenConnections>>,
        has_none: bool,
    ) -> Result<Acquisition, QueueFull> {
        Ok(match self.limiter.acquire_or_enqueue(worker, endpoints, has_none)? {
            Acquired::Permit(place, permit) => Acquisition::Permit(place, permit),
            Acquired::Queued(id, granted) => Acquisition::Queued(QueuePlace::new(&self.limiter, id, granted)),
        })
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        self.limiter.remove_worker(self.id);
    }
}

impl EndpointLink {
    pub(crate) fn new(worker: &Rc<WorkerLink>, endpoint: &Arc<OpenConnections>) -> Self {
        Self { worker: Rc::clone(worker), endpoint: Arc::clone(endpoint) }
    }

    /// Returns whether idle connections are to be offered, because requests of any worker wait: one relaxed read.
    pub(crate) fn needs_offers(&self) -> bool {
        self.worker.limiter.needs_offers()
    }

    /// Decides on an idle connection.
    pub(crate) fn offer(&self) -> IdleUse {
        match self.worker.limiter.offer(self.worker.id, &self.endpoint) {
            Offer::Keep => IdleUse::Keep,
            Offer::HandTo(waiter, place) => IdleUse::HandTo(LocalRequest { waiter, place }),
            Offer::Close => IdleUse::Close,
        }
    }

    /// Takes the request of this worker that has waited longest for this endpoint.
    pub(crate) fn take_local(&self) -> Option<LocalRequest> {
        let (waiter, place) = self.worker.limiter.take_local(self.worker.id, &self.endpoint)?;
        Some(LocalRequest { waiter, place })
    }

    /// Returns whether a connection in use should take no more requests, for one of another worker that has none.
    pub(crate) fn take_urgent(&self) -> bool {
        self.worker.limiter.take_urgent(self.worker.id, &self.endpoint)
    }

    /// Has this worker offer its idle connections soon.
    pub(crate) fn wake(&self) {
        self.worker.woken.notify_one();
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::Instant;

    use super::*;
    use crate::connection::limits::{ConnectionBounds, ConnectionPermit};

    const BOUND: usize = 2;
    const TASKS: usize = 8;
    const ROUNDS: usize = 500;

    /// Connections of one worker, which are no more than their permits.
    struct Worker {
        link: Rc<WorkerLink>,
        endpoint: EndpointLink,
        idle: RefCell<Vec<ConnectionPermit>>,
        handed: RefCell<Vec<(u64, ConnectionPermit)>>,
    }

    impl Worker {
        /// Uses a connection once.
        async fn exchange(&self, in_use: &AtomicUsize) {
            let permit = self.acquire().await;
            assert!(in_use.fetch_add(1, SeqCst) < BOUND, "more connections than the bound are in use");
            yield_now().await;
            in_use.fetch_sub(1, SeqCst);
            if self.endpoint.needs_offers() {
                self.offer(permit);
            } else {
                self.idle.borrow_mut().push(permit);
            }
        }

        async fn acquire(&self) -> ConnectionPermit {
            let idle = self.idle.borrow_mut().pop();
            if let Some(permit) = idle {
                return permit;
            }
            match self.link.acquire(vec![Arc::clone(&self.endpoint.endpoint)], false).unwrap() {
                Acquisition::Permit(0, permit) => permit,
                Acquisition::Permit(..) => panic!("there is one endpoint"),
                Acquisition::Queued(mut place) => {
                    // A lost wake-up would be waited for until then.
                    let deadline = Instant::now() + Duration::from_secs(300);
                    match place.wait(deadline).await.expect("no wake-up is lost") {
                        Grant::Permit(_, permit) => permit,
                        Grant::Local(_) => self.take_handed(place.id()),
                    }
                }
            }
        }

        fn take_handed(&self, id: u64) -> ConnectionPermit {
            let mut handed = self.handed.borrow_mut();
            let index = handed.iter().position(|(other, _)| *other == id).unwrap();
            handed.swap_remove(index).1
        }

        fn offer(&self, permit: ConnectionPermit) {
            match self.endpoint.offer() {
                IdleUse::Keep => self.idle.borrow_mut().push(permit),
                IdleUse::Close => permit.closing_mark().set(),
                IdleUse::HandTo(request) => {
                    self.handed.borrow_mut().push((request.id(), permit));
                    request.wake();
                }
            }
        }

        async fn offer_when_woken(&self) {
            loop {
                self.link.woken().await;
                let idle = self.idle.take();
                idle.into_iter().for_each(|permit| self.offer(permit));
            }
        }
    }

    /// Runs a worker on this thread, until its exchanges have ended.
    fn run(limiter: &Arc<ConnectionLimiter>, endpoint: &Arc<OpenConnections>, exchanges: impl AsyncFnOnce(Rc<Worker>)) {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        runtime.unwrap().block_on(async {
            let link = WorkerLink::new(limiter, 1);
            let endpoint = EndpointLink::new(&link, endpoint);
            let worker = Rc::new(Worker { link, endpoint, idle: RefCell::default(), handed: RefCell::default() });
            tokio::select! {
                () = worker.offer_when_woken() => {}
                () = exchanges(Rc::clone(&worker)) => {}
            }
        });
    }

    fn limiter(max: usize, max_wait: Duration) -> (Arc<ConnectionLimiter>, Arc<OpenConnections>) {
        let limiter = Arc::<ConnectionLimiter>::default();
        let bounds = ConnectionBounds { max: Some(max), max_wait, ..ConnectionBounds::default() };
        limiter.set_bounds(&bounds, std::iter::empty());
        (limiter, Arc::default())
    }

    /// Four threads share two connections, for thousands of waits.
    #[test]
    fn no_request_waits_in_vain_while_all_workers_are_busy() {
        // Connections move between the workers all the time.
        let (limiter, endpoint) = limiter(BOUND, Duration::from_micros(100));
        let in_use = Arc::new(AtomicUsize::new(0));
        let exchanges = async |worker: Rc<Worker>| {
            let mut tasks = JoinSet::new();
            for _ in 0..TASKS {
                let (worker, in_use) = (Rc::clone(&worker), Arc::clone(&in_use));
                tasks.spawn_local(async move {
                    for _ in 0..ROUNDS {
                        worker.exchange(&in_use).await;
                    }
                });
            }
            tasks.join_all().await;
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| run(&limiter, &endpoint, exchanges));
            }
        });
        assert_eq!(endpoint.count(), 0, "all permits were given back");
        assert!(!limiter.needs_offers());
    }

    /// Four threads take turns with one connection, which is idle at the one before: that one sleeps, and must be woken.
    #[test]
    fn idle_connection_of_a_sleeping_worker_is_reclaimed() {
        let (limiter, endpoint) = limiter(1, Duration::from_hours(1));
        let in_use = AtomicUsize::new(0);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| unbounded_channel::<usize>()).unzip();
        senders[0].send(0).unwrap();
        std::thread::scope(|scope| {
            for (index, mut turns) in receivers.into_iter().enumerate() {
                let (limiter, endpoint, in_use) = (&limiter, &endpoint, &in_use);
                let next = senders[(index + 1) % 4].clone();
                scope.spawn(move || {
                    run(limiter, endpoint, async move |worker: Rc<Worker>| {
                        while let Some(turn) = turns.recv().await {
                            worker.exchange(in_use).await;
                            // The other threads have ended at the last turns.
                            next.send(turn + 1).ok();
                            if turn + 4 > ROUNDS * 4 {
                                break;
                            }
                        }
                    });
                });
            }
        });
        assert_eq!(endpoint.count(), 0);
    }
}
