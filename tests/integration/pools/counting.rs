//! Upstreams that count their open connections, exactly: whenever one is accepted, those that the gateway has
//! closed are left out.

use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

/// `MSG_PEEK | MSG_DONTWAIT` of Linux.
const PEEK_NOW: i32 = 0x02 | 0x40;
/// Time in which a connection that was closed before another one was opened is seen to be closed. Both pass through the
/// same kernel, which may take a moment on a busy machine; a connection that is open in truth stays open for longer.
const SETTLE: Duration = Duration::from_secs(3);

/// Open connections of one upstream, or of several together.
#[derive(Clone, Default)]
pub(super) struct Census(Arc<Inner>);

#[derive(Default)]
struct Inner {
    open: Mutex<Vec<TcpStream>>,
    most: AtomicUsize,
    accepted: AtomicUsize,
}

impl Census {
    /// Connections that are open now.
    pub(super) fn open(&self) -> usize {
        count_open(&mut self.0.open.lock().unwrap())
    }

    /// Most connections that were open at a time.
    pub(super) fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub(super) fn accepted(&self) -> usize {
        self.0.accepted.load(Ordering::SeqCst)
    }

    fn add(&self, stream: &TcpStream, bound: usize) {
        let mut open = self.0.open.lock().unwrap();
        open.push(stream.try_clone().unwrap());
        let deadline = Instant::now() + SETTLE;
        while count_open(&mut open) > bound && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.most.fetch_max(open.len(), Ordering::SeqCst);
        self.0.accepted.fetch_add(1, Ordering::SeqCst);
    }
}

/// Leaves out the connections whose other end is closed.
fn count_open(open: &mut Vec<TcpStream>) -> usize {
    open.retain(|stream| {
        let peeked = socket2::SockRef::from(stream).recv_with_flags(&mut [MaybeUninit::uninit()], PEEK_NOW);
        match peeked {
            Ok(count) => count > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    });
    open.len()
}

/// Protocol of an upstream.
#[derive(Clone, Copy)]
pub(super) enum Protocol {
    Http1,
    /// With so many streams on each connection.
    Http2(u32),
}

/// Starts an upstream that responds to each request after this time. `bound` is what the test expects
/// the gateway to hold to.
pub(super) fn upstream(protocol: Protocol, latency: Duration, census: &Census, bound: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, census) = (listener.local_addr().unwrap(), census.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            census.add(&stream, bound);
            stream.set_nonblocking(true).unwrap();
            runtime.spawn(serve(stream, protocol, latency));
        }
    });
    address
}

async fn serve(stream: TcpStream, protocol: Protocol, latency: Duration) {
    let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream).unwrap());
    let service = service_fn(move |_: Request<Incoming>| async move {
        tokio::time::sleep(latency).await;
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
    });
    match protocol {
        Protocol::Http1 => drop(http1::Builder::new().serve_connection(stream, service).await),
        Protocol::Http2(streams) => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(streams);
            drop(builder.serve_connection(stream, service).await);
        }
    }
}
