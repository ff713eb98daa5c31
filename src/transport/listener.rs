//! Binding, and the accept loop.

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

use super::connection::{self, Unreadable};
use super::drain::Connections;
use super::settings::Settings;
use crate::identity::Peer;

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

/// What one listener serves.
#[derive(Clone)]
pub struct Serving {
    /// Sizes and time-outs.
    pub settings: Rc<Settings>,
    /// The whole HTTP/1.1 response, head and body, for a head that cannot be read.
    pub answer: Rc<dyn Fn(Unreadable) -> Bytes>,
    /// Open connections.
    pub connections: IntGauge,
}

/// Serves one listener until `shutdown` completes and the last exchange has ended.
///
/// `service` makes one service per connection. Must be called on a `LocalRuntime`.
///
/// # Errors
/// The listener cannot be registered with the runtime.
pub async fn serve<S, B>(
    listener: TcpListener,
    serving: Serving,
    shutdown: impl Future<Output = ()>,
    service: impl Fn(Peer) -> S,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Connections::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let peer = Peer { address, tls: false };
                    start(stream, &serving, &connections, service(peer));
                }
                Err(error) => pause(&error).await,
            },
        }
    }
    drop(listener);
    connections.drain().await;
    Ok(())
}

fn start<S, B>(stream: TcpStream, serving: &Serving, connections: &Connections, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let guard = Open::new(serving.connections.clone());
    let connection = connection::run(stream, serving.clone(), connections.join(), service);
    tokio::task::spawn_local(async move {
        connection.await;
        drop(guard);
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
