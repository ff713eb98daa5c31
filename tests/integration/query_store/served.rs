//! The service on a real socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::support::{Fixture, Home, runtime};
use crate::support::await_refusal;

struct Served {
    address: SocketAddr,
    identity: String,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
    _home: Home,
}

/// Serves a fixture's service on a free port.
fn serve(fixture: Fixture) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let identity = format!("X-Org-Id: {}\r\nX-User-Id: {}\r\n", fixture.caller.org, fixture.caller.user);
    let Fixture { home, service, .. } = fixture;
    let shutdown = async { drop(stopped.await) };
    let thread = std::thread::spawn(move || query_store::run(listener, service, Duration::from_millis(500), shutdown));
    Served { address, identity, stop, thread, _home: home }
}

impl Served {
    /// Sends a request on a new connection, and returns the response up to the end of the connection.
    fn exchange(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        // Written in one piece: the response may arrive, and the connection close, before a second piece is written.
        let request = format!("{head}Host: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

#[test]
fn service_runs_on_a_socket_until_its_shutdown() {
    let served = serve(runtime().block_on(Fixture::new().seeded(30)));
    let identity = served.identity.clone();
    let list = served.exchange(&format!("GET /api/queries?limit=2 HTTP/1.1\r\n{identity}"), "");
    assert!(list.starts_with("HTTP/1.1 200 OK\r\n"), "{list}");
    assert!(list.contains("content-type: application/json\r\n") && list.contains(r#""nextCursor":""#), "{list}");
    let post = format!("POST /api/queries HTTP/1.1\r\nContent-Type: application/json\r\n{identity}");
    assert!(served.exchange(&post, r#"{"name":"x","sql":"select 1"}"#).starts_with("HTTP/1.1 201 Created\r\n"));
    let head = served.exchange(&format!("HEAD /api/queries HTTP/1.1\r\n{identity}"), "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let address = served.address;
    served.stop();
    await_refusal(address);
}

#[test]
fn request_that_bypasses_the_gateway_is_refused() {
    let served = serve(runtime().block_on(Fixture::new().seeded(1)));
    let answer = served.exchange("GET /api/queries HTTP/1.1\r\nAuthorization: Bearer anything\r\n", "");
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.contains("no_identity"), "{answer}");
    assert!(served.exchange("GET /live HTTP/1.1\r\n", "").starts_with("HTTP/1.1 200 OK\r\n"));
    served.stop();
}

#[test]
fn request_that_is_not_http_is_answered_with_a_problem() {
    let served = serve(Fixture::new());
    let answer = served.exchange("nonsense\r\n", "");
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("application/problem+json") && answer.contains("invalid_request"), "{answer}");
    served.stop();
}

#[test]
fn too_large_body_is_refused_before_it_is_complete() {
    let served = serve(Fixture::new());
    let head =
        format!("POST /api/queries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}", served.identity);
    let announced = format!("{head}Content-Length: 1048577\r\n\r\n{{");
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let unannounced = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}1\r\n \r\n", chunk.repeat(16));
    for request in [announced, unannounced] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 30];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413 Payload Too Large");
    }
    served.stop();
}

#[test]
fn unfinished_request_does_not_delay_the_shutdown_beyond_the_drain_time() {
    let served = serve(Fixture::new());
    let mut stream = TcpStream::connect(served.address).unwrap();
    let identity = &served.identity;
    let head = "POST /api/queries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: \
                100\r\nExpect: 100-continue";
    write!(stream, "{head}\r\n{identity}\r\n").unwrap();
    // The server asks for the body when the request is in flight.
    let mut interim = [0; 21];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue");
    write!(stream, "{{").unwrap();
    served.stop();
}
