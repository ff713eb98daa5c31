//! Parked connections: silent ones that hold no buffers. To their clients they are like any other.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Client, Gateway, Upstream, eventually, head};

use super::{PLENTY, all_is_given_back, echo, serves, timeouts};

/// Connections are parked at once, and not when the preface of HTTP/2 has been ruled out.
const ALPN: &str = "listen: [{ address: 127.0.0.1:0, http2: alpn }]\n";
/// One worker, with limits beyond what the tests need.
const MANY: &str = "workers: 1\nlimits: { key: { requests: 1000000, per: 1s }, org: { concurrent: 1000 } }\n";

/// Waits until this many connections are parked, and none is open besides.
fn all_are_parked(gateway: &Gateway, count: u32) {
    for gauge in ["keygate_connections", "keygate_connections_parked"] {
        eventually(gauge, || gateway.metric(gauge) == f64::from(count));
    }
}

#[test]
fn parked_connection_answers_the_next_request() {
    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], &[ALPN, PLENTY].concat()).and_secret();
    let mut client = Client::connect(gateway.address);
    // Parked before its first byte, too.
    all_are_parked(&gateway, 1);
    for round in 0..3 {
        let (first, second) = (format!("/{round}/first"), format!("/{round}/second"));
        // Two requests at once: the connection is not parked between them.
        client.send(head("GET", &first, &key, &[], 0) + &head("GET", &second, &key, &[], 0));
        assert_eq!(client.response().body, first.as_bytes());
        assert_eq!(client.response().body, second.as_bytes());
        assert_eq!(gateway.metric("keygate_connections_parked"), 0.0, "a busy connection is not parked");
        all_are_parked(&gateway, 1);
    }
    drop(client);
    all_is_given_back(&gateway);
    assert_eq!(gateway.metric("keygate_connections_parked"), 0.0);
}

#[test]
fn head_and_body_that_wake_a_connection_piece_by_piece_arrive_whole() {
    let upstream = Upstream::answering(|request, stream| {
        use std::io::Write as _;
        let body = &request.body;
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes()).ok();
        stream.write_all(body).ok();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], &[ALPN, PLENTY].concat()).and_secret();
    let mut client = Client::connect(gateway.address);
    all_are_parked(&gateway, 1);
    let request = head("POST", "/", &key, &[], 4) + "body";
    for byte in request.bytes() {
        client.send([byte]);
        eventually("the byte wakes the connection", || gateway.metric("keygate_connections_parked") == 0.0);
    }
    assert_eq!(client.response().body, b"body");
    all_are_parked(&gateway, 1);
}

#[test]
fn slow_head_on_a_parked_connection_is_answered_with_408() {
    let (_upstream, gateway, key) = Gateway::with_secret("timeouts: { head: 300ms, first_byte: 1h, keep_alive: 1h }");
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 200);
    all_are_parked(&gateway, 1);
    client.send("GET /");
    assert_eq!(client.response().code(), "request_timeout");
    assert!(client.rest().is_empty());
    assert_eq!(timeouts(gateway.admin, "head"), 1.0);
    all_is_given_back(&gateway);
}

#[test]
fn parked_connection_is_closed_at_the_idle_timeout() {
    let (_upstream, gateway, key) = Gateway::with_secret("timeouts: { keep_alive: 2s, first_byte: 1h, head: 1h }");
    let mut client = Client::connect(gateway.address);
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(client.get("/", &key).status, 200);
        all_are_parked(&gateway, 1);
        assert!(!client.hears_within(Duration::from_millis(300)), "the time-out begins anew with each request");
    }
    assert!(client.rest().is_empty());
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(timeouts(gateway.admin, "keep_alive"), 1.0);
    all_is_given_back(&gateway);
}

#[test]
fn parked_connection_whose_client_is_gone_is_closed() {
    let (_upstream, gateway, key) = Gateway::with_secret(&[ALPN, PLENTY].concat());
    let mut half_closed = Client::connect(gateway.address);
    let reset = TcpStream::connect(gateway.address).unwrap();
    assert_eq!(half_closed.get("/", &key).status, 200);
    all_are_parked(&gateway, 2);
    half_closed.finish();
    assert!(half_closed.is_closed());
    socket2::SockRef::from(&reset).set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    all_is_given_back(&gateway);
}

#[test]
fn requests_at_the_moment_of_parking_are_answered() {
    const CLIENTS: u32 = 100;
    let (_upstream, gateway, key) = Gateway::with_secret(MANY);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(gateway.address)).collect();
    let began: Vec<Instant> = clients
        .iter_mut()
        .map(|client| {
            assert_eq!(client.get("/", &key).status, 200);
            Instant::now()
        })
        .collect();
    // Each a little later after its first response than the one before, from before to after the second.
    let request = head("GET", "/", &key, &[], 0);
    for (number, (client, began)) in (0..).zip(clients.iter_mut().zip(began)) {
        let due = began + Duration::from_millis(990) + Duration::from_micros(200) * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        client.send(&request);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    all_are_parked(&gateway, CLIENTS);
}

#[test]
fn connections_beyond_those_kept_warm_are_parked_at_once_and_served() {
    const CLIENTS: u32 = 400;
    let (_upstream, gateway, key) = Gateway::with_secret(MANY);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(gateway.address)).collect();
    let request = head("GET", "/", &key, &[], 0);
    // Each sends its next request while its connection, which is one of many, is about to be parked.
    for _ in 0..5 {
        for client in &mut clients {
            client.send(&request);
        }
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
    }
    all_are_parked(&gateway, CLIENTS);
    serves(&gateway, &key);
}
