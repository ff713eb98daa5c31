//! Pool of one worker's connections: sends a request to the best endpoint and, when that is safe, again.
//!
//! The attempts of one request:
//!
//! | the attempt ended with | then |
//! |---|---|
//! | a response head | the response is returned |
//! | no connection to the endpoint | the next endpoint is tried: nothing was sent |
//! | a pooled connection that was closed before anything was written | the next pooled connection, or a new one, is tried |
//! | a pooled connection that died before the first byte of the response | an idempotent request without a body is sent again, once, on a new connection |
//! | REFUSED_STREAM (HTTP/2) | the request is sent again, once: see [`super::http2_send`] |
//! | anything else | the error is returned: the upstream may have begun to process the request |

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::{Request, Response};
use hyper::body::Incoming;

use super::attempt::{Attempt, Deadlines, attempt_http1};
use super::endpoint::{EndpointState, Endpoints, InFlight};
use super::error::{SendError, TimeoutKind};
use super::head_scan::MAX_FIELDS;
use super::http1_connection::{Connection, connect};
use super::http2_connections::Http2Connections;
use super::idle::IdleConnections;
use super::replay_body::{self, OutgoingBody};
use super::response::UpstreamResponse;
use super::response_body::{Carrier, ConnectionGuard};
use super::settings::{Protocol, Settings, Timeouts};
use crate::request_body::{RequestBody, UploadProgress};

/// One worker's connections to the endpoints. Clones share them.
#[derive(Clone)]
pub struct Pool(Rc<PoolState>);

struct PoolState {
    endpoints: Endpoints,
    /// Connections in the order of the endpoints.
    connections: Vec<Connections>,
    protocol: Protocol,
    /// Endpoint at which the search among equally busy ones begins. It moves on with every request.
    start: Cell<usize>,
    timeouts: Timeouts,
}

/// Connections to one endpoint, of either protocol. Shared by the pools before and after a change of the configuration.
#[derive(Clone, Default)]
struct Connections {
    idle: Rc<RefCell<IdleConnections>>,
    http2: Rc<Http2Connections>,
}

/// Options of one exchange.
pub(super) struct SendOptions {
    /// Progress of the request's body: while it advances, the upstream is not late with its response.
    pub(super) upload: UploadProgress,
    /// For an exchange without a time limit as a whole: the time in which something must come.
    pub(super) long_lived: Option<Duration>,
}

/// Request of which nothing was sent: it may be sent to another endpoint.
pub(super) struct Unsent {
    pub(super) request: Box<Request<OutgoingBody>>,
    /// True if connecting timed out; otherwise it failed at once.
    pub(super) timed_out: bool,
}

impl Pool {
    /// Pool without open connections.
    pub fn new(endpoints: Endpoints, settings: &Settings) -> Self {
        Self::build(endpoints, settings, |_| None)
    }

    /// Pool over other endpoints, which shares the connections to those that are in both. Connections to the others
    /// close when this pool is dropped and their last requests have ended.
    #[must_use]
    pub fn changed(&self, endpoints: Endpoints, settings: &Settings) -> Self {
        let ours = &self.0.endpoints.0;
        Self::build(endpoints, settings, |endpoint| {
            let index = ours.iter().position(|ours| Arc::ptr_eq(ours, endpoint))?;
            Some(self.0.connections[index].clone())
        })
    }

    fn build(
        endpoints: Endpoints,
        settings: &Settings,
        existing: impl Fn(&Arc<EndpointState>) -> Option<Connections>,
    ) -> Self {
        let connections = endpoints.0.iter().map(|endpoint| existing(endpoint).unwrap_or_default()).collect();
        let (protocol, timeouts) = (settings.protocol, settings.timeouts);
        Self(Rc::new(PoolState { endpoints, connections, protocol, start: Cell::new(0), timeouts }))
    }

    /// Sends a request and waits for the head of the response. `long_lived` is for an exchange without a time limit as a
    /// whole: the time in which something must come.
    ///
    /// # Errors
    /// [`SendError`] when there is no response head.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
        long_lived: Option<Duration>,
    ) -> Result<UpstreamResponse, SendError> {
        let start = self.0.start.get();
        self.0.start.set(start.wrapping_add(1) % self.0.endpoints.0.len());
        let options = SendOptions { upload: request.body().upload(), long_lived };
        let mut request = request.map(OutgoingBody::new);
        let (mut tried, mut timed_out) = (Vec::new(), true);
        while let Some(index) = self.0.endpoints.least_busy(start, &tried) {
            let in_flight = self.0.endpoints.enter(index);
            request.headers_mut().insert(HOST, in_flight.endpoint().host.clone());
            let sent = match self.0.protocol {
                Protocol::Http1 => self.send_http1(request, in_flight, &options).await,
                Protocol::Http2 => self.send_http2(request, in_flight, &options).await,
            };
            match sent {
                Ok(sent) => return sent,
                Err(unsent) => (request, timed_out) = (*unsent.request, timed_out && unsent.timed_out),
            }
            tried.push(index);
        }
        // An endpoint that refuses connections is known to be down; one that does not answer may only be slow.
        Err(if timed_out { SendError::TimedOut(TimeoutKind::Connection) } else { SendError::Unavailable })
    }

    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    pub(super) fn http2_connections(&self, endpoint: usize) -> &Http2Connections {
        &self.0.connections[endpoint].http2
    }

    /// Sends to one endpoint over HTTP/1.1. The request comes back when nothing of it was sent.
    async fn send_http1(
        &self,
        mut request: Request<OutgoingBody>,
        in_flight: InFlight,
        options: &SendOptions,
    ) -> Result<Result<UpstreamResponse, SendError>, Unsent> {
        let deadlines = Deadlines::from_now(&self.0.timeouts, options.long_lived);
        while let Some(connection) = self.idle_connection(in_flight.index()) {
            // The library takes the request: a retry needs a copy of its head, made before.
            let copy = replay_body::copy(&request);
            match (attempt_http1(connection, request, deadlines, &options.upload).await, copy) {
                // The connection was closed before anything was written to it.
                (Attempt::Unsent(unsent), _) => request = *unsent,
                (Attempt::Failed(connection, error), Some(copy)) if is_stale(&connection, &error) => {
                    in_flight.endpoint().metrics.retries.inc();
                    let retried = match self.attempt_on_new(copy, &in_flight, deadlines, options).await {
                        // The first failure says more than that there is no connection now.
                        Ok(Attempt::Unsent(_)) | Err(_) => Attempt::Failed(connection, error),
                        Ok(retried) => retried,
                    };
                    return self.finish_http1(retried, in_flight, deadlines);
                }
                (attempt, _) => return self.finish_http1(attempt, in_flight, deadlines),
            }
        }
        let attempt = self.attempt_on_new(request, &in_flight, deadlines, options).await?;
        self.finish_http1(attempt, in_flight, deadlines)
    }

    /// Sends over a new connection.
    async fn attempt_on_new(
        &self,
        request: Request<OutgoingBody>,
        in_flight: &InFlight,
        deadlines: Deadlines,
        options: &SendOptions,
    ) -> Result<Attempt, Unsent> {
        let endpoint = in_flight.endpoint();
        match connect(&endpoint.address, endpoint.encryption.as_ref(), self.0.timeouts.connect).await {
            Ok(connection) => {
                endpoint.mark_up();
                Ok(attempt_http1(connection, request, deadlines, &options.upload).await)
            }
            Err(error) => {
                let timed_out = record_connect_error(endpoint, &error);
                Err(Unsent { request: Box::new(request), timed_out })
            }
        }
    }

    /// Takes a pooled connection that can carry a request.
    fn idle_connection(&self, endpoint: usize) -> Option<Connection> {
        self.0.connections[endpoint].idle.borrow_mut().pop()
    }

    /// Turns the last attempt into a response. The request comes back when nothing of it was sent.
    fn finish_http1(
        &self,
        attempt: Attempt,
        in_flight: InFlight,
        deadlines: Deadlines,
    ) -> Result<Result<UpstreamResponse, SendError>, Unsent> {
        let answered = match attempt {
            Attempt::Unsent(request) => return Err(Unsent { request, timed_out: false }),
            Attempt::Failed(_, error) => Err(error),
            Attempt::Answered(connection, response) => {
                let idle = Rc::clone(&self.0.connections[in_flight.index()].idle);
                Ok((Carrier::Http1 { connection, idle }, response))
            }
        };
        Ok(finish(answered, in_flight, deadlines))
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
    let metrics = &in_flight.endpoint().metrics;
    match &answered {
        Ok(_) => {}
        Err(SendError::TimedOut(kind)) => {
            metrics.timed_out.inc();
            kind.count(&metrics.timeouts);
        }
        Err(_) => metrics.bad_response.inc(),
    }
    answered.map(|(carrier, response)| {
        let guard = ConnectionGuard::new(carrier, in_flight, response.version());
        UpstreamResponse::new(response, guard, deadlines)
    })
}

/// Counts and logs that an endpoint could not be connected to. Returns whether connecting timed out.
pub(super) fn record_connect_error(endpoint: &EndpointState, error: &io::Error) -> bool {
    endpoint.mark_down(error);
    let timed_out = error.kind() == io::ErrorKind::TimedOut;
    if timed_out {
        TimeoutKind::Connection.count(&endpoint.metrics.timeouts);
    }
    timed_out
}

/// Returns whether a pooled connection died before a byte of the response came: the server may have closed it while the
/// request was on its way.
fn is_stale(connection: &Connection, error: &SendError) -> bool {
    matches!(error, SendError::BadResponse(_)) && !connection.state.has_received()
}
