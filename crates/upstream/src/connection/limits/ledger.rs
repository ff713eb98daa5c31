//! Counts of open connections and queue of waiting requests: the decisions of the limiter, without locks and sockets.
//!
//! - No more connections are open than the bounds allow, unless the bounds were lowered meanwhile.
//! - No request waits while there is room at an endpoint that it accepts.
//! - Room goes to the request that has waited longest among those that can use it.
//! - A connection that becomes idle goes to the request of its own worker that has waited longest. It is closed for a
//!   request of another worker when its own has none, or when the other one came earlier and has waited for
//!   [`Limits::patience`]: so no worker starves, and a saturated pool does not connect anew for each request.
//! - No more connections are being closed for waiting requests than there are such requests.
//! - After bounds were lowered, connections beyond them are closed when they are idle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::counts::OpenConnections;
use super::settings::ConnectionBounds;

/// Part of the longest wait after which a request of another worker comes before a later one of the same worker: often
/// enough that it is served in time, seldom enough that connections mostly stay where they are.
const PATIENCE_DIVISOR: u32 = 4;

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Bounds as the ledger uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// For each endpoint.
    max: usize,
    max_total: usize,
    max_waiting: usize,
    /// Time after which a request of another worker comes first.
    patience: Duration,
}

/// Counts and queue. `T` is what a waiting request is woken by.
#[derive(Debug)]
pub(super) struct Ledger<T> {
    limits: Limits,
    /// Connections that are open to all endpoints, those that left the configuration included.
    total: usize,
    /// Those among them that are being closed so that others can be opened.
    closing: usize,
    /// In the order of arrival.
    queue: VecDeque<Waiter<T>>,
    next_id: u64,
    /// Endpoints that had more connections than the bounds when these were lowered.
    over: Vec<Arc<OpenConnections>>,
}

/// Request that waits for a connection.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) id: u64,
    /// Worker that has the request.
    pub(super) worker: u64,
    pub(super) since: Instant,
    /// Endpoints that the request may go to, the preferred one first.
    pub(super) endpoints: Vec<Arc<OpenConnections>>,
    /// True if its worker has no connection to them that it could share (HTTP/2).
    pub(super) has_none: bool,
    /// True once it has waited for long, and no connection is being retired for it.
    is_urgent: bool,
    pub(super) wake: oneshot::Sender<T>,
}

/// Use of a connection that has become idle.
#[derive(Debug)]
pub(super) enum Offer<T> {
    /// Nothing waits for it.
    Keep,
    /// This request of the same worker takes it, to the endpoint at this place of its list.
    HandTo(Waiter<T>, usize),
    /// It is closed, and counted as [closing](Ledger::release) until then.
    Close,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        let limits = Limits::from(&ConnectionBounds::default());
        Self { limits, total: 0, closing: 0, queue: VecDeque::new(), next_id: 0, over: Vec::new() }
    }
}

impl From<&ConnectionBounds> for Limits {
    fn from(bounds: &ConnectionBounds) -> Self {
        Self {
            max: bounds.max.unwrap_or(usize::MAX),
            max_total: bounds.max_total.unwrap_or(usize::MAX),
            max_waiting: bounds.max_waiting,
            patience: bounds.max_wait / PATIENCE_DIVISOR,
        }
    }
}

impl<T> Waiter<T> {
    fn place_of(&self, endpoint: &Arc<OpenConnections>) -> Option<usize> {
        self.endpoints.iter().position(|accepted| Arc::ptr_eq(accepted, endpoint))
    }
}

impl<T> Ledger<T> {
    /// Takes other bounds. Returns whether they differ from those of before. `endpoints` are those of the configuration.
    pub(super) fn set_bounds<'a>(
        &mut self,
        bounds: &ConnectionBounds,
        endpoints: impl Iterator<Item = &'a Arc<OpenConnections>>,
    ) -> bool {
        let limits = Limits::from(bounds);
        let is_changed = std::mem::replace(&mut self.limits, limits) != limits;
        if is_changed {
            self.over = endpoints.filter(|endpoint| self.is_over(endpoint)).cloned().collect();
        }
        is_changed
    }

    /// Returns whether idle connections are to be offered: requests wait, or more connections are open than the bounds,
    /// which were lowered, allow.
    pub(super) fn needs_offers(&self) -> bool {
        !self.queue.is_empty() || !self.over.is_empty()
    }

    pub(super) fn patience(&self) -> Duration {
        self.limits.patience
    }

    pub(super) fn has_room(&self, endpoint: &OpenConnections) -> bool {
        self.total < self.limits.max_total && endpoint.count() < self.limits.max
    }

    /// Counts a connection, if there is room for it.
    pub(super) fn try_open(&mut self, endpoint: &OpenConnections) -> bool {
        let has_room = self.has_room(endpoint);
        if has_room {
            self.total += 1;
            endpoint.open();
        }
        has_room
    }

    /// Counts a connection as closed. `was_closing`: it was closed for a waiting request.
    pub(super) fn release(&mut self, endpoint: &OpenConnections, was_closing: bool) {
        endpoint.close(was_closing);
        self.total -= 1;
        self.closing -= usize::from(was_closing);
        let mut over = std::mem::take(&mut self.over);
        over.retain(|endpoint| self.is_over(endpoint));
        self.over = over;
    }

    /// Takes the request that has waited longest among those that there is room for, and counts a connection for it: to the
    /// endpoint at this place of its list.
    pub(super) fn next_grant(&mut self) -> Option<(Waiter<T>, usize)> {
        if self.total >= self.limits.max_total {
            return None;
        }
        let (index, place) = self.queue.iter().enumerate().find_map(|(index, waiter)| {
            let place = waiter.endpoints.iter().position(|endpoint| self.has_room(endpoint))?;
            Some((index, place))
        })?;
        let waiter = self.queue.remove(index)?;
        self.try_open(&waiter.endpoints[place]);
        Some((waiter, place))
    }

    /// Puts a request at the end of the queue. There must be no room for it.
    pub(super) fn enqueue(
        &mut self,
        worker: u64,
        endpoints: Vec<Arc<OpenConnections>>,
        has_none: bool,
        now: Instant,
    ) -> Result<(u64, oneshot::Receiver<T>), QueueFull> {
        if self.queue.len() >= self.limits.max_waiting {
            return Err(QueueFull);
        }
        let (id, (wake, woken)) = (self.next_id, oneshot::channel());
        self.next_id += 1;
        self.queue.push_back(Waiter { id, worker, since: now, endpoints, has_none, is_urgent: false, wake });
        Ok((id, woken))
    }

    /// Removes a request that no longer waits.
    pub(super) fn leave(&mut self, id: u64) {
        self.queue.retain(|waiter| waiter.id != id);
    }

    /// Notes that a request has waited for long.
    pub(super) fn urge(&mut self, id: u64) {
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.id == id) {
            waiter.is_urgent = true;
        }
    }

    /// Decides on a connection that has become idle, or is.
    pub(super) fn offer(&mut self, worker: u64, endpoint: &Arc<OpenConnections>, now: Instant) -> Offer<T> {
        let local = self.local(worker, endpoint);
        let helped = self.helped(worker, endpoint);
        let is_late = |index: usize| now - self.queue[index].since >= self.limits.patience;
        match (local, helped) {
            _ if self.is_over(endpoint) => self.begin_close(endpoint),
            (Some((local, _)), Some(helped)) if helped < local && is_late(helped) => self.begin_close(endpoint),
            (Some((local, place)), _) => {
                self.queue.remove(local).map_or(Offer::Keep, |waiter| Offer::HandTo(waiter, place))
            }
            (None, Some(_)) => self.begin_close(endpoint),
            (None, None) => Offer::Keep,
        }
    }

    /// Takes the request of a worker that has waited longest for an endpoint to which the worker has a free stream.
    pub(super) fn take_local(&mut self, worker: u64, endpoint: &Arc<OpenConnections>) -> Option<(Waiter<T>, usize)> {
        let (index, place) = self.local(worker, endpoint)?;
        self.queue.remove(index).map(|waiter| (waiter, place))
    }

    /// Returns whether a connection in use should take no more requests, because one of another worker, which has none of
    /// its own to share, has waited for long. True once for each such request.
    pub(super) fn take_urgent(&mut self, worker: u64, endpoint: &Arc<OpenConnections>) -> bool {
        let urgent = (0..self.queue.len()).find(|index| {
            let waiter = &self.queue[*index];
            waiter.is_urgent && waiter.has_none && waiter.worker != worker && self.is_helped(waiter, endpoint)
        });
        urgent.is_some_and(|index| std::mem::take(&mut self.queue[index].is_urgent))
    }

    /// The first request of a worker that accepts an endpoint, with the place of this endpoint in its list.
    fn local(&self, worker: u64, endpoint: &Arc<OpenConnections>) -> Option<(usize, usize)> {
        let waiters = self.queue.iter().enumerate().filter(|(_, waiter)| waiter.worker == worker);
        waiters.into_iter().find_map(|(index, waiter)| Some((index, waiter.place_of(endpoint)?)))
    }

    /// The first request that could connect if a connection to this endpoint were closed, and cannot take it as it is.
    /// None while enough connections are being closed.
    fn helped(&self, worker: u64, endpoint: &Arc<OpenConnections>) -> Option<usize> {
        let is_enough = self.closing >= self.queue.len();
        let helped = self.queue.iter().position(|waiter| {
            let is_local = waiter.worker == worker && waiter.place_of(endpoint).is_some();
            !is_local && self.is_helped(waiter, endpoint)
        });
        helped.filter(|_| !is_enough)
    }

    fn is_helped(&self, waiter: &Waiter<T>, closed: &Arc<OpenConnections>) -> bool {
        let fits = |endpoint: &Arc<OpenConnections>| {
            endpoint.count().saturating_sub(usize::from(Arc::ptr_eq(endpoint, closed))) < self.limits.max
        };
        self.total <= self.limits.max_total && waiter.endpoints.iter().any(fits)
    }

    /// Returns whether more connections are open than the bounds, which were lowered, allow.
    fn is_over(&self, endpoint: &OpenConnections) -> bool {
        self.total - self.closing > self.limits.max_total || endpoint.count() - endpoint.closing() > self.limits.max
    }

    fn begin_close(&mut self, endpoint: &OpenConnections) -> Offer<T> {
        self.closing += 1;
        endpoint.begin_close();
        Offer::Close
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORKERS: u64 = 3;

    /// Gateway as the ledger sees it: connections of workers, in use or idle.
    #[derive(Default)]
    struct Model {
        ledger: Ledger<()>,
        endpoints: [Arc<OpenConnections>; 3],
        /// Endpoint and worker of each.
        busy: Vec<(usize, u64)>,
        idle: Vec<(usize, u64)>,
        closing: Vec<usize>,
        /// Number and worker of each request that waits, in the order of arrival, with the endpoints that it accepts.
        waiting: Vec<(u64, u64, Vec<usize>)>,
        now: Option<Instant>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A request of a worker comes, which may go to these endpoints.
        Request(u64, Vec<usize>),
        /// A connection in use becomes idle.
        Finish(usize),
        /// A connection in use breaks.
        Break(usize),
        /// A connection that is being closed is closed.
        Closed(usize),
        /// A request that waits leaves.
        Leave(usize),
        /// Time passes.
        Pass,
        /// The bounds are changed.
        Bounds(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let endpoints = proptest::sample::subsequence(vec![0, 1, 2], 1..=3);
        prop_oneof![
            4 => (0..WORKERS, endpoints).prop_map(|(worker, accepted)| Step::Request(worker, accepted)),
            4 => (0_usize..64).prop_map(Step::Finish),
            1 => (0_usize..64).prop_map(Step::Break),
            3 => (0_usize..64).prop_map(Step::Closed),
            1 => (0_usize..64).prop_map(Step::Leave),
            1 => Just(Step::Pass),
            1 => (1_usize..4, 1_usize..6).prop_map(|(max, total)| Step::Bounds(max, total)),
        ]
    }

    fn take<T>(list: &mut Vec<T>, number: usize) -> Option<T> {
        (!list.is_empty()).then(|| list.remove(number % list.len()))
    }

    impl Model {
        fn now(&self) -> Instant {
            self.now.expect("it was set")
        }

        fn run(&mut self, step: Step) {
            match step {
                Step::Request(worker, accepted) => self.request(worker, accepted),
                Step::Finish(number) => {
                    if let Some((endpoint, worker)) = take(&mut self.busy, number) {
                        self.idle.push((endpoint, worker));
                    }
                }
                Step::Break(number) => {
                    if let Some((endpoint, _)) = take(&mut self.busy, number) {
                        self.ledger.release(&self.endpoints[endpoint], false);
                    }
                }
                Step::Closed(number) => {
                    if let Some(endpoint) = take(&mut self.closing, number) {
                        self.ledger.release(&self.endpoints[endpoint], true);
                    }
                }
                Step::Leave(number) => {
                    if let Some((id, ..)) = take(&mut self.waiting, number) {
                        self.ledger.leave(id);
                    }
                }
                Step::Pass => self.now = Some(self.now() + Duration::from_secs(1)),
                Step::Bounds(max, total) => self.set_bounds(max, total),
            }
            self.grant();
            self.offer_idle();
        }

        fn set_bounds(&mut self, max: usize, total: usize) {
            let bounds = ConnectionBounds { max: Some(max), max_total: Some(total), ..ConnectionBounds::default() };
            self.ledger.set_bounds(&bounds, self.endpoints.iter());
        }

        fn request(&mut self, worker: u64, accepted: Vec<usize>) {
            let idle = self.idle.iter().position(|(endpoint, owner)| *owner == worker && accepted.contains(endpoint));
            if let Some(index) = idle {
                self.busy.push(self.idle.remove(index));
                return;
            }
            if let Some(&endpoint) = accepted.iter().find(|endpoint| self.ledger.try_open(&self.endpoints[**endpoint]))
            {
                self.busy.push((endpoint, worker));
                return;
            }
            let endpoints = accepted.iter().map(|endpoint| Arc::clone(&self.endpoints[*endpoint])).collect();
            let (id, _) = self.ledger.enqueue(worker, endpoints, false, self.now()).unwrap();
            self.waiting.push((id, worker, accepted));
        }

        /// Gives room to the requests that wait, as the limiter does.
        fn grant(&mut self) {
            while let Some((waiter, place)) = self.ledger.next_grant() {
                let accepted = self.serve(&waiter);
                let earlier = self.waiting.iter().take_while(|(id, ..)| *id < waiter.id);
                for (_, _, others) in earlier {
                    assert!(!others.contains(&accepted[place]), "an earlier request accepts the endpoint as well");
                }
                self.busy.push((accepted[place], waiter.worker));
            }
        }

        /// Offers all idle connections, as the workers do when they are woken, and when one becomes idle.
        fn offer_idle(&mut self) {
            let mut kept = Vec::new();
            while let Some((endpoint, worker)) = self.idle.pop() {
                let may_close =
                    self.closing.len() < self.waiting.len() || self.ledger.is_over(&self.endpoints[endpoint]);
                match self.ledger.offer(worker, &self.endpoints[endpoint], self.now()) {
                    Offer::Keep => kept.push((endpoint, worker)),
                    Offer::Close => {
                        assert!(may_close, "more connections are closed than requests wait");
                        self.closing.push(endpoint);
                    }
                    Offer::HandTo(waiter, place) => {
                        assert_eq!(waiter.worker, worker);
                        assert_eq!(self.serve(&waiter)[place], endpoint);
                        self.busy.push((endpoint, worker));
                    }
                }
            }
            self.idle = kept;
        }

        fn serve(&mut self, waiter: &Waiter<()>) -> Vec<usize> {
            let index = self.waiting.iter().position(|(id, ..)| *id == waiter.id).expect("it waits");
            self.waiting.remove(index).2
        }

        fn count(&self, endpoint: usize) -> usize {
            let count = |list: &[(usize, u64)]| list.iter().filter(|(other, _)| *other == endpoint).count();
            count(&self.busy) + count(&self.idle) + self.closing.iter().filter(|other| **other == endpoint).count()
        }

        fn check(&self) {
            for endpoint in 0..3 {
                assert_eq!(self.endpoints[endpoint].count(), self.count(endpoint));
            }
            assert_eq!(self.ledger.total, self.busy.len() + self.idle.len() + self.closing.len());
            assert_eq!(self.ledger.closing, self.closing.len());
            for (_, _, accepted) in &self.waiting {
                assert!(accepted.iter().all(|index| !self.ledger.has_room(&self.endpoints[*index])), "there is room");
            }
            self.check_progress();
        }

        /// When nothing is being closed, no idle connection could help a request that waits.
        fn check_progress(&self) {
            if !self.closing.is_empty() {
                return;
            }
            for (_, worker, accepted) in &self.waiting {
                for (endpoint, owner) in &self.idle {
                    assert!(owner != worker || !accepted.contains(endpoint), "its own worker has one");
                    let limits = self.ledger.limits;
                    let fits = |other: &usize| self.count(*other) - usize::from(other == endpoint) < limits.max;
                    let helps = self.ledger.total <= limits.max_total && accepted.iter().any(fits);
                    assert!(!helps, "an idle connection blocks a request");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn ledger_keeps_its_bounds_and_lets_no_request_wait_in_vain(
            max in 1_usize..4,
            total in 1_usize..6,
            steps in proptest::collection::vec(step(), 1..80),
        ) {
            let mut model = Model { now: Some(Instant::now()), ..Model::default() };
            model.set_bounds(max, total);
            let (mut max, mut total) = (max, total);
            for step in steps {
                let before: Vec<usize> = (0..3).map(|endpoint| model.count(endpoint)).collect();
                if let Step::Bounds(new_max, new_total) = step {
                    (max, total) = (new_max, new_total);
                }
                model.run(step);
                model.check();
                for (endpoint, before) in before.iter().enumerate() {
                    prop_assert!(model.count(endpoint) <= max.max(*before));
                }
                prop_assert!(model.ledger.total <= total.max(before.iter().sum()));
            }
            // All that is in use ends: every request is served, and nothing is beyond the bounds.
            while !model.busy.is_empty() || !model.closing.is_empty() {
                model.run(if model.closing.is_empty() { Step::Finish(0) } else { Step::Closed(0) });
                model.check();
            }
            prop_assert!(model.waiting.is_empty());
            prop_assert!(model.ledger.total <= total && (0..3).all(|endpoint| model.count(endpoint) <= max));
        }
    }

    #[test]
    fn connection_stays_with_its_worker_until_another_has_waited_for_long() {
        let mut ledger = Ledger::<()>::default();
        let (endpoint, now) = (Arc::<OpenConnections>::default(), Instant::now());
        ledger
            .set_bounds(&ConnectionBounds { max: Some(1), ..ConnectionBounds::default() }, std::iter::once(&endpoint));
        assert!(ledger.try_open(&endpoint) && !ledger.try_open(&endpoint));
        let mut enqueue = |worker| ledger.enqueue(worker, vec![Arc::clone(&endpoint)], false, now).unwrap().0;
        let (_foreign, first, second) = (enqueue(1), enqueue(0), enqueue(0));
        let handed = |offer| if let Offer::HandTo(waiter, 0) = offer { waiter.id } else { panic!("not handed over") };
        assert_eq!(handed(ledger.offer(0, &endpoint, now)), first);
        let late = now + ledger.patience();
        assert!(matches!(ledger.offer(0, &endpoint, late), Offer::Close));
        assert_eq!(handed(ledger.offer(0, &endpoint, late - Duration::from_nanos(1))), second);
        assert!(matches!(ledger.offer(0, &endpoint, late), Offer::Keep), "one is being closed already");
    }

    #[test]
    fn earlier_request_of_the_own_worker_has_the_connection() {
        let (mut ledger, endpoint, now) = single();
        assert!(ledger.try_open(&endpoint));
        let mut enqueue = |worker| ledger.enqueue(worker, vec![Arc::clone(&endpoint)], false, now).unwrap().0;
        let (first, _foreign) = (enqueue(0), enqueue(1));
        let late = now + ledger.patience();
        assert!(matches!(ledger.offer(0, &endpoint, late), Offer::HandTo(waiter, 0) if waiter.id == first));
    }

    #[test]
    fn idle_connections_are_offered_while_there_are_more_than_the_bounds_allow() {
        let (mut ledger, endpoint, _) = single();
        ledger.set_bounds(&bounds(2), std::iter::once(&endpoint));
        assert!(ledger.try_open(&endpoint) && ledger.try_open(&endpoint) && !ledger.needs_offers());
        ledger.set_bounds(&bounds(1), std::iter::once(&endpoint));
        assert!(ledger.needs_offers());
        ledger.release(&endpoint, false);
        assert!(!ledger.needs_offers());
    }

    /// Of two requests that wait, the second has waited for long.
    #[test]
    fn connection_is_retired_only_for_a_request_that_it_helps() {
        let (mut ledger, endpoint, now) = single();
        let other = Arc::<OpenConnections>::default();
        assert!(ledger.try_open(&endpoint) && ledger.try_open(&other));
        let mut enqueue = |accepted, has_none| ledger.enqueue(1, vec![Arc::clone(accepted)], has_none, now).unwrap().0;
        let (_recent, shared, elsewhere) = (enqueue(&endpoint, true), enqueue(&endpoint, false), enqueue(&other, true));
        let urgent = enqueue(&endpoint, true);
        ledger.urge(shared);
        assert!(!ledger.take_urgent(0, &endpoint), "its worker has a connection that it shares");
        ledger.urge(elsewhere);
        assert!(!ledger.take_urgent(0, &endpoint), "it waits for another endpoint");
        ledger.urge(urgent);
        assert!(ledger.take_urgent(0, &endpoint), "one before it has not waited for long");
    }

    fn bounds(max: usize) -> ConnectionBounds {
        ConnectionBounds { max: Some(max), ..ConnectionBounds::default() }
    }

    /// Ledger with one connection to each endpoint at most, an endpoint, and the time.
    fn single() -> (Ledger<()>, Arc<OpenConnections>, Instant) {
        let (mut ledger, endpoint) = (Ledger::default(), Arc::<OpenConnections>::default());
        ledger.set_bounds(&bounds(1), std::iter::once(&endpoint));
        (ledger, endpoint, Instant::now())
    }

    #[test]
    fn queue_is_bounded_and_a_request_that_leaves_makes_room() {
        let mut ledger = Ledger::<()>::default();
        let endpoint = Arc::<OpenConnections>::default();
        ledger.set_bounds(&ConnectionBounds { max_waiting: 1, ..ConnectionBounds::default() }, std::iter::empty());
        let enqueue = |ledger: &mut Ledger<()>| {
            ledger.enqueue(0, vec![Arc::clone(&endpoint)], false, Instant::now()).map(|(id, _)| id)
        };
        let id = enqueue(&mut ledger).unwrap();
        assert_eq!(enqueue(&mut ledger), Err(QueueFull));
        ledger.leave(id);
        assert!(enqueue(&mut ledger).is_ok());
    }

    #[test]
    fn busy_connection_is_retired_once_for_each_request_that_has_waited_for_long() {
        let mut ledger = Ledger::<()>::default();
        let endpoint = Arc::<OpenConnections>::default();
        ledger.set_bounds(&ConnectionBounds { max: Some(1), ..ConnectionBounds::default() }, std::iter::empty());
        assert!(ledger.try_open(&endpoint));
        let (id, _woken) = ledger.enqueue(1, vec![Arc::clone(&endpoint)], true, Instant::now()).unwrap();
        assert!(!ledger.take_urgent(0, &endpoint), "it has not waited for long");
        ledger.urge(id);
        assert!(!ledger.take_urgent(1, &endpoint), "its own worker has a connection");
        assert!(ledger.take_urgent(0, &endpoint));
        assert!(!ledger.take_urgent(2, &endpoint), "one connection is retired");
    }
}
