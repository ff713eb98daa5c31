//! Pool of one worker's connections to one upstream: sends a request to the best endpoint and, when that is safe, again.
//!
//! The attempts of one request:
//!
//! | the attempt ended with | then |
//! |---|---|
//! | a response head | the response is returned |
//! | no connection to the endpoint | the next endpoint is tried: nothing was sent |
//! | no room for a connection | the request waits, or is refused: see [`super::reservation`] |
//! | a pooled connection that was closed before anything was written | the next pooled connection, or a new one, is tried |
//! | a pooled connection that died before the first byte of the response | an idempotent request without a body is sent again, once, on a new connection |
//! | REFUSED_STREAM (HTTP/2) | the request is sent again, once: see [`super::http2_send`] |
//! | anything else | the error is returned: the upstream may have begun to process the request |

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::Either;
use http::header::HOST;
use http::{Request, Response};
use hyper::body::Incoming;

use super::attempt::Deadlines;
use super::endpoint::{EndpointState, Endpoints, InFlight};
use super::endpoint_connections::Connections;
use super::error::{SendError, TimeoutKind};
use super::failure::Failure;
use super::head_scan::MAX_FIELDS;
use super::http2_connections::Http2Connections;
use super::idle::IdleConnections;
use super::lifetime::Lifetimes;
use super::limits::{ConnectionBounds, WorkerLink};
use super::record;
use super::replay_body::OutgoingBody;
use super::response::UpstreamResponse;
use super::response_body::{Carrier, ConnectionGuard};
use super::selection::Balancer;
use super::settings::{Protocol, Settings, Timeouts};
use super::upkeep::Upkeep;
use crate::abort_on_drop::AbortOnDrop;
use crate::request_body::{RequestBody, UploadProgress};

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
}

/// Options of one exchange.
pub(super) struct SendOptions {
    /// Progress of the request's body: while it advances, the upstream is not late with its response.
    pub(super) upload: UploadProgress,
    /// For an exchange without a time limit as a whole: the time in which something must come.
    pub(super) long_lived: Option<Duration>,
    /// Time that the request has waited for a connection: it counts as time of connecting.
    pub(super) waited: Cell<Duration>,
}

/// Request that is addressed to an endpoint, and of which nothing was sent.
pub(super) struct AddressedRequest {
    pub(super) request: Box<Request<OutgoingBody>>,
    /// Counts the request at its endpoint.
    pub(super) in_flight: InFlight,
    pub(super) deadlines: Deadlines,
}

/// Request that could not be sent to an endpoint: nothing of it was sent, and it may be sent to another one.
pub(super) struct Unsent {
    pub(super) request: Box<Request<OutgoingBody>>,
    /// True if connecting timed out; otherwise it failed at once.
    pub(super) timed_out: bool,
    /// True if there was no room for a connection: the endpoint was not tried.
    pub(super) is_full: bool,
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
        let ours = &self.0.endpoints.list;
        // A connection of one protocol is of no use to requests that wait for one of the other.
        let is_same = self.0.protocol == settings.protocol;
        for (endpoint, connections) in ours.iter().zip(&*self.0.connections) {
            if !is_same || !endpoints.list.iter().any(|stays| Arc::ptr_eq(stays, endpoint)) {
                connections.close();
            }
        }
        let link = if is_same { Rc::clone(&self.0.link) } else { self.0.link.renew() };
        Self::build(endpoints, settings, link, |endpoint| {
            let index = ours.iter().position(|ours| Arc::ptr_eq(ours, endpoint))?;
            is_same.then(|| self.0.connections[index].clone())
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
        let Settings { protocol, timeouts, lifetimes, connections: bounds, .. } = *settings;
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

    /// Sends a request and waits for the head of the response. `long_lived` is for an exchange without a time limit as a
    /// whole: the time in which something must come.
    ///
    /// A request for which there is a pooled connection is on its way when this returns, and its future is small. All
    /// that is rare is boxed behind it: connecting, and sending again. `now` is the time of the call.
    ///
    /// # Errors
    /// [`SendError`] when there is no response head.
    pub fn send(
        &self,
        request: Request<RequestBody>,
        long_lived: Option<Duration>,
        now: Instant,
    ) -> impl Future<Output = Result<UpstreamResponse, SendError>> {
        let options = SendOptions { upload: request.body().upload(), long_lived, waited: Cell::default() };
        let request = Box::new(request.map(OutgoingBody::new));
        let endpoint = self.0.endpoints.choose(&self.0.balancer, request.headers(), &[]).expect("there is an endpoint");
        match self.send_pooled(self.address(request, endpoint, &options, now.into())) {
            Ok(pooled) => Either::Left(self.receive_pooled(pooled, options)),
            Err(unsent) => Either::Right(Box::pin(self.send_anew(unsent, options))),
        }
    }

    /// Addresses a request to an endpoint, at which it counts as in flight from now on.
    pub(super) fn address(
        &self,
        mut request: Box<Request<OutgoingBody>>,
        endpoint: usize,
        options: &SendOptions,
        now: tokio::time::Instant,
    ) -> AddressedRequest {
        let in_flight = self.0.endpoints.enter(endpoint);
        request.headers_mut().insert(HOST, in_flight.endpoint().host.clone());
        AddressedRequest { request, in_flight, deadlines: Deadlines::new(&self.0.timeouts, options.long_lived, now) }
    }

    /// Sends a request to its endpoint, or, while nothing was sent, to the others.
    pub(super) async fn send_anew(
        &self,
        mut addressed: AddressedRequest,
        options: SendOptions,
    ) -> Result<UpstreamResponse, SendError> {
        let (mut tried, mut timed_out, mut may_share) = (Vec::new(), true, true);
        loop {
            let reserved;
            (addressed, reserved) = self.reserve(addressed, &tried, &options, may_share).await?;
            let endpoint = addressed.in_flight.index();
            let sent = match self.0.protocol {
                Protocol::Http1 => self.send_http1(addressed, reserved, &options).await,
                Protocol::Http2 => self.send_http2(addressed, reserved, &options).await,
            };
            let request = match sent {
                Ok(sent) => return sent,
                // The connection that was there for it is gone, or taken: now it gets one of its own.
                Err(Unsent { request, is_full: true, .. }) => {
                    may_share = false;
                    addressed = self.address(request, endpoint, &options, Instant::now().into());
                    continue;
                }
                Err(unsent) => {
                    tried.push(endpoint);
                    timed_out = timed_out && unsent.timed_out;
                    unsent.request
                }
            };
            let Some(endpoint) = self.0.endpoints.choose(&self.0.balancer, request.headers(), &tried) else { break };
            addressed = self.address(request, endpoint, &options, tokio::time::Instant::now());
        }
        // An endpoint that refuses connections is known to be down; one that does not answer may only be slow.
        Err(if timed_out { SendError::TimedOut(TimeoutKind::Connection) } else { SendError::Unavailable })
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

/// Counts a failed exchange, or makes a response of the answer. The response counts itself when its head is accepted.
pub(super) fn finish(
    answered: Result<(Carrier, Response<Incoming>), SendError>,
    in_flight: InFlight,
    deadlines: Deadlines,
) -> Result<UpstreamResponse, SendError> {
    let answered = answered.and_then(|(carrier, response)| match response.headers().len() {
        // On HTTP/1 the library has this limit itself, on HTTP/2 none.
        fields if fields > MAX_FIELDS => Err(SendError::TooManyFields),
        _ => Ok((carrier, response)),
    });
    match answered {
        Ok((carrier, response)) => {
            let failure = Failure::of_head(&response);
            record::record_head(&in_flight, failure, deadlines.request_end);
            let guard = ConnectionGuard::new(carrier, in_flight, response.version(), failure.is_some());
            Ok(UpstreamResponse::new(response, guard, deadlines))
        }
        Err(error) => {
            record::record_error(&in_flight, &error, deadlines.request_end);
            Err(error)
        }
    }
}
