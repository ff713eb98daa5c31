//! Binding, and the accept loop.

mod backlog;
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
use prometheus::IntGauge;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;

use crate::transport::connection_limiter::Full;
use crate::transport::drain::{Connections, Stage};

use crate::identity::Peer;
use crate::transport::serving::ServeOptions;
use crate::transport::upgrade::UpgradeSlot;

/// Connections the kernel completes and holds for us before it refuses more: what Linux allows by default.
const BACKLOG: i32 = 4096;
/// How long a failed accept is waited out: short enough not to be noticed, long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds `count` listeners to one address, among which the kernel spreads the connections (`SO_REUSEPORT`).
///
/// The address is first bound alone, so that a second process on the same address is an error and not a silent
/// partner. With port 0 all share the port that the kernel chose.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    drop(socket(address, false)?);
    let first = socket(address, true)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(socket(address, true)?);
    }
    Ok(listeners)
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves one listener. `serving` is asked at each connection, which keeps what it was told.
///
/// - When `lame_duck` completes, everything goes on, but clients are told to go elsewhere: HTTP/1 responses say
///   `Connection: close`, HTTP/2 connections get a GOAWAY.
/// - When `shutdown` completes, what is still in the queue is accepted, and nothing after it; idle connections are
///   closed, and the future completes when the last exchange has ended.
///
/// `service` makes one service per connection. Must be called on a `LocalRuntime`.
///
/// # Errors
/// The listener cannot be registered with the runtime.
pub async fn serve<S, B>(
    listener: TcpListener,
    serving: impl Fn() -> Rc<ServeOptions>,
    lame_duck: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
    service: impl Fn(Rc<Peer>, UpgradeSlot) -> S + Clone + 'static,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Connections::new();
    let accept = |(stream, address)| start(stream, address, serving(), &connections, service.clone());
    let (mut lame_duck, mut shutdown, mut lame) = (pin!(lame_duck), pin!(shutdown), false);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            () = &mut lame_duck, if !lame => {
                lame = true;
                connections.tell(Stage::LameDuck);
            }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accept(accepted),
                Err(error) => pause(&error).await,
            },
        }
    }
    if let Err(error) = backlog::let_nobody_in(&listener) {
        tracing::debug!(%error, "clients that come while the listener closes may be reset");
    }
    // Without a lame duck, nobody had the time to expect to be served until the end.
    let settled = tokio::time::sleep(if lame { backlog::SETTLING } else { Duration::ZERO });
    let mut settled = pin!(settled);
    loop {
        tokio::select! {
            biased;
            () = &mut settled => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accept(accepted),
                Err(error) => pause(&error).await,
            },
        }
    }
    backlog::drained(listener, accept);
    connections.tell(Stage::Closing);
    connections.ended().await;
    Ok(())
}

fn start<S, B>(
    stream: TcpStream,
    address: SocketAddr,
    serving: Rc<ServeOptions>,
    connections: &Connections,
    service: impl FnOnce(Rc<Peer>, UpgradeSlot) -> S + 'static,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let place = match serving.connection_limiter.enter(address.ip()) {
        Ok(place) => place,
        Err(Full::Total) => return serving.connections.refused_total.inc(),
        Err(Full::Address) => return serving.connections.refused_address.inc(),
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let open = Open::new(serving.connections.open.clone());
    let connection = connection::run(stream, address, serving, connections.join(), service);
    tokio::task::spawn_local(async move {
        connection.await;
        drop((open, place));
    });
}

/// A connection that failed before it was accepted is the client's affair; anything else is ours, and may last.
async fn pause(error: &io::Error) {
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Counts a connection while it is open.
struct Open(IntGauge);

impl Open {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
