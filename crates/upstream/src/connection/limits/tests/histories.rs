//! Random histories of several workers and endpoints, on one thread: connections are no more than their permits.

use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::*;

const WORKERS: usize = 3;
const ENDPOINTS: usize = 3;

/// One worker, with the connections that it has to endpoints.
#[derive(Debug)]
struct Worker {
    link: Rc<WorkerLink>,
    endpoints: Vec<EndpointLink>,
    busy: Vec<(usize, ConnectionPermit)>,
    idle: Vec<(usize, ConnectionPermit)>,
    closing: Vec<(usize, ConnectionPermit)>,
    /// Requests that wait, in the order of arrival, with the endpoints that they accept, and whether they
    /// need a new connection.
    waiting: Vec<(QueuePlace, Vec<usize>, bool)>,
}

#[derive(Debug)]
struct Gateway {
    total: usize,
    max: usize,
    counts: Vec<Arc<OpenConnections>>,
    workers: Vec<Worker>,
}

#[derive(Clone, Debug)]
enum Step {
    /// A request comes, which may go to these endpoints, or needs a new connection to the first of them.
    Request(Vec<usize>, bool),
    /// A connection in use becomes idle.
    Finish(usize),
    /// A connection in use breaks.
    Break(usize),
    /// A connection that is being closed is closed.
    Closed(usize),
    /// A request that waits leaves.
    Leave(usize),
    /// The bounds are changed, for all workers.
    Bounds(usize, usize),
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let endpoints = proptest::sample::subsequence((0..ENDPOINTS).collect::<Vec<_>>(), 1..=ENDPOINTS);
    let step = prop_oneof![
        6 => (endpoints, prop::bool::weighted(0.2)).prop_map(|(accepted, new)| Step::Request(accepted, new)),
        4 => (0_usize..64).prop_map(Step::Finish),
        1 => (0_usize..64).prop_map(Step::Break),
        3 => (0_usize..64).prop_map(Step::Closed),
        1 => (0_usize..64).prop_map(Step::Leave),
        1 => (1_usize..12, 1_usize..20).prop_map(|(max, total)| Step::Bounds(max, total)),
    ];
    (0..WORKERS, step)
}

fn take<T>(list: &mut Vec<T>, number: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.remove(number % list.len()))
}

/// Connections that each worker can always have.
fn share(max: usize) -> usize {
    if max < WORKERS { 0 } else { (max / (2 * WORKERS)).max(1) }
}

fn total_of(worker: &Worker) -> usize {
    (0..ENDPOINTS).map(|endpoint| worker.held(endpoint)).sum()
}

impl Worker {
    fn request(&mut self, mut accepted: Vec<usize>, needs_new: bool) {
        let idle = self.idle.iter().position(|(endpoint, _)| accepted.contains(endpoint));
        if let Some(index) = idle.filter(|_| !needs_new) {
            self.busy.push(self.idle.remove(index));
            return;
        }
        accepted.truncate(if needs_new { 1 } else { ENDPOINTS });
        let endpoints = accepted.iter().map(|endpoint| self.endpoints[*endpoint].clone()).collect();
        match self.link.acquire(endpoints, needs_new).unwrap() {
            Acquisition::Permit(place, permit) => self.busy.push((accepted[place], permit)),
            Acquisition::Queued(place) => self.waiting.push((place, accepted, needs_new)),
        }
    }

    /// Does what the upkeep does when it is woken.
    fn upkeep(&mut self) {
        self.link.grant_permits();
        let mut index = 0;
        while index < self.waiting.len() {
            let Ok(Grant::Permit(place, permit)) = self.waiting[index].0.granted.try_recv() else {
                index += 1;
                continue;
            };
            let endpoint = self.waiting.remove(index).1[place];
            let is_earlier = self.waiting[..index].iter().any(|(_, accepted, _)| accepted.contains(&endpoint));
            assert!(!is_earlier, "an earlier request of the worker accepts the endpoint as well");
            self.busy.push((endpoint, permit));
        }
        for (endpoint, permit) in std::mem::take(&mut self.idle) {
            match self.endpoints[endpoint].offer() {
                IdleUse::Keep => self.idle.push((endpoint, permit)),
                IdleUse::Close => {
                    permit.closing_mark().set();
                    self.closing.push((endpoint, permit));
                }
                IdleUse::HandTo(request) => {
                    let first = self.waiting.iter().position(|(_, accepted, new)| !new && accepted.contains(&endpoint));
                    let (place, ..) = self.waiting.remove(first.expect("one waits for it"));
                    assert_eq!(place.id(), request.id(), "the first of the worker has it");
                    self.busy.push((endpoint, permit));
                }
            }
        }
    }

    /// Connections to an endpoint, without those that are being closed.
    fn held(&self, endpoint: usize) -> usize {
        self.busy.iter().chain(&self.idle).filter(|(other, _)| *other == endpoint).count()
    }
}

impl Gateway {
    fn new(max: usize, total: usize) -> Self {
        let limiter = Arc::<ConnectionLimiter>::default();
        let counts: Vec<Arc<OpenConnections>> = (0..ENDPOINTS).map(|_| Arc::default()).collect();
        let worker = |_| {
            let link = WorkerLink::new(&limiter, WORKERS);
            let endpoints = counts.iter().map(|counts| EndpointLink::new(&link, counts)).collect();
            Worker { link, endpoints, busy: vec![], idle: vec![], closing: vec![], waiting: vec![] }
        };
        let workers = (0..WORKERS).map(worker).collect();
        let mut gateway = Self { max, total, counts, workers };
        gateway.set_bounds(max, total);
        gateway
    }

    fn set_bounds(&mut self, max: usize, total: usize) {
        (self.max, self.total) = (max, total);
        let bounds = ConnectionBounds { max: Some(max), max_total: Some(total), ..ConnectionBounds::default() };
        for worker in &self.workers {
            worker.link.set_bounds(&bounds, worker.endpoints.iter());
        }
    }

    fn run(&mut self, worker: usize, step: Step) {
        let Worker { busy, idle, closing, waiting, .. } = &mut self.workers[worker];
        match step {
            Step::Request(accepted, needs_new) => self.workers[worker].request(accepted, needs_new),
            Step::Finish(number) => idle.extend(take(busy, number)),
            Step::Break(number) => drop(take(busy, number)),
            Step::Closed(number) => drop(take(closing, number)),
            Step::Leave(number) => drop(take(waiting, number)),
            Step::Bounds(max, total) => self.set_bounds(max, total),
        }
        self.workers.iter_mut().for_each(Worker::upkeep);
    }

    fn open(&self) -> usize {
        (0..ENDPOINTS).map(|endpoint| self.counts[endpoint].count()).sum()
    }

    fn check(&self) {
        for (endpoint, counts) in self.counts.iter().enumerate() {
            let closing = self.workers.iter().flat_map(|worker| &worker.closing);
            let held: usize = self.workers.iter().map(|worker| worker.held(endpoint)).sum();
            assert_eq!(counts.count(), held + closing.filter(|(other, _)| *other == endpoint).count());
        }
        let is_settled = self.workers.iter().all(|worker| worker.closing.is_empty());
        // After bounds were changed, some workers may have more than they could borrow now.
        let is_over = self.borrowed(self.total, total_of) > self.total - share(self.total) * WORKERS
            || (0..ENDPOINTS).any(|endpoint| {
                self.borrowed(self.max, |worker| worker.held(endpoint)) > self.max - share(self.max) * WORKERS
            });
        if is_settled && !is_over {
            self.workers.iter().enumerate().for_each(|(index, worker)| self.check_queue(index, worker));
        }
    }

    /// Checks that no request waits for which there is room, or for which an idle connection were to be closed.
    fn check_queue(&self, index: usize, worker: &Worker) {
        let others = self.workers.iter().enumerate().filter(|(other, _)| *other != index);
        for (_, accepted, needs_new) in &worker.waiting {
            assert!(!self.allows(worker, accepted, None), "there is room, perhaps in the worker's share: {self:?}");
            for (endpoint, _) in &worker.idle {
                assert!(*needs_new || !accepted.contains(endpoint), "its own worker has one");
                assert!(!self.allows(worker, accepted, Some((worker, *endpoint))), "its own worker blocks it");
            }
            for (_, other) in others.clone() {
                for (endpoint, _) in &other.idle {
                    assert!(!self.allows(worker, accepted, Some((other, *endpoint))), "another worker blocks it");
                }
            }
        }
    }

    /// Returns whether a worker may open a connection, once another worker has closed one.
    fn allows(&self, worker: &Worker, accepted: &[usize], closed: Option<(&Worker, usize)>) -> bool {
        let total = self.allows_under(self.total, worker, closed.map(|(other, _)| other), total_of);
        let allows = |endpoint: &usize| {
            let closed = closed.filter(|(_, other)| other == endpoint).map(|(other, _)| other);
            self.allows_under(self.max, worker, closed, |worker| worker.held(*endpoint))
        };
        total && accepted.iter().any(allows)
    }

    fn allows_under(
        &self,
        max: usize,
        worker: &Worker,
        closed: Option<&Worker>,
        held: impl Fn(&Worker) -> usize,
    ) -> bool {
        let held = |of: &Worker| held(of) - usize::from(closed.is_some_and(|closed| std::ptr::eq(closed, of)));
        held(worker) < share(max) || self.borrowed(max, held) < max - share(max) * WORKERS
    }

    /// Connections beyond the shares of their workers.
    fn borrowed(&self, max: usize, held: impl Fn(&Worker) -> usize) -> usize {
        self.workers.iter().map(|worker| held(worker).saturating_sub(share(max))).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn bounds_hold_shares_are_guaranteed_and_no_request_waits_in_vain(
        (max, total) in (1_usize..12, 1_usize..20),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut gateway = Gateway::new(max, total);
        for (worker, step) in steps {
            let before: Vec<usize> = gateway.counts.iter().map(|counts| counts.count()).collect();
            gateway.run(worker, step);
            gateway.check();
            for (counts, before) in gateway.counts.iter().zip(&before) {
                prop_assert!(counts.count() <= gateway.max.max(*before));
            }
            prop_assert!(gateway.open() <= gateway.total.max(before.iter().sum()));
        }
        // All that is in use ends: every request is served, and nothing is beyond the bounds.
        for worker in (0..WORKERS).cycle().take(10_000) {
            gateway.run(worker, Step::Finish(0));
            gateway.run(worker, Step::Closed(0));
            gateway.check();
            if gateway.workers.iter().all(|worker| worker.busy.is_empty() && worker.closing.is_empty()) {
                break;
            }
        }
        prop_assert!(gateway.workers.iter().all(|worker| worker.busy.is_empty() && worker.waiting.is_empty()));
        prop_assert!(gateway.open() <= gateway.total);
        prop_assert!(gateway.counts.iter().all(|counts| counts.count() <= gateway.max));
    }
}
