//! HTTP/2 to one endpoint: connections that many requests share.
//!
//! - One worker has one connection to an endpoint, and another only when all streams of the first are used up.
//! - A connection that has said GOAWAY, or broke, takes no more requests; its streams end by themselves.

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

use super::endpoint;
use super::replay_body::OutgoingBody;
use super::settings::Endpoint;
use super::socket::{Encryption, Socket, connect_socket};
use crate::timer::LazyTimer;

/// Bytes of a response's head, as HTTP/2 counts them.
const MAX_HEAD: u32 = 32 * 1024;
/// A connection is pinged when nothing has come for this long while a stream is open, and given up when the answer takes
/// as long: so a stream over a dead connection ends long before its time-outs.
const PING: Duration = Duration::from_secs(20);

/// Connections to one endpoint, when each allows few streams, or none.
const MAX_CONNECTIONS: usize = 64;

/// One worker's connections to one endpoint.
pub(super) struct Http2Connections {
    open: RefCell<Vec<Rc<Http2Connection>>>,
    /// Held by the one who connects; the others wait for what comes of it.
    connecting: Mutex<()>,
    /// How often connecting has failed.
    failures: Cell<u64>,
}

struct Http2Connection {
    sender: SendRequest<OutgoingBody>,
    /// Streams in use.
    active: Cell<usize>,
    /// Streams that the upstream allows; told by the connection's task.
    allowed: Rc<Cell<usize>>,
}

/// A place for one request on a connection, and its stream's once it is sent.
pub(super) struct Http2Stream {
    shared: Rc<Http2Connection>,
    /// Whether the connection was made for it.
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

impl Default for Http2Connections {
    fn default() -> Self {
        Self { open: RefCell::default(), connecting: Mutex::new(()), failures: Cell::new(0) }
    }
}

impl Http2Connections {
    /// A place on a connection that has one, or on a new one.
    pub(super) async fn stream(
        &self,
        endpoint: &Endpoint,
        encryption: Option<&Encryption>,
        timeout: Duration,
    ) -> io::Result<Http2Stream> {
        if let Some(shared) = self.free() {
            return Ok(Http2Stream::new(shared, false));
        }
        let failures = self.failures.get();
        let _turn = self.connecting.lock().await;
        if let Some(shared) = self.free() {
            return Ok(Http2Stream::new(shared, false));
        }
        if self.failures.get() != failures {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if self.open.borrow().len() >= MAX_CONNECTIONS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let shared = tokio::time::timeout(timeout, connect(endpoint, encryption)).await;
        let shared = shared.map_err(io::Error::from).flatten();
        let shared = shared.inspect_err(|_| self.failures.set(failures + 1))?;
        self.open.borrow_mut().push(Rc::clone(&shared));
        Ok(Http2Stream::new(shared, true))
    }

    /// A connection with a stream to spare. Closed ones are forgotten on the way.
    fn free(&self) -> Option<Rc<Http2Connection>> {
        let mut open = self.open.borrow_mut();
        open.retain(|shared| !shared.sender.is_closed() && (shared.active.get() > 0 || shared.allowed.get() > 0));
        open.iter().find(|shared| shared.active.get() < shared.allowed.get()).cloned()
    }
}

async fn connect(endpoint: &Endpoint, encryption: Option<&Encryption>) -> io::Result<Rc<Http2Connection>> {
    let stream = connect_socket(endpoint, encryption).await?;
    let mut builder = Builder::new(LocalExecutor);
    builder.timer(TokioTimer::new()).max_header_list_size(MAX_HEAD).keep_alive_interval(PING).keep_alive_timeout(PING);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let allowed = Rc::new(Cell::new(connection.current_max_send_streams()));
    tokio::task::spawn_local(run(connection, Rc::clone(&allowed)));
    Ok(Rc::new(Http2Connection { sender, active: Cell::new(0), allowed }))
}

/// The connection's task.
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
    fn new(shared: Rc<Http2Connection>, is_first: bool) -> Self {
        shared.active.set(shared.active.get() + 1);
        Self { shared, is_first, timer: LazyTimer::default() }
    }

    pub(super) fn sender(&self) -> SendRequest<OutgoingBody> {
        self.shared.sender.clone()
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.shared.active.set(self.shared.active.get() - 1);
    }
}

/// A head as HTTP/2 has it: the host in the target (RFC 9113, section 8.3.1), and no fields for one connection only.
pub(super) fn head(mut request: Request<()>, endpoint: &endpoint::EndpointState) -> Request<()> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    let scheme = if endpoint.encryption.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    (target.scheme, target.authority) = (Some(scheme), Some(endpoint.authority.clone()));
    *request.uri_mut() = Uri::from_parts(target).expect("a path, a scheme and an authority make a target");
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        request.headers_mut().remove(name);
    }
    request
}

/// Whether the upstream said that it has not even begun to process a request (RFC 9113, section 8.7).
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            return cause.reason() == Some(h2::Reason::REFUSED_STREAM) && cause.is_remote();
        }
        source = cause.source();
    }
    false
}
