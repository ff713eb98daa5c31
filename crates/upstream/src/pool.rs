//! Pool of one worker's connections to one upstream: sends a request to the best endpoint and, when that is safe, again.
//!
//! The tries of one request:
//!
//! | the try ended with | then |
//! |---|---|
//! | a response head | the response is returned |
//! | no connection to the endpoint | the next endpoint is tried: nothing was sent |
//! | no room for a connection | the request waits, or is refused: see [`super::connection::reservation`] |
//! | a pooled connection that was closed before anything was written | the next pooled connection, or a new one, is tried |
//! | a failure, or a status, after which a request may be sent again | it is, within a budget: see [`super::exchange::retry`] |
//! | anything else | the error is returned: the upstream may have begun to process the request |

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{Either, ready};
use http::Request;
use http::header::HOST;
use http_body::Body as _;

use super::connection::connect_budget::ConnectBudget;
use super::connection::endpoint_connections::Connections;
use super::connection::http2_connections::Http2Connections;
use super::connection::idle::IdleConnections;
use super::connection::lifetime::Lifetimes;
use super::connection::limits::{ConnectionBounds, WorkerLink};
use super::connection::upkeep::Upkeep;
use super::endpoint::circuit::RequestPermit;
use super::endpoint::endpoints::{EndpointState, Endpoints, InFlight};
use super::endpoint::retry_budget::Deposits;
use super::endpoint::selection::Balancer;
use super::error::SendError;
use super::exchange::attempt::Deadlines;
use super::exchange::replay_body::OutgoingBody;
use super::exchange::response::UpstreamResponse;
use super::exchange::retry::{RetrySettings, Tries};
use super::exchange::send_options::{SendOptions, SendTerms};
use super::settings::{Protocol, Settings, Timeouts};
use platform::abort_on_drop::AbortOnDrop;
use platform::request_body::RequestBody;

/// One worker's connections to the endpoints of one upstream. Clones share them.
#[derive(Clone)]
pub struct Pool(Rc<PoolState>);

struct PoolState {
    /// One count for each request in flight, not one for each part.
    endpoints: Arc<Endpoints>,
    /// Connections in the order of the endpoints.
    connections: Rc<[Connections]>,
    protocol: Protocol,
    balancer: Balancer,
    timeouts: Timeouts,
    lifetimes: Lifetimes,
    bounds: ConnectionBounds,
    link: Rc<WorkerLink>,
    /// Task of the upkeep; none once another pool has taken over.
    upkeep: RefCell<Option<AbortOnDrop<()>>>,
    retries: RetrySettings,
    /// Requests of this worker that count for the budget of retries.
    deposits: Deposits,
}

/// Request that is addressed to an endpoint, and of which nothing was sent.
pub(super) struct AddressedRequest {
    pub(super) request: Box<Request<OutgoingBody>>,
    /// Counts the request at its endpoint.
    pub(super) in_flight: InFlight,
    pub(super) deadlines: Deadlines,
}

impl Pool {
    /// Pool without open connections, of one of so many workers. To be called on its thread: it starts a task.
    pub fn new(endpoints: Endpoints, settings: &Settings, workers: usize) -> Self {
        let link = WorkerLink::new(&endpoints.limiter, workers);
        Self::build(endpoints, settings, link, |_| None)
    }

    /// Pool over other endpoints, which shares the connections to those that are in both. Idle connections to the others
    /// close now, those in use after their last requests.
    #[must_use]
    pub fn changed(&self, endpoints: Endpoints, settings: &Settings) -> Self {
        if self.0.endpoints.is_same(&endpoints) {
            return self.clone();
        }
        // The new pool looks after the connections from now on.
        drop(self.0.upkeep.take());
        let staying: HashSet<_> = endpoints.list.iter().map(Arc::as_ptr).collect();
        let ours: HashMap<_, usize> = self.0.endpoints.list.iter().map(Arc::as_ptr).zip(0..).collect();
        // Requests that wait for a connection of one protocol cannot use one of the other.
        let is_same = self.0.protocol == settings.protocol;
        for (endpoint, connections) in self.0.endpoints.list.iter().zip(&*self.0.connections) {
            if !is_same || !staying.contains(&Arc::as_ptr(endpoint)) {
                connections.close();
            }
        }
        let link = if is_same { Rc::clone(&self.0.link) } else { self.0.link.renew() };
        Self::build(endpoints, settings, link, |endpoint| {
            let index = ours.get(&Arc::as_ptr(endpoint))?;
            is_same.then(|| self.0.connections[*index].clone())
        })
    }

    fn build(
        endpoints: Endpoints,
        settings: &Settings,
        link: Rc<WorkerLink>,
        existing: impl Fn(&Arc<EndpointState>) -> Option<Connections>,
    ) -> Self {
        let connections = |endpoint| existing(endpoint).unwrap_or_else(|| Connections::new(&link, endpoint));
        let connections: Rc<[Connections]> = endpoints.list.iter().map(connections).collect();
        let Settings { protocol, timeouts, lifetimes, retries, connections: bounds, .. } = *settings;
        link.limiter().set_bounds(&bounds, endpoints.list.iter().map(|endpoint| &endpoint.connections));
        let endpoints = Arc::new(endpoints);
        let upkeep = Upkeep {
            endpoints: Arc::clone(&endpoints),
            connections: Rc::clone(&connections),
            link: Rc::clone(&link),
            connect_timeout: timeouts.connect,
            protocol,
            lifetimes,
            min_idle: bounds.min_idle,
        };
        Self(Rc::new(PoolState {
            endpoints,
            connections,
            protocol,
            balancer: Balancer::default(),
            timeouts,
            lifetimes,
            bounds,
            link,
            upkeep: RefCell::new(Some(upkeep.start())),
            retries,
            deposits: Deposits::default(),
        }))
    }

    /// Name of the upstream.
    pub fn upstream(&self) -> &str {
        self.0.endpoints.name()
    }

    /// Ends the pool of an upstream that is removed: idle connections close now, those in use after their last requests.
    pub fn close(&self) {
        drop(self.0.upkeep.take());
        self.0.connections.iter().for_each(Connections::close);
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// A request for which there is a pooled connection is on its way when this returns, and its future is small. All
    /// that is rare is boxed behind it: connecting, and sending again. `now` is the time of the call.
    ///
    /// # Errors
    /// [`SendError`] when there is no response head.
    pub fn send(
        &self,
        request: Request<RequestBody>,
        terms: SendTerms,
        now: Instant,
    ) -> impl Future<Output = Result<UpstreamResponse, SendError>> {
        let endpoints = &self.0.endpoints;
        let Ok(permit) = endpoints.circuit.acquire() else {
            endpoints.metrics.requests_refused.inc();
            return Either::Right(ready(Err(SendError::Full)).boxed_local());
        };
        self.0.deposits.count_request(&endpoints.retry_budget, self.0.retries.budget);
        let SendTerms { long_lived, is_idempotent, trace } = terms;
        let mut tries = Tries::new(self.is_repeatable(&request, is_idempotent));
        let endpoint = endpoints.choose(&self.0.balancer, request.headers(), &mut tries).expect("there is an endpoint");
        let (upload, connecting) = (request.body().upload(), ConnectBudget::default());
        let options = SendOptions { upload, long_lived, connecting, tries, trace };
        let mut request = request.map(OutgoingBody::new);
        let deadlines = self.limit_try(Deadlines::new(&self.0.timeouts, long_lived, now.into()), &options);
        let in_flight = self.enter(&mut request, endpoint, permit, &options);
        match self.pop_idle(endpoint, deadlines.sent) {
            Some(connection) => {
                let pooled = self.send_over(connection, request, in_flight, deadlines, &options);
                Either::Left(self.receive_pooled(pooled, options))
            }
            None => {
                let addressed = AddressedRequest { request: Box::new(request), in_flight, deadlines };
                Either::Right(self.send_anew(addressed, options).boxed_local())
            }
        }
    }

    /// Returns whether a request may be executed twice, and can be kept.
    fn is_repeatable(&self, request: &Request<RequestBody>, is_idempotent: bool) -> bool {
        let retries = &self.0.retries;
        retries.is_on()
            && (is_idempotent || request.method().is_idempotent())
            && request.body().size_hint().lower() <= retries.max_body as u64
    }

    /// Addresses a request to an endpoint, at which it counts as in flight from now on.
    pub(super) fn address(
        &self,
        mut request: Box<Request<OutgoingBody>>,
        endpoint: usize,
        permit: Option<RequestPermit>,
        deadlines: Deadlines,
        options: &SendOptions,
    ) -> AddressedRequest {
        let in_flight = self.enter(&mut request, endpoint, permit, options);
        AddressedRequest { request, in_flight, deadlines }
    }

    /// Counts a request at an endpoint, and sets its `Host`, and the `traceparent` of its try.
    fn enter(
        &self,
        request: &mut Request<OutgoingBody>,
        endpoint: usize,
        permit: Option<RequestPermit>,
        options: &SendOptions,
    ) -> InFlight {
        let mut in_flight = self.0.endpoints.enter(endpoint, permit);
        in_flight.observe(request.method());
        let host = &in_flight.endpoint().host;
        request.headers_mut().insert(HOST, host.clone());
        if let Some(trace) = &options.trace {
            trace.begin_try(request.headers_mut(), host, self.0.protocol.version());
        }
        in_flight
    }

    /// Addresses a request of which nothing was sent to another endpoint. Its time for the response begins now.
    pub(super) fn readdress(
        &self,
        unsent: AddressedRequest,
        endpoint: usize,
        options: &SendOptions,
    ) -> AddressedRequest {
        let AddressedRequest { request, mut in_flight, deadlines } = unsent;
        let permit = in_flight.take_permit();
        self.address(request, endpoint, permit, deadlines.sent_now(), options)
    }

    /// Takes one retry from the budget; false when there is none.
    pub(super) fn withdraw_retry(&self) -> bool {
        self.0.deposits.withdraw(&self.0.endpoints.retry_budget, self.0.retries.budget)
    }

    /// Bytes of a body that are kept for a retry; none when the request is not sent again.
    pub(super) fn kept_bytes(&self, options: &SendOptions) -> Option<usize> {
        options.tries.is_repeatable.then_some(self.0.retries.max_body)
    }

    pub(super) fn retries(&self) -> &RetrySettings {
        &self.0.retries
    }

    pub(super) fn protocol(&self) -> Protocol {
        self.0.protocol
    }

    pub(super) fn idle_connections(&self, endpoint: usize) -> &Rc<RefCell<IdleConnections>> {
        &self.0.connections[endpoint].idle
    }

    pub(super) fn endpoints(&self) -> &Arc<Endpoints> {
        &self.0.endpoints
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.0.balancer
    }

    pub(super) fn bounds(&self) -> &ConnectionBounds {
        &self.0.bounds
    }

    pub(super) fn link(&self) -> &Rc<WorkerLink> {
        &self.0.link
    }

    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    pub(super) fn lifetimes(&self) -> &Lifetimes {
        &self.0.lifetimes
    }

    pub(super) fn http2_connections(&self, endpoint: usize) -> &Http2Connections {
        &self.0.connections[endpoint].http2
    }
}
