//! The accept loop of a listener, and its end.
//!
//! ```text
//! Serving ──lame_duck──▶ LameDuck ──shutdown──▶ block new connections ─▶ accept the backlog ─▶ Closing ─▶ drained
//!    │                     │    └──shutdown────────▲                                            ▲
//!    └─────released────────┴──▶ leave the socket ─▶ LameDuck ─────────────shutdown──────────────┘
//! ```
//!
//! An accepted connection goes to the worker with the fewest: see [`balancer`].
//!
//! No client that was let into the kernel's backlog is turned away: see [`backlog`].

mod acceptor;
mod backlog;
mod balancer;
mod bind;
mod connection;
mod handshake;
mod release;
pub mod proxy_protocol;

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use super::connection_handle::ConnectionHandle;
use super::connection_limiter::{ConnectionPermit, LimitReached};
use super::drain::{DrainStage, OpenConnections};
use super::serving::{ConnectionService, ServeOptions};
use domain::identity::Peer;
use platform::metrics::GaugeGuard;

use acceptor::Acceptor;
use balancer::PlacedConnection;

pub use balancer::{WorkerListener, WorkerLoads};
pub use bind::bind;
pub use release::ListenerRelease;

/// Serves one listener until `shutdown` and the end of its last connection. Must be called on a `LocalRuntime`.
///
/// - `options` is called for each connection, which keeps what it returns.
/// - `service` makes the service of one connection, from its peer and its handle.
/// - When `lame_duck` completes, connections are still accepted and requests served, and clients are asked to reconnect
///   elsewhere: HTTP/1 responses say `Connection: close`, HTTP/2 connections get a GOAWAY.
/// - When the listener is released ([`ListenerRelease`]), nothing more is accepted, and the rest is
///   as after `lame_duck`.
/// - When `shutdown` completes, the backlog is accepted, and nothing after it. Idle connections are closed, and the
///   future completes when the last exchange has ended.
///
/// # Errors
/// The listener cannot be registered with the runtime.
pub async fn serve<S: ConnectionService>(
    listener: WorkerListener,
    options: impl Fn() -> Rc<ServeOptions>,
    lame_duck: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
    service: impl Fn(Rc<Peer>, ConnectionHandle) -> S + Clone + 'static,
) -> io::Result<()> {
    let release = listener.release.clone();
    let mut acceptor = Acceptor::new(listener)?;
    let connections = OpenConnections::default();
    let permit = |address| acquire_permit(address, &options());
    let start = |placed| start_connection(placed, options(), &connections, service.clone());
    let mut shutdown = pin!(shutdown);
    let mut end = acceptor.accept_until(next_end(&release, shutdown.as_mut(), lame_duck), permit, start).await;
    let grace = grace_after(end);
    if end == End::LameDuck {
        connections.enter_stage(DrainStage::LameDuck);
        end = acceptor.accept_until(next_end(&release, shutdown.as_mut(), pending()), permit, start).await;
    }
    if release.is_held_elsewhere() {
        // Entered first, so that connections on their way from other workers are asked to reconnect as well.
        connections.enter_stage(DrainStage::LameDuck);
        acceptor.leave(start).await;
    } else {
        acceptor.block_new_connections();
        acceptor.accept_until(tokio::time::sleep(grace), permit, start).await;
        acceptor.close(permit, start).await;
    }
    if end == End::Released {
        shutdown.await;
    }
    connections.enter_stage(DrainStage::Closing);
    connections.wait_until_closed().await;
    Ok(())
}

/// Time for handshakes that are half-way. Without a lame duck, no client could expect to be served until the end.
fn grace_after(end: End) -> Duration {
    if end == End::Shutdown { Duration::ZERO } else { backlog::HANDSHAKE_GRACE }
}

/// Waits until the listener goes on to another stage.
async fn next_end(
    release: &ListenerRelease,
    shutdown: impl Future<Output = ()>,
    lame_duck: impl Future<Output = ()>,
) -> End {
    tokio::select! {
        // If several have come, the last stage counts.
        biased;
        () = shutdown => End::Shutdown,
        () = release.wait() => End::Released,
        () = lame_duck => End::LameDuck,
    }
}

/// Reason why a listener goes on to another stage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    LameDuck,
    /// Another process accepts on the socket.
    Released,
    Shutdown,
}

/// Acquires the permit of a connection; none when its peer may not connect, or when it exceeds a limit. Such a
/// connection is closed at once: a response would cost more than the limit is meant to allow.
fn acquire_permit(address: SocketAddr, options: &ServeOptions) -> Option<ConnectionPermit> {
    let ip = address.ip().to_canonical();
    if options.peers.as_ref().is_some_and(|peers| !peers.iter().any(|network| network.contains(&ip))) {
        options.connections.refused_peer.inc();
        return None;
    }
    match options.connection_limiter.acquire(address.ip()) {
        Ok(permit) => return Some(permit),
        Err(LimitReached::Total) => options.connections.refused_total.inc(),
        Err(LimitReached::Address) => options.connections.refused_address.inc(),
    }
    None
}

/// Starts a connection as a task of this thread.
fn start_connection<S: ConnectionService>(
    placed: PlacedConnection,
    options: Rc<ServeOptions>,
    connections: &OpenConnections,
    service: impl FnOnce(Rc<Peer>, ConnectionHandle) -> S + 'static,
) {
    let PlacedConnection { stream, address, guards } = placed;
    let open = GaugeGuard::new(&options.connections.open);
    let held = (guards, open);
    let connection = connection::run(stream, address, options, connections.register(), service, held);
    // On the heap at once: the runtime moves a task several times before it polls it.
    tokio::task::spawn_local(Box::pin(connection));
}
