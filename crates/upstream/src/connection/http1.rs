//! HTTP/1.1 connections to an endpoint.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::lifetime::{Lifetime, Lifetimes};
use super::limits::ConnectionPermit;
use super::scanned_stream::ConnectionState;
use super::socket::{Encryption, connect_socket};
use crate::exchange::replay_body::{OutgoingBody, ReplayHandle};
use crate::settings::Endpoint;
use platform::large_reads::MAX_BUFFER;
use platform::timer::LazyTimer;

/// Connection: the library's instance, the timer that its exchanges share, and the state of its socket.
///
/// - Dropped, it closes at once, whatever is still going on in either direction.
/// - It is boxed once, since it moves with every exchange.
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<OutgoingBody>,
    pub(crate) timer: LazyTimer,
    pub(crate) state: Rc<ConnectionState>,
    pub(crate) lifetime: Lifetime,
    /// Body of the request that the connection carries, if it has one that may be sent again.
    pub(crate) replay: Option<ReplayHandle>,
    /// Bytes that were read beyond the last response, once the connection speaks another protocol.
    pub(crate) beyond: oneshot::Receiver<Bytes>,
    /// Metrics of the runtime, which count the turns of its event loop.
    runtime: RuntimeMetrics,
    task: Task,
}

/// Task of the library's instance. It ends with this handle, and leaves the socket open.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Returns whether the connection can carry another request: it is open, nothing waits to be read from it, and the
    /// last request has gone whole. `polled`: the event loop has waited for events since the connection became idle.
    pub(crate) fn is_clean(&self, polled: bool) -> bool {
        self.sender.is_ready() && self.state.is_silent(polled)
    }

    /// Gives the library's buffer back that has grown with a body. A new instance serves the next request.
    pub(crate) fn shrink(&mut self) {
        self.state.begin_instance();
        (self.sender, self.beyond, self.task) = start_library(&self.state);
    }

    /// Number of times that the event loop has waited for events with nothing else to do.
    pub(crate) fn turn(&self) -> u64 {
        self.runtime.worker_park_count(0)
    }
}

/// Connects, and starts the connection's task on this thread. The permit is held until the socket is closed.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    encryption: Option<&Encryption>,
    timeout: Duration,
    lifetimes: &Lifetimes,
    permit: ConnectionPermit,
) -> io::Result<Box<Connection>> {
    let socket = tokio::time::timeout(timeout, connect_socket(endpoint, encryption)).await??;
    let state = ConnectionState::new(socket.hold_write_errors(), permit);
    let (sender, beyond, task) = start_library(&state);
    let timer = LazyTimer::default();
    let runtime = Handle::current().metrics();
    let lifetime = Lifetime::begin(lifetimes);
    Ok(Box::new(Connection { sender, timer, state, lifetime, replay: None, beyond, runtime, task }))
}

/// Starts an instance of the HTTP library on a socket, as a task of this thread.
fn start_library(state: &Rc<ConnectionState>) -> (SendRequest<OutgoingBody>, oneshot::Receiver<Bytes>, Task) {
    let mut builder = http1::Builder::new();
    // For bodies. Heads are bounded by the scan of the stream.
    builder.max_buf_size(MAX_BUFFER);
    let handshake = builder.handshake(TokioIo::new(state.stream()));
    let handshake = handshake.now_or_never().expect("peers of HTTP/1.1 exchange nothing before the first request");
    let (sender, connection) = handshake.expect("nothing was exchanged that could fail");
    let (rest, beyond) = oneshot::channel();
    let own = Rc::clone(state);
    let task = tokio::task::spawn_local(async move {
        // The library must not shut the socket down: after a 101, the tunnel goes on with it.
        let mut connection = std::pin::pin!(connection.without_shutdown());
        // The reader of a response wakes the library with each piece that it takes, the last one included. Then the
        // library has nothing to do, which it would take more than a thousand instructions to find out.
        let ended = poll_fn(|cx| if own.is_undisturbed(cx) { Poll::Pending } else { connection.as_mut().poll(cx) });
        match ended.await {
            // The receiver is gone when the connection is.
            Ok(parts) => drop(rest.send(parts.read_buf)),
            Err(error) => tracing::debug!(%error, "an upstream connection ended early"),
        }
    });
    (sender, beyond, Task(task.abort_handle()))
}
