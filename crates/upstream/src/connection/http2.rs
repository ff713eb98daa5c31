//! HTTP/2 connection to an endpoint, and its streams.
//!
//! Rapid reset: a server ends a connection, with the streams of all clients, after so many streams that were reset.
//! Each request that a client aborts is one. So the resets of a connection are bounded: it is retired before there are
//! [`MAX_RESETS`] of them, takes no more requests, and its other streams end in peace. While there is no room for
//! another connection it goes on, because no request would be served otherwise.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::head_scan::MAX_HEAD;
use super::lifetime::{Lifetime, Lifetimes};
use super::limits::{ClosingMark, ConnectionPermit, EndpointLink, LocalRequest};
use super::scanned_http2::{Answers, ScannedHttp2Stream};
use super::socket::{Socket, connect_socket};
use crate::endpoint::endpoints::EndpointState;
use crate::exchange::replay_body::OutgoingBody;
use platform::byte_stream::PrefixedStream;
use platform::timer::LazyTimer;

/// Time without a byte, while a stream is open, after which a connection is pinged. It is closed when the answer takes
/// as long again: so a stream over a dead connection ends long before its time-outs.
const PING: Duration = Duration::from_secs(20);
/// Time without an answer, while requests wait for one, after which further requests get another connection. A server
/// that is slow only costs a connection more; behind a load balancer, that one may lead to another server.
const SILENCE: Duration = Duration::from_secs(2);

/// Streams that the gateway has reset, or may yet reset, on a connection. Servers allow from 100 to some 1,000, some of
/// them for each span of time.
const MAX_RESETS: usize = 96;
/// Resets after which a connection takes no more requests: as many as its other streams may bring.
const WORN: usize = MAX_RESETS / 2;
/// Time for which frames on their way to a stream that was reset are dropped in silence. Later ones are answered by
/// another reset.
const RESET_MEMORY: Duration = Duration::from_secs(30);

/// Socket with the permit of its connection: its owner, a task of the HTTP library, alone knows when it is closed.
type CountedSocket = PrefixedStream<ScannedHttp2Stream<Socket>, ConnectionPermit>;

/// Requests that wait for a stream.
pub(crate) struct WaitingRequests {
    pub(crate) link: EndpointLink,
    /// Streams on their way to requests that waited for them, by the numbers of these.
    pub(crate) handed: RefCell<Vec<(u64, Http2Stream)>>,
}

/// Connection, shared by its streams.
pub(crate) struct Http2Connection {
    pub(crate) sender: SendRequest<OutgoingBody>,
    /// Streams in use.
    pub(crate) active: Cell<usize>,
    /// Streams that the upstream allows, as last seen by the connection's task.
    pub(crate) allowed: Rc<Cell<usize>>,
    pub(crate) lifetime: Lifetime,
    /// True once it takes no more requests, because it has answered nothing.
    pub(crate) is_retired: Cell<bool>,
    /// Streams that were dropped before their end, which resets them.
    cancelled: Cell<usize>,
    /// Marks the connection when it is closed for a waiting request.
    pub(crate) closing: ClosingMark,
    pub(crate) answers: Arc<Answers>,
    /// Requests that wait for the head of a response.
    waiting_heads: Cell<usize>,
    /// Answers at the last look for them, and the time of the first look since when none has come.
    seen_answers: Cell<u64>,
    unanswered_since: Cell<Option<Instant>>,
    waiting: Rc<WaitingRequests>,
}

/// Stream of a connection, acquired for one request. Given back when dropped.
pub(crate) struct Http2Stream {
    pub(crate) connection: Rc<Http2Connection>,
    /// True if the connection was made for this request.
    pub(crate) is_first: bool,
    pub(crate) timer: LazyTimer,
    /// True once the response has ended, or failed: the drop resets nothing.
    has_ended: Cell<bool>,
}

/// Request that waits for the head of its response.
pub(crate) struct WaitingHead(Rc<Http2Connection>);

/// Runs the library's tasks on this thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl WaitingRequests {
    pub(crate) fn hand_to(&self, request: LocalRequest, stream: Http2Stream) {
        self.handed.borrow_mut().push((request.id(), stream));
        request.wake();
    }

    /// Has the worker offer its connections, if requests wait.
    pub(crate) fn wake_if_needed(&self) {
        if self.link.needs_offers() {
            self.link.wake();
        }
    }
}

impl Http2Connection {
    /// Returns whether another request may be sent: one that the upstream allows, and whose reset there is room for.
    pub(crate) fn has_free(&self) -> bool {
        self.has_allowed() && (self.active.get() + self.resets() < MAX_RESETS || !self.waiting.link.has_room())
    }

    /// Returns whether the upstream allows another stream.
    pub(crate) fn has_allowed(&self) -> bool {
        self.active.get() < self.allowed.get()
    }

    /// Returns whether the connection has had so many resets that another is to take its place.
    pub(crate) fn is_worn(&self) -> bool {
        self.resets() >= WORN && self.waiting.link.has_room()
    }

    /// Streams that the gateway has reset: those on the wire, or more, while some are on their way to it.
    fn resets(&self) -> usize {
        self.cancelled.get().max(self.answers.resets())
    }

    /// Looks for answers since the last look. Returns whether the connection is silent: for [`SILENCE`] requests have
    /// waited, and nothing of any response has come. The clock is read only when nothing has come since the last look.
    pub(crate) fn check_silence(&self) -> bool {
        let answers = self.answers.count();
        if self.seen_answers.replace(answers) != answers || self.waiting_heads.get() == 0 {
            self.unanswered_since.set(None);
            return false;
        }
        match self.unanswered_since.get() {
            Some(since) => since.elapsed() >= SILENCE,
            None => {
                self.unanswered_since.set(Some(Instant::now()));
                false
            }
        }
    }

    /// Hands the stream that has ended to a request of this worker, or has the worker see whether the connection is
    /// idle.
    fn offer_stream(self: &Rc<Self>) {
        let goes_on = !self.sender.is_closed() && self.lifetime.goes_on() && !self.is_retired.get();
        let is_usable = goes_on && self.has_free() && !self.is_worn();
        match is_usable.then(|| self.waiting.link.take_local()).flatten() {
            Some(request) => self.waiting.hand_to(request, Http2Stream::new(Rc::clone(self), false)),
            None => self.waiting.link.wake(),
        }
    }
}

/// Connects, and starts the connection's tasks on this thread. The permit is held until the socket is closed.
pub(crate) async fn connect(
    endpoint: &EndpointState,
    permit: ConnectionPermit,
    lifetimes: &Lifetimes,
    waiting: Rc<WaitingRequests>,
) -> io::Result<Rc<Http2Connection>> {
    let socket = connect_socket(&endpoint.address, endpoint.encryption.as_ref()).await?;
    let closing = permit.closing_mark().clone();
    let answers = Arc::<Answers>::default();
    let socket = CountedSocket::with_guard(ScannedHttp2Stream::new(socket, Arc::clone(&answers)), permit);
    let mut builder = Builder::new(LocalExecutor);
    let max_head = u32::try_from(MAX_HEAD).expect("the limit of a head is some KiB");
    builder.timer(TokioTimer::new()).max_header_list_size(max_head).keep_alive_interval(PING).keep_alive_timeout(PING);
    // Frames on their way to a client that has gone are dropped. Late ones are answered by RST_STREAM: the library
    // counts these over the life of a connection, and would end it with all its streams. The scan of the frames ends
    // floods of those without data.
    builder.max_concurrent_reset_streams(MAX_RESETS).reset_stream_duration(RESET_MEMORY);
    builder.max_local_error_reset_streams(None);
    let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
    let allowed = Rc::new(Cell::new(connection.current_max_send_streams()));
    tokio::task::spawn_local(run(connection, Rc::clone(&allowed)));
    Ok(Rc::new(Http2Connection {
        sender,
        active: Cell::new(0),
        allowed,
        lifetime: Lifetime::begin(lifetimes),
        is_retired: Cell::new(false),
        cancelled: Cell::new(0),
        closing,
        answers,
        waiting_heads: Cell::new(0),
        seen_answers: Cell::new(0),
        unanswered_since: Cell::new(None),
        waiting,
    }))
}

/// Task of a connection. It notes the number of allowed streams, which the upstream may change at any time.
async fn run(
    mut connection: Connection<TokioIo<CountedSocket>, OutgoingBody, LocalExecutor>,
    allowed: Rc<Cell<usize>>,
) {
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
    pub(crate) fn new(connection: Rc<Http2Connection>, is_first: bool) -> Self {
        connection.active.set(connection.active.get() + 1);
        connection.lifetime.count_request();
        Self { connection, is_first, timer: LazyTimer::default(), has_ended: Cell::new(false) }
    }

    /// Notes that the response has ended, or that the stream has failed: nothing is left to be reset.
    pub(crate) fn note_end(&self) {
        self.has_ended.set(true);
    }

    pub(crate) fn sender(&self) -> SendRequest<OutgoingBody> {
        self.connection.sender.clone()
    }
}

impl WaitingHead {
    pub(crate) fn new(stream: &Http2Stream) -> Self {
        let connection = Rc::clone(&stream.connection);
        connection.waiting_heads.set(connection.waiting_heads.get() + 1);
        Self(connection)
    }
}

impl Drop for WaitingHead {
    fn drop(&mut self) {
        debug_assert!(self.0.waiting_heads.get() > 0, "each request that waits is counted once");
        self.0.waiting_heads.set(self.0.waiting_heads.get() - 1);
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        debug_assert!(self.connection.active.get() > 0, "each stream is counted once");
        self.connection.active.set(self.connection.active.get() - 1);
        if !self.has_ended.get() {
            self.connection.cancelled.set(self.connection.cancelled.get() + 1);
        }
        if self.connection.waiting.link.needs_offers() {
            self.connection.offer_stream();
        }
    }
}
