//! One worker's connections to the endpoints.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::body::{Lease, ResponseBody};
use super::connection::{Connection, connect};
use super::endpoint::{Endpoints, InFlight};
use super::settings::Settings;

/// Idle connections kept per worker and endpoint; more than an organization may use at once is rarely of use.
const MAX_IDLE: usize = 256;

/// A connection that was idle for longer is not used again: many servers close theirs after 60 s or more, and a request
/// that crosses the closing on its way is lost.
const MAX_AGE: Duration = Duration::from_secs(50);

/// One worker's connections; clones share them.
pub struct Pool<B>(Rc<Shared<B>>);

struct Shared<B> {
    endpoints: Endpoints,
    /// Idle connections by endpoint, the one used last on top.
    idle: Vec<Idle<B>>,
    /// Where the search among equally busy endpoints begins: moves on with every request.
    start: Cell<usize>,
    connect_timeout: Duration,
    response_timeout: Duration,
    response_idle_timeout: Duration,
}

/// The idle connections to one endpoint, each with the time since which it is idle.
pub(super) type Idle<B> = Rc<RefCell<Vec<(Connection<B>, Instant)>>>;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No endpoint could be connected to; nothing was sent.
    #[error("no endpoint of the upstream can be reached")]
    Unavailable,
    /// The connection broke, or the response was not HTTP.
    #[error("the upstream broke off or answered badly")]
    BadResponse(#[source] hyper::Error),
    /// The upstream switched protocols though nobody had asked it to.
    #[error("the upstream switched protocols unasked")]
    Unasked,
    /// The response's head did not come in time.
    #[error("the upstream did not answer in time")]
    TimedOut,
}

impl<B> Clone for Pool<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A pool without connections.
    pub fn new(endpoints: Endpoints, settings: &Settings) -> Self {
        let idle = endpoints.0.iter().map(|_| Idle::<B>::default()).collect();
        Self::over(endpoints, idle, settings)
    }

    /// A pool over other endpoints, which shares the connections to those that are in both. Those to the others close
    /// when this pool is dropped and their last requests have ended.
    #[must_use]
    pub fn changed(&self, endpoints: Endpoints, settings: &Settings) -> Self {
        let ours = || self.0.endpoints.0.iter().zip(&self.0.idle);
        let idle = endpoints.0.iter().map(|endpoint| {
            let shared = ours().find(|(ours, _)| Arc::ptr_eq(ours, endpoint));
            shared.map_or_else(Idle::<B>::default, |(_, idle)| Rc::clone(idle))
        });
        let idle = idle.collect();
        Self::over(endpoints, idle, settings)
    }

    fn over(endpoints: Endpoints, idle: Vec<Idle<B>>, settings: &Settings) -> Self {
        Self(Rc::new(Shared {
            endpoints,
            idle,
            start: Cell::new(0),
            connect_timeout: settings.connect_timeout,
            response_timeout: settings.response_timeout,
            response_idle_timeout: settings.response_idle_timeout,
        }))
    }

    /// Sends a request and returns the response, whose body keeps the connection until it has ended.
    ///
    /// `uploaded` says how many bytes of the request's body have gone so far: while they go, the upstream is not late.
    ///
    /// # Errors
    /// [`Failure`] says whose fault it was.
    pub async fn send(
        &self,
        mut request: Request<B>,
        uploaded: impl Fn() -> u64,
    ) -> Result<Response<ResponseBody<B>>, Failure> {
        let start = self.0.start.get();
        self.0.start.set(start.wrapping_add(1) % self.0.endpoints.0.len());
        let mut tried = Vec::new();
        while let Some(index) = self.0.endpoints.least_busy(start, &tried) {
            let in_flight = self.0.endpoints.enter(index);
            request.headers_mut().insert(HOST, in_flight.shared().host.clone());
            match self.send_to(request, in_flight, &uploaded).await {
                Ok(sent) => return sent,
                Err(unsent) => request = *unsent,
            }
            tried.push(index);
        }
        Err(Failure::Unavailable)
    }

    /// Sends to one endpoint; the request comes back when nothing of it was sent.
    async fn send_to(
        &self,
        mut request: Request<B>,
        in_flight: InFlight,
        uploaded: &impl Fn() -> u64,
    ) -> Result<Result<Response<ResponseBody<B>>, Failure>, Box<Request<B>>> {
        while let Some(connection) = self.idle_connection(in_flight.index()) {
            match self.exchange(connection, request, uploaded).await {
                Ok((connection, sent)) => return Ok(self.received(connection, sent, in_flight)),
                Err(unsent) => request = *unsent,
            }
        }
        let shared = in_flight.shared();
        let connection = match connect(&shared.endpoint, shared.encryption.as_ref(), self.0.connect_timeout).await {
            Ok(connection) => connection,
            Err(error) => {
                shared.unreachable(&error);
                return Err(Box::new(request));
            }
        };
        shared.reached();
        let (connection, sent) = self.exchange(connection, request, uploaded).await?;
        Ok(self.received(connection, sent, in_flight))
    }

    /// A pooled connection that is ready. Closed and old ones are thrown away, ones that are still finishing stay.
    fn idle_connection(&self, index: usize) -> Option<Connection<B>> {
        let mut idle = self.0.idle[index].borrow_mut();
        let mut finishing = Vec::new();
        let mut ready = None;
        while let Some((connection, since)) = idle.pop() {
            if since.elapsed() >= MAX_AGE {
                // The ones below are older still.
                idle.clear();
            } else if connection.sender.is_ready() {
                ready = Some(connection);
                break;
            } else if !connection.sender.is_closed() {
                finishing.push((connection, since));
            }
        }
        idle.extend(finishing.into_iter().rev());
        ready
    }

    #[allow(clippy::type_complexity, reason = "the three outcomes of one exchange: sent, failed, not sent")]
    async fn exchange(
        &self,
        mut connection: Connection<B>,
        request: Request<B>,
        uploaded: &impl Fn() -> u64,
    ) -> Result<(Connection<B>, Result<Response<Incoming>, Failure>), Box<Request<B>>> {
        let Connection { sender, patience } = &mut connection;
        let sent = {
            let mut response = pin!(sender.try_send_request(request));
            let mut deadline = Instant::now() + self.0.response_timeout;
            let mut before = uploaded();
            poll_fn(|cx| {
                loop {
                    if let Poll::Ready(sent) = response.as_mut().poll(cx) {
                        return Poll::Ready(Some(sent));
                    }
                    ready!(patience.poll(cx, deadline));
                    if uploaded() == before {
                        return Poll::Ready(None);
                    }
                    (before, deadline) = (uploaded(), Instant::now() + self.0.response_timeout);
                }
            })
            .await
        };
        match sent {
            Some(Ok(response)) => Ok((connection, Ok(response))),
            Some(Err(mut error)) => match error.take_message() {
                Some(unsent) => Err(Box::new(unsent)),
                None => Ok((connection, Err(Failure::BadResponse(error.into_error())))),
            },
            None => Ok((connection, Err(Failure::TimedOut))),
        }
    }

    fn received(
        &self,
        connection: Connection<B>,
        sent: Result<Response<Incoming>, Failure>,
        in_flight: InFlight,
    ) -> Result<Response<ResponseBody<B>>, Failure> {
        let sent = sent.and_then(|response| match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => Err(Failure::Unasked),
            _ => Ok(response),
        });
        let metrics = &in_flight.shared().metrics;
        match &sent {
            Ok(_) => metrics.ok.inc(),
            Err(Failure::TimedOut) => metrics.timed_out.inc(),
            Err(_) => metrics.bad_response.inc(),
        }
        let response = sent?;
        let idle = Rc::clone(&self.0.idle[in_flight.index()]);
        // To a server of HTTP/1.0 the library would speak HTTP/1.0 from now on, in which no body can be chunked.
        let most_idle = if response.version() == Version::HTTP_10 { 0 } else { MAX_IDLE };
        let lease = Lease::new(connection, idle, most_idle, in_flight);
        Ok(response.map(|body| ResponseBody::new(body, lease, self.0.response_idle_timeout)))
    }
}
