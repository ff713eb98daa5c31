//! Upstream on hyper: HTTP/1.1 or HTTP/2, over TCP, TLS or a Unix socket, on one thread.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::listen_at;

/// An upstream. Its thread ends with the process.
pub struct HyperUpstream {
    /// Address; that of an upstream on a Unix socket has no listener.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Connections that have ended.
    ended: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// Protocol, and encryption, of upstreams.
#[derive(Clone, Default)]
pub struct HyperOptions {
    /// Streams of a connection of HTTP/2; none: HTTP/1.1.
    max_streams: Option<u32>,
    tls: Option<Arc<ServerConfig>>,
    /// Time before the handshake of TLS.
    delay: Duration,
}

/// Any stream.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

impl HyperOptions {
    pub fn http1() -> Self {
        Self::default()
    }

    pub fn http2() -> Self {
        Self::http2_with_streams(100)
    }

    /// HTTP/2 with at most so many streams on a connection.
    pub fn http2_with_streams(max_streams: u32) -> Self {
        Self { max_streams: Some(max_streams), ..Self::default() }
    }

    /// The same over TLS, with the certificates of this configuration.
    #[must_use]
    pub fn over_tls(self, config: &ServerConfig) -> Self {
        let protocol = if self.max_streams.is_some() { "h2" } else { "http/1.1" };
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.into()];
        Self { tls: Some(Arc::new(config)), ..self }
    }

    /// The same with a handshake that begins after this time.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Starts an upstream on a port of its own.
    pub fn start<F, B, E>(self, service: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> HyperUpstream
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let [upstream] = self.start_each([([127, 0, 0, 1], 0).into()], service);
        upstream
    }

    /// Starts upstreams at these addresses, on one thread for all: a pause of the thread makes none of them
    /// slower than the others.
    pub fn start_each<const N: usize, F, B, E>(
        self,
        addresses: [SocketAddr; N],
        service: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> [HyperUpstream; N]
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let listeners = addresses.map(|address| {
            let listener = listen_at(address);
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let upstreams = listeners.each_ref().map(|listener| HyperUpstream::at(listener.local_addr().unwrap()));
        let counts = upstreams.each_ref().map(HyperUpstream::counts);
        run(async move {
            for (listener, (connections, ended, requests)) in listeners.into_iter().zip(counts) {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (options, service) = (self.clone(), counting(requests, service.clone()));
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        stream.set_nodelay(true).unwrap();
                        connections.fetch_add(1, Ordering::SeqCst);
                        let (served, ended) = (options.clone().serve(stream, service.clone()), Arc::clone(&ended));
                        tokio::spawn(async move {
                            served.await;
                            ended.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        upstreams
    }

    /// Starts an upstream on a Unix socket.
    pub fn start_at_path<F, B, E>(
        self,
        path: &Path,
        service: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> HyperUpstream
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let upstream = HyperUpstream::at(([127, 0, 0, 1], 0).into());
        let (connections, _, requests) = upstream.counts();
        run(async move {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            let service = counting(requests, service);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(self.clone().serve(stream, service.clone()));
                }
            });
        });
        upstream
    }

    async fn serve<F, B, E>(self, stream: impl Stream, service: impl Fn(Request<Incoming>) -> F + Send + 'static)
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        tokio::time::sleep(self.delay).await;
        let stream: Box<dyn Stream> = match self.tls {
            // A client that does not trust the certificate ends the handshake.
            Some(config) => match TlsAcceptor::from(config).accept(stream).await {
                Ok(stream) => Box::new(stream),
                Err(_) => return,
            },
            None => Box::new(stream),
        };
        let (stream, service) = (TokioIo::new(stream), service_fn(service));
        // The client may end a connection as it likes.
        match self.max_streams {
            None => drop(http1::Builder::new().serve_connection(stream, service).await),
            Some(streams) => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                drop(builder.max_concurrent_streams(streams).serve_connection(stream, service).await);
            }
        }
    }
}

impl HyperUpstream {
    fn at(address: SocketAddr) -> Self {
        Self { address, connections: Arc::default(), ended: Arc::default(), requests: Arc::default() }
    }

    fn counts(&self) -> (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        (Arc::clone(&self.connections), Arc::clone(&self.ended), Arc::clone(&self.requests))
    }

    /// Number of connections that are open.
    pub fn open_connections(&self) -> usize {
        self.connections() - self.ended.load(Ordering::SeqCst)
    }

    /// Number of connections accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Number of requests received.
    pub fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Answers with 200 and `ok`.
pub async fn ok(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
}

/// The service, with its requests counted.
fn counting<F>(
    requests: Arc<AtomicUsize>,
    service: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) -> impl Fn(Request<Incoming>) -> F + Clone + Send + 'static {
    move |request| {
        requests.fetch_add(1, Ordering::SeqCst);
        service(request)
    }
}

/// Runs a future, and then what it has spawned, on a thread of its own.
fn run(begin: impl Future<Output = ()> + Send + 'static) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            begin.await;
            std::future::pending::<()>().await;
        });
    });
}
