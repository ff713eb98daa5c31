//! The PROXY protocol: trusted peers must name the client; no other peer can.

use std::net::IpAddr;

use crate::support::{Client, Gateway, Upstream, eventually, head};

use super::{PLENTY, all_is_given_back};

/// A header of version 2, with this command and family.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, rest].concat()
}

fn start(upstream: &Upstream, http2: &str, from: &str) -> Gateway {
    let listen = format!("\nlisten: [{{ address: 127.0.0.1:0, http2: {http2}, proxy_protocol: [{from}] }}]\n");
    Gateway::with(&[upstream.address], &format!("{PLENTY}{listen}"))
}

/// Headers, and the client that each names; this machine's address if it names none.
fn headers() -> Vec<(Vec<u8>, &'static str)> {
    let v6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1], &[0; 16], &[1, 0, 7, 0]].concat();
    vec![
        (b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n".to_vec(), "192.0.2.1"),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n".to_vec(), "2001:db8::1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (v2(0x21, 0x11, &[192, 0, 2, 1, 198, 51, 100, 1, 18, 103, 1, 187]), "192.0.2.1"),
        (v2(0x21, 0x11, &[192, 0, 2, 1, 198, 51, 100, 1, 18, 103, 1, 187, 4, 0, 1, 0]), "192.0.2.1"),
        (v2(0x21, 0x21, &v6), "2001:db8::1"),
        (v2(0x20, 0x00, &[]), "127.0.0.1"),
        (v2(0x20, 0x11, &[192, 0, 2, 1, 198, 51, 100, 1, 18, 103, 1, 187]), "127.0.0.1"),
    ]
}

#[test]
fn client_is_the_one_that_a_trusted_peer_names() {
    let upstream = Upstream::start();
    for http2 in ["alpn", "prior_knowledge"] {
        let (gateway, key) = start(&upstream, http2, "127.0.0.1").and_secret();
        let mut expected = Vec::new();
        for (header, client) in headers() {
            let request = head("GET", "/", &key, &[("X-Forwarded-For", "203.0.113.9")], 0);
            let bytes = [header.as_slice(), request.as_bytes()].concat();
            // In one write, byte by byte, and the header before the request.
            let pieces: [Vec<&[u8]>; 3] = [vec![&bytes], bytes.chunks(1).collect(), vec![&header, request.as_bytes()]];
            for pieces in pieces {
                let mut connection = Client::connect(gateway.address);
                for piece in pieces {
                    connection.send(piece);
                }
                assert_eq!(connection.response().status, 200, "{header:?}");
                assert_eq!(upstream.last().header("x-forwarded-for"), Some(client), "{header:?}");
                // The header counts for the whole connection.
                assert_eq!(connection.get("/", &key).status, 200);
                assert_eq!(upstream.last().header("x-forwarded-for"), Some(client), "{header:?}");
                expected.extend([client.parse::<IpAddr>().unwrap(); 2]);
            }
        }
        let recorded: Vec<_> = gateway.records().iter().rev().map(|record| record.ip.unwrap()).collect();
        assert_eq!(recorded, expected);
        all_is_given_back(&gateway);
    }
}

#[test]
fn proxy_header_of_an_untrusted_peer_is_malformed_http() {
    let upstream = Upstream::start();
    for (http2, from) in [("alpn", "192.0.2.0/24"), ("prior_knowledge", "192.0.2.0/24"), ("alpn", "")] {
        let (gateway, key) = start(&upstream, http2, from).and_secret();
        for (header, _) in headers() {
            let mut client = Client::connect(gateway.address);
            let response = client.send([&header, head("GET", "/", &key, &[], 0).as_bytes()].concat()).response();
            assert_eq!((response.status, response.code().as_str()), (400, "malformed_request"), "{header:?}");
            assert!(client.rest().is_empty());
        }
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
        assert_eq!(upstream.last().header("x-forwarded-for"), Some("127.0.0.1"));
    }
    assert_eq!(upstream.count(), 3);
}

#[test]
fn trusted_peer_without_a_proxy_header_is_closed_without_a_response() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, "prior_knowledge", "127.0.0.1").and_secret();
    let request = head("GET", "/", &key, &[], 0);
    let wrong = [
        b"".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.1 4711\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\n".to_vec(),
        b"PROXY TCP4 192.0.2.01 198.51.100.1 4711 443\r\n".to_vec(),
        b"proxy TCP4 192.0.2.1 198.51.100.1 4711 443\r\n".to_vec(),
        format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)).into_bytes(),
        v2(0x22, 0x11, &[0; 12]),
        v2(0x21, 0x11, &[0; 11]),
        v2(0x31, 0x11, &[0; 12]),
        v2(0x20, 0x00, &[0; 20_000]),
    ];
    for (number, header) in (1_u32..).zip(&wrong) {
        let mut client = Client::connect(gateway.address);
        client.try_send([header, request.as_bytes()].concat()).ok();
        assert_eq!(client.rest(), b"", "{header:?}");
        eventually("the metric counts it", || {
            gateway.metric("keygate_handshake_failures_total{kind=\"proxy\"}") == f64::from(number)
        });
    }
    // A proxy's own health check, which connects and closes.
    Client::connect(gateway.address).finish();
    all_is_given_back(&gateway);
    assert_eq!(upstream.count(), 0);
    assert!(gateway.records().is_empty());
}

#[test]
fn second_proxy_header_is_malformed_http() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, "alpn", "127.0.0.1").and_secret();
    let header = "PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n";
    for second in ["PROXY TCP4 192.0.2.2 198.51.100.1 4711 443\r\n", "\r\n\r\n\0\r\nQUIT\n\u{20}\0\0\0"] {
        let mut client = Client::connect(gateway.address);
        let response = client.send(format!("{header}{second}{}", head("GET", "/", &key, &[], 0))).response();
        assert_eq!(response.code(), "malformed_request");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn clients_behind_a_proxy_have_limits_of_their_own() {
    let upstream = Upstream::start();
    let blocks = "\nlisten: [{ address: 127.0.0.1:0, proxy_protocol: [127.0.0.0/8] }]\nhttp: { \
                  max_connections_per_address: 2 }\n";
    let (gateway, key) = Gateway::with(&[upstream.address], blocks).and_secret();
    let connect = |client: &str| {
        let mut connection = Client::connect(gateway.address);
        connection.send(format!("PROXY TCP4 {client} 198.51.100.1 1 2\r\n{}", head("GET", "/", &key, &[], 0)));
        connection
    };
    let mut first: Vec<Client> = (0..2).map(|_| connect("192.0.2.1")).collect();
    assert!(first.iter_mut().all(|client| client.response().status == 200));
    assert!(connect("192.0.2.1").try_response_to("GET").is_err(), "a third connection of the same client");
    assert_eq!(connect("192.0.2.2").response().status, 200, "another client of the same proxy");
    assert_eq!(gateway.metric("keygate_connections_refused_total{reason=\"address\"}"), 1.0);
    drop(first);
    eventually("the permits are given back", || gateway.metric("keygate_connections") <= 1.0);
    assert_eq!(connect("192.0.2.1").response().status, 200);
}

#[test]
fn http2_is_accepted_behind_a_proxy_header() {
    use super::frames;
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, "prior_knowledge", "127.0.0.1").and_secret();
    let mut raw = frames::Raw { stream: std::net::TcpStream::connect(gateway.address).unwrap() };
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[]);
    let header = b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n";
    raw.send([header, frames::PREFACE, &settings, &frames::request(1, "GET", "/", &key)].concat());
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("192.0.2.1"));
}
