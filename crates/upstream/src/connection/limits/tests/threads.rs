//! Workers on threads of their own: no wake-up between them is lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use super::super::*;
use super::bounds;

const WORKERS: usize = 4;
/// Each worker has one connection, and two are for all.
const BOUND: usize = 6;
const TASKS: usize = 8;
const ROUNDS: usize = 500;

/// Connections of one worker, which are no more than their permits.
struct Worker {
    endpoint: EndpointLink,
    idle: RefCell<Vec<ConnectionPermit>>,
    handed: RefCell<Vec<(u64, ConnectionPermit)>>,
}

impl Worker {
    /// Uses a connection once.
    async fn exchange(&self, in_use: &AtomicUsize, bound: usize) {
        let permit = self.acquire().await;
        assert!(in_use.fetch_add(1, SeqCst) < bound, "more connections than the bound are in use");
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
        match self.endpoint.worker.acquire(vec![self.endpoint.clone()], false).unwrap() {
            Acquisition::Permit(_, permit) => permit,
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

    async fn keep_up(&self) {
        loop {
            self.endpoint.worker.woken().await;
            self.endpoint.worker.grant_permits();
            self.idle.take().into_iter().for_each(|permit| self.offer(permit));
        }
    }
}

/// Runs a worker on this thread, until its exchanges have ended.
fn run(
    limiter: &Arc<ConnectionLimiter>,
    endpoint: &Arc<OpenConnections>,
    max: usize,
    exchanges: impl AsyncFnOnce(Rc<Worker>),
) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        let endpoint = EndpointLink::new(&WorkerLink::new(limiter, WORKERS), endpoint);
        endpoint.worker.set_bounds(&bounds(max), std::iter::once(&endpoint));
        let worker = Rc::new(Worker { endpoint, idle: RefCell::default(), handed: RefCell::default() });
        tokio::select! {
            () = worker.keep_up() => {}
            () = exchanges(Rc::clone(&worker)) => {}
        }
    });
}

#[test]
fn no_request_waits_in_vain_while_all_workers_are_busy() {
    let (limiter, endpoint) = (Arc::default(), Arc::<OpenConnections>::default());
    let in_use = Arc::new(AtomicUsize::new(0));
    let exchanges = async |worker: Rc<Worker>| {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let worker = Rc::clone(&worker);
            let in_use = Arc::clone(&in_use);
            tasks.spawn_local(async move {
                for _ in 0..ROUNDS {
                    worker.exchange(&in_use, BOUND).await;
                }
            });
        }
        tasks.join_all().await;
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| run(&limiter, &endpoint, BOUND, exchanges));
        }
    });
    assert_eq!(endpoint.count(), 0, "all permits were given back");
}

/// Four threads take turns with one connection, which is idle at the one before: that one sleeps, and must be woken.
#[test]
fn idle_connection_of_a_sleeping_worker_is_reclaimed() {
    let (limiter, endpoint) = (Arc::default(), Arc::<OpenConnections>::default());
    let in_use = AtomicUsize::new(0);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| unbounded_channel::<usize>()).unzip();
    senders[0].send(0).unwrap();
    std::thread::scope(|scope| {
        for (index, mut turns) in receivers.into_iter().enumerate() {
            let limiter = &limiter;
            let endpoint = &endpoint;
            let in_use = &in_use;
            let next = senders[(index + 1) % WORKERS].clone();
            scope.spawn(move || {
                run(limiter, endpoint, 1, async move |worker: Rc<Worker>| {
                    while let Some(turn) = turns.recv().await {
                        worker.exchange(in_use, 1).await;
                        // The other threads have ended at the last turns.
                        next.send(turn + 1).ok();
                        if turn + WORKERS > ROUNDS * WORKERS {
                            break;
                        }
                    }
                });
            });
        }
    });
    assert_eq!(endpoint.count(), 0);
}
