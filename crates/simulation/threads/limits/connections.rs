//! Two workers and a bound: never more connections than it allows, and no request waits while there is room.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::sync::{AtomicUsize, Ordering};
use super::{
    Acquisition, ConnectionBounds, ConnectionLimiter, ConnectionPermit, EndpointLink, Grant, OpenConnections,
    QueuePlace, WorkerLink,
};

const WORKERS: usize = 2;

/// The upstream that the workers share, and the connections that are open by their own count.
#[derive(Default)]
struct Upstream {
    limiter: Arc<ConnectionLimiter>,
    endpoint: Arc<OpenConnections>,
    open: AtomicUsize,
}

struct Worker {
    upstream: Arc<Upstream>,
    bound: usize,
    endpoint: EndpointLink,
}

impl Worker {
    fn new(upstream: &Arc<Upstream>, bound: usize) -> Self {
        let link = WorkerLink::new(&upstream.limiter, WORKERS);
        let endpoint = EndpointLink::new(&link, &upstream.endpoint);
        let bounds = ConnectionBounds { max: Some(bound), max_waiting: 10, max_wait: Duration::ZERO, max_total: None };
        link.set_bounds(&bounds, std::iter::once(&endpoint));
        link.woken().take();
        Self { upstream: Arc::clone(upstream), bound, endpoint }
    }

    fn connect(&self, permit: ConnectionPermit) -> ConnectionPermit {
        let before = self.upstream.open.fetch_add(1, Ordering::SeqCst);
        assert!(before < self.bound, "more connections are open than the bound");
        permit
    }

    fn close(&self, permit: ConnectionPermit) {
        self.upstream.open.fetch_sub(1, Ordering::SeqCst);
        drop(permit);
    }

    fn acquire(&self) -> Result<ConnectionPermit, QueuePlace> {
        match self.endpoint.worker.acquire(vec![self.endpoint.clone()], false).unwrap() {
            Acquisition::Permit(_, permit) => Ok(self.connect(permit)),
            Acquisition::Queued(place) => Err(place),
        }
    }

    /// Does as the upkeep when it is woken.
    fn keep_up(&self, place: &mut QueuePlace) -> Option<ConnectionPermit> {
        self.endpoint.worker.woken().take().then(|| self.endpoint.worker.grant_permits())?;
        match place.granted.try_recv().ok()? {
            Grant::Permit(_, permit) => Some(self.connect(permit)),
            Grant::Local(_) => unreachable!("no connection is handed over"),
        }
    }

    /// Uses so many connections at a time, and closes them. A request that waits is served by a wake-up.
    fn run(&self, connections: usize) {
        let (mut open, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            match self.acquire() {
                Ok(permit) => open.push(permit),
                Err(place) => waiting.push(place),
            }
        }
        open.into_iter().for_each(|permit| self.close(permit));
        for mut place in waiting {
            let permit = loop {
                match self.keep_up(&mut place) {
                    Some(permit) => break permit,
                    // Not woken yet: where a wake-up is lost, `loom` finds that this goes on for ever.
                    None => loom::thread::yield_now(),
                }
            };
            self.close(permit);
        }
    }
}

/// Runs two workers on threads of their own, in all interleavings with so many preemptions.
fn run(bound: usize, connections: [usize; WORKERS]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let upstream = Arc::<Upstream>::default();
        let other = Arc::clone(&upstream);
        let thread = loom::thread::spawn(move || Worker::new(&other, bound).run(connections[1]));
        Worker::new(&upstream, bound).run(connections[0]);
        thread.join().unwrap();
        assert_eq!(upstream.endpoint.count(), 0, "all connections are counted as closed");
    });
}

pub(crate) fn shares_and_what_is_borrowed_never_exceed_the_bound() {
    run(3, [2, 1]);
}

pub(crate) fn request_that_waits_for_another_worker_is_woken() {
    run(1, [1, 1]);
}

pub(crate) fn worker_that_borrows_leaves_the_share_of_the_other_one() {
    run(2, [1, 1]);
}

/// A mutant, which is found.
pub(crate) fn wake_up_does_not_synchronize() {
    super::sync::STORES.store(true, Ordering::SeqCst);
    run(1, [1, 1]);
}
