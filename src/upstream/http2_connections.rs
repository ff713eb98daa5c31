//! HTTP/2 connections to one endpoint, each shared by many requests.
//!
//! - A worker has one connection to an endpoint, and another only when all streams of the first are in use.
//! - A connection that has received GOAWAY, or broke, takes no more requests. Its streams end by themselves.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::Scheme;
use http::{Request, Uri};
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Mutex;

use super::endpoint::EndpointState;
use super::head_scan::MAX_HEAD;
use super::lifetime::{Lifetime, Lifetimes};
use super::open_connections::OpenConnection;
use super::replay_body::OutgoingBody;
use super::socket::{Socket, connect_socket};
use crate::timer::LazyTimer;

/// Time without a byte, while a stream is open, after which a connection is pinged. It is closed when the answer takes as
/// long again: so a stream over a dead connection ends long before its time-outs.
const PING: Duration = Duration::from_secs(20);

/// Connections of a worker to one endpoint at most, for upstreams that allow few streams on each, or none.
const MAX_CONNECTIONS: usize = 64;

/// One worker's HTTP/2 connections to one endpoint.
#[derive(Default)]
pub(super) struct Http2Connections {
    open: RefCell<Vec<Rc<Http2Connection>>>,
    /// Held by the request that connects, while others wait for the connection.
    connecting: Mutex<()>,
    /// Failed attempts to connect so far.
    failures: Cell<u64>,
    /// True once the endpoint was removed: no connection to it is kept.
    is_closed: Cell<bool>,
}

struct Http2Connection {
    sender: SendRequest<OutgoingBody>,
    /// Streams in use.
    active: Cell<usize>,
    /// Streams that the upstream allows, as last seen by the connection's task.
    allowed: Rc<Cell<usize>>,
    lifetime: Lifetime,
    /// Counts the connection at its endpoint.
    _counted: OpenConnection,
}

/// Stream of a connection, acquired for one request. Given back when dropped.
pub(super) struct Http2Stream {
    connection: Rc<Http2Connection>,
    /// True if the connection was made for this request.
    pub(super) is_first: bool,
    pub(super) timer: LazyTimer,
}

/// Runs the library's tasks on this thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl Http2Connections {
    /// Acquires a stream of an open connection that has one left, or of a new one.
    pub(super) async fn acquire(
        &self,
        endpoint: &EndpointState,
        timeout: Duration,
        lifetimes: &Lifetimes,
    ) -> io::Result<Http2Stream> {
        if let Some(connection) = self.find_free() {
            return Ok(Http2Stream::new(connection, false));
        }
        let failures = self.failures.get();
        let _connecting = self.connecting.lock().await;
        // Another request may have connected meanwhile, or may have failed to: then this one fails with it, so that not
        // every waiting request spends the whole time-out in its turn.
        if let Some(connection) = self.find_free() {
            return Ok(Http2Stream::new(connection, false));
        }
        if self.failures.get() != failures {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if self.open.borrow().len() >= MAX_CONNECTIONS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let connection = tokio::time::timeout(timeout, connect(endpoint, lifetimes)).await;
        let connection = connection.map_err(io::Error::from).flatten();
        let connection = connection.inspect_err(|_| self.failures.set(failures + 1))?;
        if !self.is_closed.get() {
            self.open.borrow_mut().push(Rc::clone(&connection));
        }
        Ok(Http2Stream::new(connection, true))
    }

    /// Has each connection close when its last stream ends, and keeps no others from now on.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        let open = self.open.take();
        // Not while the cell is borrowed.
        drop(open);
    }

    /// Finds a connection with a stream left. Connections that are closed, or at the end of their lifetime, are removed on
    /// the way, and those whose upstream allows no streams at all. Their streams end by themselves.
    fn find_free(&self) -> Option<Rc<Http2Connection>> {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| {
            !connection.sender.is_closed()
                && connection.lifetime.goes_on()
                && (connection.active.get() > 0 || connection.allowed.get() > 0)
        });
        open.iter().find(|connection| connection.active.get() < connection.allowed.get()).cloned()
    }
}

async fn connect(endpoint: &EndpointState, lifetimes: &Lifetimes) -> io::Result<Rc<Http2Connection>> {
    let socket = connect_socket(&endpoint.address, endpoint.encryption.as_ref()).await?;
    let mut builder = Builder::new(LocalExecutor);
    let max_head = u32::try_from(MAX_HEAD).expect("the limit of a head is some KiB");
    builder.timer(TokioTimer::new()).max_header_list_size(max_head).keep_alive_interval(PING).keep_alive_timeout(PING);
    let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
    let allowed = Rc::new(Cell::new(connection.current_max_send_streams()));
    tokio::task::spawn_local(run(connection, Rc::clone(&allowed)));
    let (active, lifetime, _counted) = (Cell::new(0), Lifetime::begin(lifetimes), endpoint.connections.open());
    Ok(Rc::new(Http2Connection { sender, active, allowed, lifetime, _counted }))
}

/// Task of a connection. It notes the number of allowed streams, which the upstream may change at any time.
async fn run(mut connection: Connection<TokioIo<Socket>, OutgoingBody, LocalExecutor>, allowed: Rc<Cell<usize>>) {
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        allowed.set(connection.current_max_send_streams());
        polled
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "an upstream connection ended early");
    }
}

impl Http2Stream {
    fn new(connection: Rc<Http2Connection>, is_first: bool) -> Self {
        connection.active.set(connection.active.get() + 1);
        connection.lifetime.count_request();
        Self { connection, is_first, timer: LazyTimer::default() }
    }

    pub(super) fn sender(&self) -> SendRequest<OutgoingBody> {
        self.connection.sender.clone()
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.connection.active.set(self.connection.active.get() - 1);
    }
}

/// Rewrites a head for HTTP/2: the host goes into the target (RFC 9113, section 8.3.1), and the fields for one connection
/// only go away.
pub(super) fn rewrite_head(mut request: Request<()>, endpoint: &EndpointState) -> Request<()> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    let scheme = if endpoint.encryption.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    (target.scheme, target.authority) = (Some(scheme), Some(endpoint.authority.clone()));
    *request.uri_mut() = Uri::from_parts(target).expect("a path, a scheme and an authority make a target");
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        request.headers_mut().remove(name);
    }
    request
}

/// Returns whether the upstream did not begin to process the request (REFUSED_STREAM; RFC 9113, section 8.7).
pub(super) fn is_refused_stream(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            return cause.reason() == Some(h2::Reason::REFUSED_STREAM) && cause.is_remote();
        }
        source = cause.source();
    }
    false
}
