//! Load of many clients in the background, on one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::until;

/// Clients that send GETs, each one request after the other, until stopped. All connections are made at
/// the beginning and kept.
pub struct Load {
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A client's side of a connection: HTTP/1.1, or a handle on one of HTTP/2 that several clients share.
enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Load {
    /// Clients with a connection each.
    pub fn over_http1(address: SocketAddr, key: &str, clients: usize) -> Self {
        Self::at(address, "/", key, clients)
    }

    /// The same, at a path.
    pub fn at(address: SocketAddr, path: &'static str, key: &str, clients: usize) -> Self {
        Self::start(path, key, async move || {
            let mut senders = Vec::new();
            for _ in 0..clients {
                let (sender, connection) = http1::handshake(connect(address).await).await.unwrap();
                tokio::spawn(connection);
                senders.push(Sender::Http1(sender));
            }
            senders
        })
    }

    /// Clients that share connections of HTTP/2.
    pub fn over_http2(address: SocketAddr, key: &str, connections: usize, clients_of_each: usize) -> Self {
        Self::start("/", key, async move || {
            let mut senders = Vec::new();
            for _ in 0..connections {
                let handshake = http2::handshake(TokioExecutor::new(), connect(address).await);
                let (sender, connection) = handshake.await.unwrap();
                tokio::spawn(connection);
                senders.extend((0..clients_of_each).map(|_| Sender::Http2(sender.clone())));
            }
            senders
        })
    }

    fn start(path: &'static str, key: &str, connect: impl AsyncFnOnce() -> Vec<Sender> + Send + 'static) -> Self {
        let (answered, stop): (Arc<AtomicUsize>, Arc<AtomicBool>) = Default::default();
        let (count, stopped, key) = (Arc::clone(&answered), Arc::clone(&stop), format!("Bearer {key}"));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let clients = connect().await.into_iter().map(|sender| {
                    let (count, stopped, key) = (Arc::clone(&count), Arc::clone(&stopped), key.clone());
                    tokio::spawn(send(sender, path, key, count, stopped))
                });
                for client in clients.collect::<Vec<_>>() {
                    client.await.expect("every request is answered with 200");
                }
            });
        });
        Self { answered, stop, thread }
    }

    /// Number of requests that were answered.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Waits until so many more requests were answered.
    ///
    /// # Panics
    /// When a request fails.
    pub fn wait_for(&self, more: usize) {
        let mut last = self.answered();
        let end = last + more;
        while last < end {
            until("more requests are answered", || {
                assert!(!self.thread.is_finished(), "a request has failed");
                (self.answered() > last).then_some(())
            });
            last = self.answered();
        }
    }

    /// Ends the load when the requests in flight are answered. Returns the number of all.
    ///
    /// # Panics
    /// When a request has failed.
    pub fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("no request fails");
        self.answered.load(Ordering::SeqCst)
    }
}

async fn connect(address: SocketAddr) -> TokioIo<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    TokioIo::new(stream)
}

async fn send(mut sender: Sender, path: &str, key: String, answered: Arc<AtomicUsize>, stopped: Arc<AtomicBool>) {
    while !stopped.load(Ordering::SeqCst) {
        let request = Request::builder().header("authorization", &key);
        let response = match &mut sender {
            Sender::Http1(sender) => {
                sender.ready().await.unwrap();
                let request = request.uri(path).header("host", "gateway.test").body(Empty::new()).unwrap();
                sender.send_request(request).await.unwrap()
            }
            Sender::Http2(sender) => {
                let request = request.uri(format!("http://gateway.test{path}")).body(Empty::new()).unwrap();
                sender.send_request(request).await.unwrap()
            }
        };
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
        answered.fetch_add(1, Ordering::SeqCst);
    }
}
