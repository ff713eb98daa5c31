//! Connections that have had one request and are silent since.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::runtime::LocalRuntime;
use tokio_rustls::client::TlsStream;

use super::{Protocol, Shape, Trust, connect, connect_tls, http1, http2, runtime};

/// Silent connections, held until this is dropped.
pub(crate) struct Idle {
    runtime: LocalRuntime,
    held: Vec<Held>,
}

#[allow(dead_code, reason = "held, not used")]
enum Held {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Http2(Box<http2::Connection<TlsStream<TcpStream>>>),
}

impl Idle {
    pub(crate) fn new() -> Self {
        Self { runtime: runtime(), held: Vec::new() }
    }

    /// Opens more connections, one after the other, each with one request. HTTP/2 is over TLS, as clients speak it.
    pub(crate) fn open(
        &mut self,
        proxy: SocketAddr,
        protocol: &Protocol,
        trust: &Trust,
        key: &str,
        connections: usize,
    ) {
        for _ in 0..connections {
            self.held.push(self.runtime.block_on(held(proxy, protocol, trust, key)));
        }
    }
}

async fn held(proxy: SocketAddr, protocol: &Protocol, trust: &Trust, key: &str) -> Held {
    let mut times = Vec::new();
    match protocol {
        Protocol::Http1 => {
            let mut stream = connect(proxy).await;
            http1::requests(&mut stream, &[http1::request(key, Shape::Small)], 1, &mut times).await;
            Held::Plain(stream)
        }
        Protocol::Tls(trust) => {
            let mut stream = connect_tls(proxy, trust, b"http/1.1").await;
            http1::requests(&mut stream, &[http1::request(key, Shape::Small)], 1, &mut times).await;
            Held::Tls(Box::new(stream))
        }
        Protocol::Http2(_) => {
            let mut connection = http2::Connection::open(connect_tls(proxy, trust, b"h2").await, key).await;
            connection.requests(1, 1, &mut times).await;
            Held::Http2(Box::new(connection))
        }
        Protocol::ForwardAuth | Protocol::Check => unreachable!("clients do not ask for decisions"),
    }
}
