//! The accept loop of a listener, and its end.
//!
//! ```text
//! Serving ──lame_duck──▶ LameDuck ──shutdown──▶ block new connections ─▶ accept the backlog ─▶ Closing ─▶ drained
//!    └────────────────────shutdown───────────────────────▲
//! ```
//!
//! No client that was let into the kernel's backlog is turned away: see [`backlog`].

mod backlog;
mod bind;
mod connection;
mod handshake;
pub mod proxy_protocol;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::net::TcpStream;

use super::connection_handle::ConnectionHandle;
use super::connection_limiter::LimitReached;
use super::drain::{DrainStage, OpenConnections};
use super::gauge_guard::GaugeGuard;
use super::serving::ServeOptions;
use crate::identity::Peer;

pub use bind::bind;

/// Pause after a failed accept: short enough not to be noticed, long enough not to spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Serves one listener until `shutdown` and the end of its last connection. Must be called on a `LocalRuntime`.
///
/// - `options` is called for each connection, which keeps what it returns.
/// - `service` makes the service of one connection, from its peer and its handle.
/// - When `lame_duck` completes, connections are still accepted and requests served, and clients are asked to reconnect
///   elsewhere: HTTP/1 responses say `Connection: close`, HTTP/2 connections get a GOAWAY.
/// - When `shutdown` completes, the backlog is accepted, and nothing after it. Idle connections are closed, and the
///   future completes when the last exchange has ended.
///
/// # Errors
/// The listener cannot be registered with the runtime.
pub async fn serve<S, B>(
    listener: TcpListener,
    options: impl Fn() -> Rc<ServeOptions>,
    lame_duck: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
    service: impl Fn(Rc<Peer>, ConnectionHandle) -> S + Clone + 'static,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = OpenConnections::new();
    let start = |(stream, address)| start_connection(stream, address, options(), &connections, service.clone());
    let mut shutdown = pin!(shutdown);
    let first_signal = async {
        tokio::select! {
            // If both have come, the shutdown counts.
            biased;
            () = &mut shutdown => DrainStage::Closing,
            () = lame_duck => DrainStage::LameDuck,
        }
    };
    let stage = accept_until(first_signal, &listener, start).await;
    if stage == DrainStage::LameDuck {
        connections.enter_stage(stage);
        accept_until(shutdown, &listener, start).await;
    }
    if let Err(error) = backlog::block_new_connections(&listener) {
        tracing::debug!(%error, "cannot block new connections: clients that connect while it closes may be reset");
    }
    // Without a lame duck, no client could expect to be served until the end.
    let grace = if stage == DrainStage::LameDuck { backlog::HANDSHAKE_GRACE } else { Duration::ZERO };
    accept_until(tokio::time::sleep(grace), &listener, start).await;
    backlog::accept_backlog(listener, start);
    connections.enter_stage(DrainStage::Closing);
    connections.wait_until_closed().await;
    Ok(())
}

/// Accepts connections until `end` completes. Returns its result.
async fn accept_until<T>(
    end: impl Future<Output = T>,
    listener: &tokio::net::TcpListener,
    start: impl Fn((TcpStream, SocketAddr)),
) -> T {
    let mut end = pin!(end);
    loop {
        tokio::select! {
            // The end comes first: under a flood of connections it would otherwise be put off.
            biased;
            result = &mut end => return result,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => start(accepted),
                Err(error) => back_off(&error).await,
            },
        }
    }
}

/// Starts a connection as a task of this thread, unless it exceeds a limit.
fn start_connection<S, B>(
    stream: TcpStream,
    address: SocketAddr,
    options: Rc<ServeOptions>,
    connections: &OpenConnections,
    service: impl FnOnce(Rc<Peer>, ConnectionHandle) -> S + 'static,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // A connection beyond a limit is closed at once: a response would cost more than the limit is meant to allow.
    let permit = match options.connection_limiter.acquire(address.ip()) {
        Ok(permit) => permit,
        Err(LimitReached::Total) => return options.connections.refused_total.inc(),
        Err(LimitReached::Address) => return options.connections.refused_address.inc(),
    };
    // Responses are written whole; waiting to fill a packet would only delay their ends.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client disconnected before its connection was served");
        return;
    }
    let open = GaugeGuard::new(&options.connections.open);
    tokio::task::spawn_local(connection::run(
        stream,
        address,
        options,
        connections.register(),
        service,
        (open, permit),
    ));
}

/// Backs off after accept errors. ECONNABORTED and ECONNRESET concern one client, which went away before it was
/// accepted; others (out of file descriptors, EMFILE) may persist.
async fn back_off(error: &io::Error) {
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections; trying again in {ACCEPT_BACKOFF:?}");
    tokio::time::sleep(ACCEPT_BACKOFF).await;
}
