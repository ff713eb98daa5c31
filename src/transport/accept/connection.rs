//! One downstream connection, from its being accepted to its last byte.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::net::TcpStream;

use super::handshake::{self, Failure, Opened};
use crate::identity::Peer;
use crate::transport::drain::Member;
use crate::transport::serving::ServeOptions;
use crate::transport::stream::SharedStream;
use crate::transport::upgrade::UpgradeSlot;
use crate::transport::watchdog::CLOSING;
use crate::transport::{http1, http2};

/// Runs a connection to its end. Failures are the client's affair, and end here.
pub(super) async fn run<S, B>(
    stream: TcpStream,
    address: SocketAddr,
    serving: Rc<ServeOptions>,
    member: Member,
    service: impl FnOnce(Rc<Peer>, UpgradeSlot) -> S,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let opened = tokio::select! {
        biased;
        opened = handshake::open(stream, address, &serving) => opened,
        () = late(&member) => return,
    };
    let Opened { stream, peer, http2 } = match opened {
        Ok(opened) => opened,
        Err(failure) => return note(&failure, &serving),
    };
    // A client that a proxy named counts among those of its own address.
    let named = (peer.address != address).then(|| serving.connection_limiter.seat(peer.address.ip()));
    let _seat = match named.transpose() {
        Ok(seat) => seat,
        Err(_) => return serving.connections.refused_address.inc(),
    };
    let (stream, upgrade_slot) = (SharedStream::new(stream), UpgradeSlot::default());
    let service = service(peer, upgrade_slot.clone());
    if http2 {
        http2::run(stream, &serving, &member, service).await;
    } else {
        http1::run(stream, &serving, &member, service, &upgrade_slot).await;
    }
}

/// Completes when the listener has closed and what it let in had time to say what it wants.
async fn late(member: &Member) {
    member.closing().await;
    tokio::time::sleep(CLOSING).await;
}

/// Counts a connection that did not come about.
fn note(failure: &Failure, serving: &ServeOptions) {
    tracing::debug!(error = failure as &dyn std::error::Error, "a connection did not come about");
    match failure {
        Failure::Late => serving.timeouts.handshake.inc(),
        Failure::Silent => serving.timeouts.first_byte.inc(),
        Failure::Proxy(_) => serving.connections.failed_proxy.inc(),
        Failure::Tls(_) => serving.connections.failed_tls.inc(),
        Failure::Broken(_) => {}
    }
}
