//! The load and the upstream of the benchmarks: as little of either as can be, on one thread each.
//!
//! Every response is checked: its status is 200, and it has all of its body.

mod http1;
mod http2;
mod idle;
mod open_loop;
mod questions;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use envoy_wire::ext_authz::CHECK;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) use idle::Idle;
pub(crate) use open_loop::OpenLoop;
pub(crate) use upstream::{ECHOED, upstream};

/// Bytes of a small answer's body.
pub(crate) const SMALL: usize = 947;
/// Bytes of a large body, of a request as well as of its answer.
pub(crate) const LARGE: usize = 1 << 20;

/// Requests of one run.
#[derive(Clone)]
pub(crate) struct Load<'a> {
    /// Each connection has the next of these keys.
    pub(crate) keys: &'a [String],
    pub(crate) protocol: Protocol,
    pub(crate) shape: Shape,
    pub(crate) connections: usize,
    /// Requests of all connections together.
    pub(crate) requests: usize,
}

#[derive(Clone)]
pub(crate) enum Protocol {
    Http1,
    Tls(Trust),
    /// HTTP/2 with prior knowledge, with this many requests in flight on each connection.
    Http2(usize),
    /// Questions of another proxy about the small request, by `forward_auth` over HTTP/1.1.
    ForwardAuth,
    /// The same by gRPC: `Check` of Envoy's `ext_authz`.
    Check,
}

/// The certificate that the proxies have.
#[derive(Clone)]
pub(crate) struct Trust(pub(crate) CertificateDer<'static>);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// GET, and an answer of [`SMALL`] bytes.
    Small,
    /// The same, with a connection for each request.
    NewConnections,
    /// The same as the small one, each request of a connection with the next of all keys. Over HTTP/1.1 only.
    KeysInTurn,
    /// POST of [`LARGE`] bytes, and an answer of as many.
    Large,
}

/// Times of the requests of a run, in microseconds, the shortest first.
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    /// The microseconds that the connections return.
    async fn of(connections: Vec<JoinHandle<Vec<u32>>>) -> Self {
        let mut times = Vec::new();
        for connection in connections {
            times.extend(connection.await.unwrap());
        }
        times.sort_unstable();
        Self(times)
    }

    /// Milliseconds within which this share of all requests was answered.
    pub(crate) fn milliseconds(&self, share: f64) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let index = (self.0.len() as f64 * share) as usize;
        f64::from(self.0[index.min(self.0.len() - 1)]) / 1000.0
    }
}

/// Requests in succession on one connection.
pub(crate) fn run(proxy: SocketAddr, key: &str, requests: usize) {
    run_many(proxy, key, 1, requests);
}

/// The same on several connections at once; each takes its part of the requests.
pub(crate) fn run_many(proxy: SocketAddr, key: &str, connections: usize, requests: usize) {
    let keys = [key.to_owned()];
    Load { keys: &keys, protocol: Protocol::Http1, shape: Shape::Small, connections, requests }.run(proxy);
}

impl Load<'_> {
    /// Sends the requests, and returns their times.
    pub(crate) fn run(&self, proxy: SocketAddr) -> Latencies {
        runtime().block_on(async {
            let tasks: Vec<_> = (0..self.connections)
                .map(|number| {
                    let own = self.requests / self.connections + usize::from(number < self.requests % self.connections);
                    let keys = match self.shape {
                        Shape::KeysInTurn => self.keys.to_vec(),
                        _ => vec![self.keys[number % self.keys.len()].clone()],
                    };
                    tokio::task::spawn_local(connection(proxy, keys, self.protocol.clone(), self.shape, own))
                })
                .collect();
            Latencies::of(tasks).await
        })
    }
}

/// Requests of one of the connections of a run; returns their microseconds.
async fn connection(
    proxy: SocketAddr,
    keys: Vec<String>,
    protocol: Protocol,
    shape: Shape,
    requests: usize,
) -> Vec<u32> {
    let (each, connections) = match shape {
        Shape::NewConnections => (1, requests),
        Shape::Small | Shape::KeysInTurn | Shape::Large => (requests, 1),
    };
    let key = &keys[0];
    let plain: Vec<Vec<u8>> = keys.iter().map(|key| http1::request(key, shape)).collect();
    let mut times = Vec::with_capacity(requests);
    for _ in 0..connections {
        let begun = Instant::now();
        match &protocol {
            Protocol::Http1 => {
                http1::requests(&mut connect(proxy).await, &plain, each, &mut times).await;
            }
            Protocol::Tls(trust) => {
                let mut stream = connect_tls(proxy, trust, b"http/1.1").await;
                http1::requests(&mut stream, &plain, each, &mut times).await;
            }
            Protocol::Http2(streams) => {
                let mut connection = http2::Connection::open(connect(proxy).await, key).await;
                connection.requests(each, *streams, &mut times).await;
            }
            Protocol::ForwardAuth => {
                let question = [questions::forward_auth(key)];
                http1::requests(&mut connect(proxy).await, &question, each, &mut times).await;
            }
            Protocol::Check => {
                let (stream, message) = (connect(proxy).await, questions::check(key));
                http2::Connection::open_calls(stream, CHECK, message).await.requests(each, 1, &mut times).await;
            }
        }
        if let (Shape::NewConnections, Some(time)) = (shape, times.last_mut()) {
            // The time of the request includes that of its connection.
            *time = microseconds(begun);
        }
    }
    times
}

/// Microseconds since then.
fn microseconds(begun: Instant) -> u32 {
    u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX)
}

async fn connect(proxy: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(proxy).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn connect_tls(proxy: SocketAddr, trust: &Trust, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trust.0.clone()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, connect(proxy).await).await.unwrap()
}

fn runtime() -> LocalRuntime {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap()
}
