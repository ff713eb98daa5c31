//! One worker's connections to the endpoints.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::response::Parts;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::attempt::{Attempt, Deadlines, exchange};
use super::endpoint::{self, Endpoints, InFlight};
use super::error::{SendError, TimeoutKind};
use super::head_scan::HeadScanError;
use super::http1_connection::{Connection, connect};
use super::http2_connections::Http2Connections;
use super::idle::IdleConnections;
use super::replay_body::{self, OutgoingBody};
use super::response_body::{Carrier, ConnectionGuard, ResponseBody};
use super::settings::{Protocol, Settings, Timeouts};

use crate::request_body::RequestBody;

/// Fields of a response's head. On HTTP/1 the library has the same bound, on HTTP/2 none.
const MAX_FIELDS: usize = 100;

/// One worker's connections; clones share them.
pub struct Pool(Rc<PoolState>);

/// What the pool's clones and its leases share.
pub(super) struct PoolState {
    endpoints: Endpoints,
    /// IdleConnections connections by endpoint.
    idle: Vec<Rc<RefCell<IdleConnections>>>,
    /// HTTP/2 connections by endpoint.
    multiplexed: Vec<Rc<Http2Connections>>,
    protocol: Protocol,
    /// Where the search among equally busy endpoints begins: moves on with every request.
    start: Cell<usize>,
    timeouts: Timeouts,
}

/// The connections to one endpoint, of either protocol; shared by the pools before and after a change.
type Connections = (Rc<RefCell<IdleConnections>>, Rc<Http2Connections>);

/// Looks at a response's head.
pub type Inspect<'a> = dyn Fn(&mut Parts) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + 'a;

/// What the caller knows of an exchange, and has to say in it.
pub struct SendOptions<'a> {
    /// How many bytes of the request's body have gone so far: while they go, the upstream is not late.
    pub uploaded: &'a dyn Fn() -> u64,
    /// Makes the head that goes downstream of the upstream's, or says why it must not be shown.
    pub inspect: &'a Inspect<'a>,
    /// For an exchange that may go on for ever: how long nothing may come. None: it ends in time as a whole.
    pub long_lived: Option<Duration>,
}

/// A request that nothing has become of: nothing of it was sent.
pub(super) struct Unsent {
    pub(super) request: Box<Request<OutgoingBody>>,
    /// Whether it waited for a connection in vain.
    pub(super) late: bool,
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl PoolState {
    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, endpoint: usize, connection: Connection) {
        self.idle[endpoint].borrow_mut().push(connection);
    }
}

impl Pool {
    /// A pool without connections.
    pub fn new(endpoints: Endpoints, settings: &Settings) -> Self {
        Self::over(endpoints, settings, |_| None)
    }

    /// A pool over other endpoints, which shares the connections to those that are in both. Those to the others close
    /// when this pool is dropped and their last requests have ended.
    #[must_use]
    pub fn changed(&self, endpoints: Endpoints, settings: &Settings) -> Self {
        let ours = &self.0.endpoints.0;
        Self::over(endpoints, settings, |endpoint| {
            let index = ours.iter().position(|ours| Arc::ptr_eq(ours, endpoint))?;
            Some((Rc::clone(&self.0.idle[index]), Rc::clone(&self.0.multiplexed[index])))
        })
    }

    fn over(
        endpoints: Endpoints,
        settings: &Settings,
        known: impl Fn(&Arc<endpoint::EndpointState>) -> Option<Connections>,
    ) -> Self {
        let connections = endpoints.0.iter().map(|endpoint| known(endpoint).unwrap_or_default());
        let (idle, multiplexed) = connections.unzip();
        let (protocol, timeouts) = (settings.protocol, settings.timeouts);
        Self(Rc::new(PoolState { endpoints, idle, multiplexed, protocol, start: Cell::new(0), timeouts }))
    }

    /// Sends a request and returns the response, whose body keeps the connection until it has ended.
    ///
    /// # Errors
    /// [`SendError`] says whose fault it was.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
        options: &SendOptions<'_>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let start = self.0.start.get();
        self.0.start.set(start.wrapping_add(1) % self.0.endpoints.0.len());
        let mut request = request.map(OutgoingBody::new);
        let (mut tried, mut late) = (Vec::new(), true);
        while let Some(index) = self.0.endpoints.least_busy(start, &tried) {
            let in_flight = self.0.endpoints.enter(index);
            request.headers_mut().insert(HOST, in_flight.shared().host.clone());
            let sent = match self.0.protocol {
                Protocol::Http1 => self.send_to(request, in_flight, options).await,
                Protocol::Http2 => self.call(request, in_flight, options).await,
            };
            match sent {
                Ok(sent) => return sent,
                Err(unsent) => (request, late) = (*unsent.request, late && unsent.late),
            }
            tried.push(index);
        }
        // An endpoint that refuses connections is known to be down; one that says nothing may only be slow.
        Err(if late { SendError::TimedOut(TimeoutKind::Connection) } else { SendError::Unavailable })
    }

    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    pub(super) fn multiplexed(&self, endpoint: usize) -> &Http2Connections {
        &self.0.multiplexed[endpoint]
    }

    /// Sends to one endpoint; the request comes back when nothing of it was sent.
    async fn send_to(
        &self,
        mut request: Request<OutgoingBody>,
        in_flight: InFlight,
        options: &SendOptions<'_>,
    ) -> Result<Result<Response<ResponseBody>, SendError>, Unsent> {
        let deadlines = Deadlines::from_now(&self.0.timeouts, options.long_lived);
        while let Some(connection) = self.idle_connection(in_flight.index()) {
            let copy = replay_body::copy(&request);
            match (self.attempt(connection, request, deadlines, options).await, copy) {
                (Attempt::Unsent(unsent), _) => request = *unsent,
                (Attempt::Failed(connection, failure), Some(copy)) if is_dead(&connection, &failure) => {
                    in_flight.shared().metrics.retries.inc();
                    let again = match self.send_fresh(copy, &in_flight, deadlines, options).await {
                        Ok(Attempt::Unsent(_)) | Err(_) => Attempt::Failed(connection, failure),
                        Ok(again) => again,
                    };
                    return self.ended(again, in_flight, deadlines, options);
                }
                (attempt, _) => return self.ended(attempt, in_flight, deadlines, options),
            }
        }
        let attempt = self.send_fresh(request, &in_flight, deadlines, options).await?;
        self.ended(attempt, in_flight, deadlines, options)
    }

    /// Sends over a new connection.
    async fn send_fresh(
        &self,
        request: Request<OutgoingBody>,
        in_flight: &InFlight,
        deadlines: Deadlines,
        options: &SendOptions<'_>,
    ) -> Result<Attempt, Unsent> {
        let shared = in_flight.shared();
        match connect(&shared.endpoint, shared.encryption.as_ref(), self.0.timeouts.connect).await {
            Ok(connection) => {
                shared.reached();
                Ok(self.attempt(connection, request, deadlines, options).await)
            }
            Err(error) => Err(Unsent { request: Box::new(request), late: unreachable(shared, &error) }),
        }
    }

    async fn attempt(
        &self,
        connection: Connection,
        request: Request<OutgoingBody>,
        deadlines: Deadlines,
        options: &SendOptions<'_>,
    ) -> Attempt {
        exchange(connection, request, deadlines, options.uploaded).await
    }

    /// A pooled connection that can take a request.
    fn idle_connection(&self, index: usize) -> Option<Connection> {
        self.0.idle[index].borrow_mut().pop()
    }

    /// What the last attempt comes to; the request comes back when nothing of it was sent.
    fn ended(
        &self,
        attempt: Attempt,
        in_flight: InFlight,
        deadlines: Deadlines,
        options: &SendOptions<'_>,
    ) -> Result<Result<Response<ResponseBody>, SendError>, Unsent> {
        let answered = match attempt {
            Attempt::Unsent(request) => return Err(Unsent { request, late: false }),
            Attempt::Failed(_, failure) => Err(failure),
            Attempt::Answered(connection, response) => Ok((Carrier::Http1(connection), response)),
        };
        Ok(self.concluded(answered, in_flight, deadlines, options))
    }

    /// Counts what an exchange has come to, and inspects the head if there is one.
    pub(super) fn concluded(
        &self,
        answered: Result<(Carrier, Response<Incoming>), SendError>,
        in_flight: InFlight,
        deadlines: Deadlines,
        options: &SendOptions<'_>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let answered = answered.and_then(|(carrier, response)| Ok((carrier, inspected(response, options)?)));
        let metrics = &in_flight.shared().metrics;
        match &answered {
            Ok(_) => metrics.ok.inc(),
            Err(SendError::TimedOut(late)) => {
                metrics.timed_out.inc();
                late.count(&metrics.timeouts);
            }
            Err(_) => metrics.bad_response.inc(),
        }
        answered.map(|(carrier, response)| self.received(carrier, response, in_flight, deadlines))
    }

    fn received(
        &self,
        carrier: Carrier,
        response: Response<Incoming>,
        in_flight: InFlight,
        deadlines: Deadlines,
    ) -> Response<ResponseBody> {
        // To a server of HTTP/1.0 the library would speak HTTP/1.0 from now on, in which no body can be chunked.
        let reusable = response.version() != Version::HTTP_10;
        let guard = ConnectionGuard::new(carrier, Rc::clone(&self.0), in_flight, reusable);
        let body = match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => ResponseBody::switched,
            _ => ResponseBody::new,
        };
        response.map(|incoming| body(incoming, guard, deadlines))
    }
}

/// Notes that an endpoint cannot be connected to; says whether that took too long.
pub(super) fn unreachable(endpoint: &endpoint::EndpointState, error: &io::Error) -> bool {
    endpoint.unreachable(error);
    let late = error.kind() == io::ErrorKind::TimedOut;
    if late {
        TimeoutKind::Connection.count(&endpoint.metrics.timeouts);
    }
    late
}

/// Whether a pooled connection died before a byte of the response came: the server may have closed it while the request
/// was on its way.
fn is_dead(connection: &Connection, failure: &SendError) -> bool {
    matches!(failure, SendError::BadResponse(_)) && !connection.link.is_answered()
}

/// The response, its head made fit to be shown.
fn inspected(response: Response<Incoming>, options: &SendOptions<'_>) -> Result<Response<Incoming>, SendError> {
    let (mut head, body) = response.into_parts();
    if head.headers.len() > MAX_FIELDS {
        return Err(SendError::InvalidResponse(HeadScanError::TooLarge.into()));
    }
    (options.inspect)(&mut head).map_err(SendError::InvalidResponse)?;
    Ok(Response::from_parts(head, body))
}
