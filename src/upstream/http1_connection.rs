//! A connection to an endpoint, and the making of one.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::replay_body::OutgoingBody;
use super::scanned_stream::ConnectionState;
use super::settings::Endpoint;
use super::socket::{Encryption, connect_socket};
use crate::timer::LazyTimer;

/// Bytes of an upstream's response head that are taken at most, and bytes of its body that are read at once: of these
/// pieces, about five are held for a client that takes them slowly.
const MAX_HEAD: usize = 32 * 1024;

/// A connection: the library's handle, the timer that its exchanges share, and its socket's state.
///
/// - Dropped, it closes at once, whatever is still going on in either direction.
pub(super) struct Connection {
    pub(super) sender: SendRequest<OutgoingBody>,
    pub(super) timer: LazyTimer,
    pub(super) link: Rc<ConnectionState>,
    /// What was read beyond the last response, once the connection speaks another protocol.
    pub(super) beyond: oneshot::Receiver<Bytes>,
    _task: Task,
}

/// The connection's task, which ends with its handle.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Whether it can take another request: open, silent, and done with the last request as well as with its response.
    pub(super) fn is_clean(&self) -> bool {
        self.sender.is_ready() && self.link.is_silent()
    }
}

/// Connects, and starts the connection's task on this thread.
pub(super) async fn connect(
    endpoint: &Endpoint,
    encryption: Option<&Encryption>,
    timeout: Duration,
) -> io::Result<Connection> {
    let stream = tokio::time::timeout(timeout, connect_socket(endpoint, encryption)).await??;
    let link = ConnectionState::new(stream);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (sender, connection) = builder.handshake(TokioIo::new(link.wire())).await.map_err(io::Error::other)?;
    let (rest, beyond) = oneshot::channel();
    let task = tokio::task::spawn_local(async move {
        // Not shut down by the library: behind a 101 there is more to say, and otherwise all is said.
        match connection.without_shutdown().await {
            // The other end is gone when the connection is.
            Ok(parts) => drop(rest.send(parts.read_buf)),
            Err(error) => tracing::debug!(%error, "an upstream connection ended early"),
        }
    });
    Ok(Connection { sender, timer: LazyTimer::default(), link, beyond, _task: Task(task.abort_handle()) })
}
