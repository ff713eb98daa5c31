//! Upstream of a demo with two gateways: answers orders, keeps event streams open, and knows what reached it.
//!
//! Each gateway has it at an address of its own, so that it can hold the requests of one of them back: at the moment of
//! `kill -9`, every client of that gateway then has a request that took a token, has a record, and has no outcome.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;

use super::request_id;
use super::{BURST, GATEWAYS};

/// Order from which on those of the first gateway are held back: half of what the key may have admitted.
const FIRST_HELD: usize = BURST as usize / 2;
/// Time after which the gateway is killed all the same, with fewer requests held back.
const HOLD_TIMEOUT: Duration = Duration::from_secs(10);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The upstream, served by the current runtime.
pub(super) struct Upstream {
    /// Its address for each gateway.
    pub(super) addresses: [SocketAddr; GATEWAYS],
    orders: Arc<watch::Sender<Orders>>,
}

/// Orders that have reached the upstream.
#[derive(Default)]
struct Orders {
    /// Their ids, which the gateways gave them.
    ids: HashSet<Uuid>,
    /// Number of those that are held back.
    held: usize,
    /// None is held back any longer.
    is_released: bool,
}

impl Upstream {
    /// Serves on free ports of this machine.
    pub(super) async fn start() -> std::io::Result<Self> {
        let orders = Arc::new(watch::Sender::new(Orders::default()));
        let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); GATEWAYS];
        for (gateway, address) in addresses.iter_mut().enumerate() {
            let listener = TcpListener::bind(*address).await?;
            *address = listener.local_addr()?;
            tokio::spawn(serve(listener, gateway == 0, Arc::clone(&orders)));
        }
        Ok(Self { addresses, orders })
    }

    /// Waits until this many orders of the first gateway are held back.
    pub(super) async fn until_held(&self, count: usize) {
        let mut orders = self.orders.subscribe();
        let held = orders.wait_for(|orders| orders.held >= count);
        // Too few is no error: the verdicts hold for any moment of the kill.
        tokio::time::timeout(HOLD_TIMEOUT, held).await.ok();
    }

    /// Answers the orders that are held back, and holds no others back.
    pub(super) fn release(&self) {
        self.orders.send_modify(|orders| orders.is_released = true);
    }

    /// The ids of all orders so far.
    pub(super) fn order_ids(&self) -> HashSet<Uuid> {
        self.orders.borrow().ids.clone()
    }
}

async fn serve(listener: TcpListener, is_held: bool, orders: Arc<watch::Sender<Orders>>) {
    loop {
        // A connection that is gone already is the only error that is to be expected on loopback.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let orders = Arc::clone(&orders);
        let service = service_fn(move |request| respond(request, is_held, Arc::clone(&orders)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(
    request: Request<Incoming>,
    is_held: bool,
    orders: Arc<watch::Sender<Orders>>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().path() == "/events" {
        let first = stream::once(async { Ok(Frame::data(Bytes::from_static(b"data: open\n\n"))) });
        return Ok(Response::new(StreamBody::new(first.chain(stream::pending())).boxed_unsync()));
    }
    let mut waits = false;
    orders.send_modify(|orders| {
        orders.ids.extend(request_id(request.headers()));
        waits = is_held && !orders.is_released && orders.ids.len() >= FIRST_HELD;
        orders.held += usize::from(waits);
    });
    if waits {
        // The sender is not dropped before this: the function has it.
        orders.subscribe().wait_for(|orders| orders.is_released).await.ok();
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"ok\n")).boxed_unsync()))
}
