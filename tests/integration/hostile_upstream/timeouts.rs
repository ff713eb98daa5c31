//! Time-outs of upstreams that are slow or silent.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use journal::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, fetch_http2, head};

fn timeouts(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric(&format!("keygate_timeouts_total{{kind=\"{kind}\"}}"))
}

#[test]
fn silent_upstream_times_out_on_the_first_byte() {
    let upstream = Upstream::answering(|_, _| {});
    let (gateway, key) = Gateway::with(&[upstream.address], "timeouts: { response: 200ms }").and_secret();
    let response = Client::connect(gateway.address).get("/", &key);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
    assert_eq!(fetch_http2(gateway.address, "GET", "/", &key).unwrap().status, 504);
    assert_eq!(timeouts(&gateway, "upstream_first_byte"), 2.0);
    assert_eq!(gateway.records()[0].outcome, Outcome::UpstreamError);
}

/// Begins a response and then adds a byte after each pause, while the connection is open; ends after six seconds.
fn trickle(stream: &mut TcpStream, pause: Duration) {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(6) && stream.write_all(b"1\r\nx\r\n").is_ok() {
        std::thread::sleep(pause);
    }
    stream.write_all(b"0\r\n\r\n").ok();
}

#[test]
fn stalled_body_is_cut() {
    let upstream = Upstream::answering(|_, stream| trickle(stream, Duration::from_secs(3)));
    let (gateway, key) = Gateway::with(&[upstream.address], "timeouts: { response_idle: 200ms }").and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/", &key, &[], 0));
    assert!(client.try_response_to("GET").is_err());
    assert!(fetch_http2(gateway.address, "GET", "/", &key).is_err());
    assert_eq!((timeouts(&gateway, "upstream_body"), timeouts(&gateway, "upstream_whole")), (2.0, 0.0));
}

#[test]
fn trickling_exchange_ends_in_time() {
    let upstream = Upstream::answering(|request, stream| match request.path() {
        "/silent" => {}
        _ => trickle(stream, Duration::from_millis(20)),
    });
    let blocks = "timeouts: { exchange: 400ms, response: 10s, response_idle: 10s }";
    let (gateway, key) = Gateway::with(&[upstream.address], blocks).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/", &key, &[], 0));
    assert!(client.try_response_to("GET").is_err());
    assert!(fetch_http2(gateway.address, "GET", "/", &key).is_err());
    let response = Client::connect(gateway.address).get("/silent", &key);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
    assert_eq!((timeouts(&gateway, "upstream_body"), timeouts(&gateway, "upstream_whole")), (0.0, 3.0));
}

#[test]
fn unaccepting_upstream_times_out_on_connecting() {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    // The kernel completes a connection or two by itself; then the others wait.
    let timeout = Duration::from_millis(200);
    let waiting: Vec<TcpStream> = (0..8).map_while(|_| TcpStream::connect_timeout(&address, timeout).ok()).collect();
    assert!(waiting.len() < 8);
    let (gateway, key) = Gateway::with(&[address], "timeouts: { connect: 200ms }").and_secret();
    let response = Client::connect(gateway.address).get("/", &key);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
    assert_eq!(timeouts(&gateway, "upstream_connect"), 1.0);
}
