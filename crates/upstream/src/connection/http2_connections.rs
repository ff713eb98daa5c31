//! HTTP/2 connections to one endpoint, each shared by many requests.
//!
//! - A worker has one connection to an endpoint, and another only when all streams of the first are in use, or when it
//!   has answered nothing for a while. One that a request has waited for in vain takes no more requests.
//! - A connection that has received GOAWAY, or broke, takes no more requests, nor does one on which many streams were
//!   reset. Its streams end by themselves.
//! - A stream that ends goes to the request of the worker that has waited longest for one. A connection without streams
//!   is closed when requests of other workers or endpoints wait for it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use tokio::sync::Mutex;

use super::http2::{Http2Connection, Http2Stream, WaitingRequests, connect};
use super::lifetime::Lifetimes;
use super::limits::{ConnectionPermit, EndpointLink, IdleUse};
use crate::endpoint::endpoints::EndpointState;
use http2_frames::ANSWERED;

/// Connections of a worker to one endpoint at most, for upstreams that allow few streams on each, or none.
const MAX_CONNECTIONS: usize = 64;
/// Connections beyond which requests share silent ones: streams may be without an answer for good, such as
/// subscriptions.
const MAX_SILENT: usize = 4;

/// One worker's HTTP/2 connections to one endpoint.
pub(crate) struct Http2Connections {
    open: RefCell<Vec<Rc<Http2Connection>>>,
    /// Held by the request that connects, while others wait for the connection.
    connecting: Mutex<()>,
    /// Failed attempts to connect so far.
    failures: Cell<u64>,
    /// True once the endpoint was removed: no connection to it is kept.
    is_closed: Cell<bool>,
    waiting: Rc<WaitingRequests>,
}

/// Reason why there is no connection, or no stream of one.
pub(crate) enum NoConnection {
    /// No connection could be made.
    Failed(io::Error),
    /// There is no room for another connection, and all streams are in use.
    NoRoom,
}

impl Http2Connections {
    /// No connections. The link leads to the requests that wait for a stream.
    pub(crate) fn new(link: EndpointLink) -> Self {
        Self {
            open: RefCell::default(),
            connecting: Mutex::default(),
            failures: Cell::default(),
            is_closed: Cell::default(),
            waiting: Rc::new(WaitingRequests { link, handed: RefCell::default() }),
        }
    }

    /// Acquires a stream of an open connection that has one left, or of a new one. `permit` is used for that, or else
    /// acquired.
    pub(crate) async fn acquire(
        &self,
        endpoint: &EndpointState,
        permit: Option<ConnectionPermit>,
        timeout: Duration,
        lifetimes: &Lifetimes,
    ) -> Result<Http2Stream, NoConnection> {
        if let Some(stream) = self.free_stream() {
            return Ok(stream);
        }
        let failures = self.failures.get();
        let _connecting = self.connecting.lock().await;
        // Another request may have connected meanwhile, or may have failed to: then this one fails with it, so that not
        // every waiting request spends the whole time-out in its turn.
        if let Some(stream) = self.free_stream() {
            return Ok(stream);
        }
        if self.failures.get() != failures {
            return Err(NoConnection::Failed(io::ErrorKind::ConnectionRefused.into()));
        }
        if self.open.borrow().len() >= MAX_CONNECTIONS {
            return self.any_stream().ok_or_else(|| NoConnection::Failed(io::ErrorKind::QuotaExceeded.into()));
        }
        // Not waited for here: the lock would keep others from streams that end meanwhile.
        let permit = permit.or_else(|| self.waiting.link.try_acquire()).ok_or(NoConnection::NoRoom)?;
        let connected = self.connect(endpoint, permit, timeout, lifetimes).await;
        let connection = connected.inspect_err(|_| self.failures.set(failures + 1)).map_err(NoConnection::Failed)?;
        let stream = Http2Stream::new(connection, true);
        // The other streams of the connection are for those that wait.
        self.waiting.wake_if_needed();
        Ok(stream)
    }

    /// A stream of an open connection that has one left, and is not silent.
    pub(crate) fn free_stream(&self) -> Option<Http2Stream> {
        self.find_free().map(|connection| Http2Stream::new(connection, false))
    }

    /// A stream of any open connection whose upstream allows one: where there is no room for another, a silent one may
    /// yet answer.
    pub(crate) fn any_stream(&self) -> Option<Http2Stream> {
        let any = self.open.borrow().iter().find(|connection| connection.has_allowed()).cloned();
        any.map(|connection| Http2Stream::new(connection, false))
    }

    /// Keeps a connection that has answered nothing from further requests. Its other streams end by themselves.
    pub(crate) fn retire(&self, silent: &Rc<Http2Connection>) {
        silent.is_retired.set(true);
        self.open.borrow_mut().retain(|connection| !Rc::ptr_eq(connection, silent));
    }

    /// Returns whether a request is connecting, whose connection others can share.
    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting.try_lock().is_err()
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    fn first_idle(&self) -> Option<usize> {
        self.open.borrow().iter().position(|connection| connection.active.get() == 0)
    }

    /// Takes the stream that was handed to a request; none when its connection was closed meanwhile.
    pub(crate) fn take_handed(&self, request: u64) -> Option<Http2Stream> {
        let mut handed = self.waiting.handed.borrow_mut();
        let index = handed.iter().position(|(id, _)| *id == request)?;
        let stream = handed.swap_remove(index).1;
        // A stream that is dropped may be handed on.
        drop(handed);
        Some(stream).filter(|stream| !stream.connection.sender.is_closed())
    }

    /// Offers free streams and idle connections to the requests that wait.
    pub(crate) fn offer_all(&self) {
        while let Some(connection) = self.find_free() {
            let Some(request) = self.waiting.link.take_local() else { break };
            self.waiting.hand_to(request, Http2Stream::new(connection, false));
        }
        while let Some(index) = self.first_idle() {
            match self.waiting.link.offer() {
                IdleUse::Keep => break,
                IdleUse::Close => {
                    let connection = self.open.borrow_mut().remove(index);
                    connection.closing.set();
                }
                // A request of this worker would have taken a stream above: it looks again.
                IdleUse::HandTo(request) => request.wake(),
            }
        }
    }

    /// Has each connection close when its last stream ends, and keeps no others from now on.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        let open = self.open.take();
        // Not while the cell is borrowed.
        drop(open);
    }

    /// Finds a connection with a stream left that is not silent. Connections that are closed, worn, or at the end of
    /// their lifetime, are removed on the way, and those whose upstream allows no streams at all. Their streams end by
    /// themselves.
    fn find_free(&self) -> Option<Rc<Http2Connection>> {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| {
            !connection.sender.is_closed()
                && connection.lifetime.goes_on()
                && !connection.is_worn()
                && (connection.active.get() > 0 || connection.allowed.get() > 0)
        });
        let is_shared = |connection: &Rc<Http2Connection>| !connection.check_silence() || open.len() >= MAX_SILENT;
        open.iter().find(|connection| connection.has_free() && is_shared(connection)).cloned()
    }

    /// Connects, and keeps the connection.
    async fn connect(
        &self,
        endpoint: &EndpointState,
        permit: ConnectionPermit,
        timeout: Duration,
        lifetimes: &Lifetimes,
    ) -> io::Result<Rc<Http2Connection>> {
        let connecting = connect(endpoint, permit, lifetimes, Rc::clone(&self.waiting));
        let connection = tokio::time::timeout(timeout, connecting).await??;
        if !self.is_closed.get() {
            self.open.borrow_mut().push(Rc::clone(&connection));
        }
        Ok(connection)
    }
}

/// Rewrites a head for HTTP/2: the host goes into the target (RFC 9113, section 8.3.1), and the fields for one
/// connection only go away.
pub(crate) fn rewrite_head<B>(mut request: Request<B>, endpoint: &EndpointState) -> Request<B> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    let scheme = if endpoint.encryption.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let host = request.headers().get(HOST).filter(|host| *host != endpoint.host);
    let authority = match host {
        // The client's, or the configured one.
        Some(host) => Authority::try_from(host.as_bytes()).expect("a host was validated before"),
        None => endpoint.authority.clone(),
    };
    (target.scheme, target.authority) = (Some(scheme), Some(authority));
    *request.uri_mut() = Uri::from_parts(target).expect("a path, a scheme and an authority make a target");
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        request.headers_mut().remove(name);
    }
    request
}

/// Cause for which a stream has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenStream {
    /// The upstream did not begin to process the request: REFUSED_STREAM, or a GOAWAY that excludes the stream (RFC
    /// 9113, section 8.7).
    Refused,
    /// The upstream reset the stream for another reason.
    Reset,
    /// The upstream reset the stream behind interim responses (1xx): it has begun with the request, whatever it says.
    Answered,
    /// The connection broke.
    Connection,
    /// The response is not valid.
    Invalid,
}

impl BrokenStream {
    pub(crate) fn of(error: &hyper::Error) -> Self {
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            if let Some(cause) = cause.downcast_ref::<h2::Error>() {
                return Self::of_h2(cause);
            }
            source = cause.source();
        }
        // The library's own: no answer to a ping, or the end of the connection's task.
        Self::Connection
    }

    fn of_h2(error: &h2::Error) -> Self {
        match error {
            // The library fails the streams beyond the last one that a GOAWAY names, and lets the others go on.
            error if error.is_remote() && error.is_go_away() => Self::Refused,
            error if error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM) => Self::Refused,
            error if error.is_remote() && error.reason() == Some(ANSWERED.into()) => Self::Answered,
            error if error.is_remote() => Self::Reset,
            error if error.is_io() => Self::Connection,
            _ => Self::Invalid,
        }
    }
}
