//! One downstream connection, from its being accepted to its last byte.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::balancer::ConnectionGuards;
use super::handshake::{self, Established, HandshakeError};
use crate::transport::connection_handle::ConnectionHandle;
use crate::transport::drain::Registration;
use crate::transport::serving::{ConnectionService, ServeOptions};
use crate::transport::stream::SharedStream;
use crate::transport::watchdog::CLOSING_GRACE;
use crate::transport::{http1, http2};
use domain::identity::Peer;
use platform::metrics::GaugeGuard;

/// Runs a connection to its end, and drops `_held` then. Its failures concern its client alone: they are counted and
/// logged here.
pub(super) async fn run<S: ConnectionService>(
    stream: TcpStream,
    address: SocketAddr,
    options: Rc<ServeOptions>,
    registration: Registration,
    service: impl FnOnce(Rc<Peer>, ConnectionHandle) -> S,
    _held: (ConnectionGuards, GaugeGuard),
) {
    let established = tokio::select! {
        biased;
        established = handshake::establish(stream, address, &options) => established,
        () = closing_deadline(&registration) => return,
    };
    let Established { stream, peer, http2 } = match established {
        Ok(established) => established,
        Err(error) => return count_failure(&error, &options),
    };
    // A client that a PROXY header names counts among the connections of its own address, not of the proxy's.
    let named_client = (peer.address != address).then_some(peer.address.ip());
    let per_address = named_client.map(|client| options.connection_limiter.acquire_per_address(client));
    let Ok(_permit) = per_address.transpose() else {
        return options.connections.refused_address.inc();
    };
    let stream = SharedStream::new(stream);
    let handle = ConnectionHandle::new(options.settings.credentials.clone());
    let service = service(Rc::clone(&peer), handle.clone());
    if http2 {
        // On the heap: the task of an HTTP/1 connection, which is parked while it is idle, has no room for it.
        Box::pin(http2::run(stream, &options, options.is_proxy(&peer), &registration, service, &handle)).await;
    } else {
        http1::run(stream, &options, &registration, service, &handle.upgrade_slot, &peer).await;
    }
}

/// Completes when the listener has been closing for [`CLOSING_GRACE`]: a handshake that is not complete by then has no
/// request on its way.
async fn closing_deadline(registration: &Registration) {
    registration.wait_for_closing().await;
    tokio::time::sleep(CLOSING_GRACE).await;
}

/// Counts a connection that was not established.
fn count_failure(error: &HandshakeError, options: &ServeOptions) {
    tracing::debug!(error = error as &dyn std::error::Error, "a connection was not established");
    match error {
        HandshakeError::TimedOut => options.timeouts.handshake.inc(),
        HandshakeError::NoFirstByte => options.timeouts.first_byte.inc(),
        HandshakeError::Proxy(_) => options.connections.failed_proxy.inc(),
        HandshakeError::Tls(_) => options.connections.failed_tls.inc(),
        HandshakeError::Io(_) => {}
    }
}
