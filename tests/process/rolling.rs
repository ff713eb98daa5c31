//! Rolling restart: a gateway is stopped under load, and no request fails at clients that reconnect when asked to.
//!
//! A request has failed when it was sent on a connection without `Connection: close` or GOAWAY, and the connection
//! broke or the response is incomplete. A client ends when its connection attempt is refused.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{Client, Setup, Upstream, eventually, head};

/// Concurrent requests on one HTTP/2 connection.
const STREAMS: usize = 4;

/// Counts of all clients.
#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    /// Connections that asked the client to reconnect.
    announced: AtomicUsize,
}

impl Seen {
    fn answers(&self, status: u16, body: &[u8]) {
        assert_eq!((status, body), (200, &b"ok"[..]));
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends requests over HTTP/1 until connections are refused.
fn http1(address: SocketAddr, key: &str, seen: &Seen) {
    while let Ok(mut client) = Client::try_connect(address) {
        loop {
            client.try_send(head("GET", "/", key, &[], 0)).expect("the connection has not announced its end");
            let response = client.try_response_to("GET").expect("a whole response");
            seen.answers(response.status, &response.body);
            if response.header("connection") == Some("close") {
                seen.announced.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
}

/// Sends requests over HTTP/2, several at a time, until connections are refused.
async fn http2(address: SocketAddr, key: &str, seen: &Seen) {
    while let Ok(stream) = tokio::net::TcpStream::connect(address).await {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        join_all((0..STREAMS).map(|_| one_by_one(sender.clone(), address, key, seen))).await;
        drop(sender);
        connection.await.unwrap().expect("the connection ended cleanly");
        seen.announced.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends requests until the connection accepts no more, as after a GOAWAY.
async fn one_by_one(mut sender: SendRequest<Empty<Bytes>>, address: SocketAddr, key: &str, seen: &Seen) {
    while sender.ready().await.is_ok() {
        let request = Request::get(format!("http://{address}/")).header("authorization", format!("Bearer {key}"));
        let response = match sender.try_send_request(request.body(Empty::new()).unwrap()).await {
            Ok(response) => response,
            Err(mut error) if error.message().is_some() => {
                drop(error.take_message());
                return;
            }
            Err(error) => panic!("the request was sent and not answered: {:?}", error.into_error()),
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole response").to_bytes();
        seen.answers(status, &body);
    }
}

/// Protocol of the clients.
type Speak = fn(SocketAddr, &str, &Seen);

fn over_http1(address: SocketAddr, key: &str, seen: &Seen) {
    http1(address, key, seen);
}

fn over_http2(address: SocketAddr, key: &str, seen: &Seen) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(http2(address, key, seen));
}

/// Twenty shutdowns under load, four gateways at a time.
fn roll(speak: Speak) {
    let fleet: Vec<_> = (0..4).map(|_| std::thread::spawn(move || rounds(5, speak))).collect();
    for gateway in fleet {
        gateway.join().expect("no request fails");
    }
}

/// Starts, loads and stops a gateway, several times.
fn rounds(times: usize, speak: Speak) {
    let upstream =
        Upstream::answering(|_, stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")));
    let blocks = "limits: { key: { requests: 1000000, per: 1s } }\ntimeouts: { lame_duck: 200ms }";
    let setup = Setup::new(upstream.address, blocks);
    let (key, address) = (setup.key(), setup.address);
    for _ in 0..times {
        let mut gateway = setup.start();
        let seen = Arc::new(Seen::default());
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (key, seen) = (key.clone(), Arc::clone(&seen));
                std::thread::spawn(move || speak(address, &key, &seen))
            })
            .collect();
        eventually("requests are answered, or a client has failed", || {
            seen.answered.load(Ordering::Relaxed) >= 50 || clients.iter().any(JoinHandle::is_finished)
        });
        gateway.terminate();
        clients.into_iter().for_each(|client| client.join().expect("no request fails"));
        assert_eq!(gateway.wait(), 0);
        assert!(seen.answered.load(Ordering::Relaxed) > 50, "requests are served in the lame-duck time");
        assert!(seen.announced.load(Ordering::Relaxed) >= 4, "every client was asked to reconnect");
    }
}

#[test]
fn twenty_shutdowns_under_load_fail_no_http1_request() {
    roll(over_http1);
}

#[test]
fn twenty_shutdowns_under_load_fail_no_http2_request() {
    roll(over_http2);
}
