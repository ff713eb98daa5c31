//! Heads and bodies of HTTP/1 that two servers could read differently: refused in words, and nothing behind them is
//! served.

use crate::support::{Client, Gateway, Upstream, head};

use super::{PLENTY, all_is_given_back, echo, serves};

const FIELDS: [&str; 35] = include!("../../../crates/edge/src/transport/http1/refused_fields.in");

const LINES: [&str; 19] = include!("../../../crates/edge/src/transport/http1/refused_lines.in");

const CHUNKS: [&str; 17] = [
    "3\nabc\r\n0\r\n\r\n",
    "3 \r\nabc\r\n0\r\n\r\n",
    " 3\r\nabc\r\n0\r\n\r\n",
    "0x3\r\nabc\r\n0\r\n\r\n",
    "+3\r\nabc\r\n0\r\n\r\n",
    "-3\r\nabc\r\n0\r\n\r\n",
    "3\r\nabcd\r\n0\r\n\r\n",
    "3\r\nabc\n0\r\n\r\n",
    "\r\n0\r\n\r\n",
    ";a\r\n0\r\n\r\n",
    "3;\0\r\nabc\r\n0\r\n\r\n",
    "3;a\nabc\r\n0\r\n\r\n",
    "10000000000000003\r\nabc\r\n0\r\n\r\n",
    "0\r\n x: 1\r\n\r\n",
    "0\r\nx: 1\n\r\n",
    "0\r\n\n",
    "0\n\r\n",
];

/// Sends `broken` and a request behind it. The first is answered with 400, and the connection ends: the second is never
/// served.
fn refused(gateway: &Gateway, upstream: &Upstream, key: &str, broken: &str) {
    let smuggled = head("GET", "/smuggled", key, &[], 0);
    let mut client = Client::connect(gateway.address);
    let response = client.send(format!("{broken}{smuggled}{smuggled}")).response();
    assert_eq!((response.status, response.code().as_str()), (400, "malformed_request"), "{broken:?}");
    assert_eq!(response.header("connection"), Some("close"), "{broken:?}");
    assert_eq!(String::from_utf8_lossy(&client.rest()), "", "{broken:?}");
    assert_eq!(upstream.count(), 0, "{broken:?}: {:?}", upstream.received());
}

#[test]
fn heads_that_two_servers_could_read_differently_are_refused() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    let identity = format!("Host: h\r\nAuthorization: Bearer {key}\r\n");
    for fields in FIELDS {
        refused(&gateway, &upstream, &key, &format!("POST /a HTTP/1.1\r\n{identity}{fields}\r\n"));
        // A line that begins like a field is a field of its own.
        if !fields.starts_with([' ', '\t']) {
            refused(&gateway, &upstream, &key, &format!("POST /a HTTP/1.1\r\n{fields}{identity}\r\n"));
        }
    }
    for line in LINES {
        refused(&gateway, &upstream, &key, &format!("{line}{identity}\r\n"));
    }
    all_is_given_back(&gateway);
    assert_eq!(gateway.metric("keygate_requests_total{code=\"400\",route=\"unread\"}"), 88.0);
    serves(&gateway, &key);
}

#[test]
fn chunked_bodies_that_two_servers_could_read_differently_are_refused() {
    let (upstream, gateway, key) = Gateway::with_key(PLENTY);
    for chunks in CHUNKS {
        let head = head("POST", "/", &key.text, &[("Transfer-Encoding", "chunked")], 0);
        refused(&gateway, &upstream, &key.text, &format!("{head}{chunks}"));
    }
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
    let records = gateway.records();
    assert_eq!(records.len(), CHUNKS.len());
    assert!(records.iter().all(|record| record.status == Some(400)), "{records:?}");
    serves(&gateway, &key.text);
}

#[test]
fn body_that_breaks_off_never_reaches_the_upstream_as_complete() {
    let (upstream, gateway, key) = Gateway::with_key(PLENTY);
    for (framing, body) in [("Content-Length: 10", "some"), ("Transfer-Encoding: chunked", "4\r\nsome\r\n")] {
        let (name, value) = framing.split_once(": ").unwrap();
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key.text, &[(name, value)], 0)).send(body).finish();
        assert!(!String::from_utf8_lossy(&client.rest()).contains(" 200 "), "{framing}");
    }
    all_is_given_back(&gateway);
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.explain_in_flight(&key), 0);
}

#[test]
fn http_1_0_is_served_and_closed_unless_it_asks_to_stay() {
    let upstream = Upstream::answering(|_, stream| {
        use std::io::Write as _;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").ok();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(format!("GET / HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\r\n"));
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    assert!(!headers.iter().any(|(name, _)| name == "transfer-encoding"), "{headers:?}");
    assert_eq!(client.rest(), b"ok");

    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let mut client = Client::connect(gateway.address);
    for path in ["/1", "/2"] {
        client.send(format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\nAuthorization: Bearer {key}\r\n\r\n"));
        let response = client.response();
        assert_eq!(response.header("connection"), Some("keep-alive"));
        assert_eq!(response.body, path.as_bytes());
    }
    client.send(format!("GET /3 HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\r\n"));
    assert_eq!(client.response().body, b"/3");
    assert!(client.rest().is_empty());
    assert_eq!(upstream.last().header("via"), Some("1.0 keygate"));
}

#[test]
fn refusal_comes_before_100_continue() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], PLENTY);
    for length in ["5", "1000000"] {
        let mut client = Client::connect(gateway.address);
        let expecting = [("Expect", "100-continue"), ("Content-Length", length)];
        let response = client.send(head("POST", "/", "sk_live_bad", &expecting, 0)).response();
        assert_eq!((response.status, response.code().as_str()), (401, "invalid_token"), "no 100 comes before it");
        // The body may come or not, so the next request cannot be told from it.
        assert_eq!(response.header("connection"), Some("close"), "{length}");
        assert!(client.rest().is_empty());
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn expected_100_continue_is_sent_for_an_admitted_body() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    let mut client = Client::connect(gateway.address);
    for (name, value, body) in
        [("Content-Length", "5", "hello"), ("Transfer-Encoding", "chunked", "5\r\nhello\r\n0\r\n\r\n")]
    {
        client.send(head("POST", "/", &key, &[("Expect", "100-continue"), (name, value)], 0));
        assert_eq!(client.head().unwrap().0, 100);
        assert_eq!(client.send(body).response().status, 200);
        assert_eq!(upstream.last().body, b"hello");
        assert_eq!(upstream.last().header("expect"), None);
    }
    // Without a body there is nothing to ask for, and HTTP/1.0 knows no 100.
    assert_eq!(client.request("GET", "/", &key, &[("Expect", "100-continue")], b"").status, 200);
    let mut old = Client::connect(gateway.address);
    let request = format!("Authorization: Bearer {key}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(old.send(format!("POST / HTTP/1.0\r\n{request}")).response().status, 200);
    assert_eq!(upstream.last().body, b"hello");
}

#[test]
fn refusal_before_the_body_has_come_closes_the_connection() {
    let (_upstream, gateway, key) = Gateway::with_secret(PLENTY);
    // The body comes later: many clients send it in a write of its own.
    let mut client = Client::connect(gateway.address);
    let response = client.send(head("POST", "/", "sk_live_bad", &[], 5)).response();
    assert_eq!((response.status, response.header("connection")), (401, Some("close")));
    client.try_send("hello").ok();
    assert!(client.rest().is_empty());
    // The body has come with the head: the connection is used again.
    let mut client = Client::connect(gateway.address);
    for _ in 0..2 {
        let response = client.request("POST", "/", "sk_live_bad", &[], b"hello");
        assert_eq!((response.status, response.header("connection")), (401, None));
    }
    assert_eq!(client.get("/", &key).status, 200);
}

#[test]
fn heads_may_come_byte_by_byte_and_after_empty_lines() {
    let (_upstream, gateway, key) = Gateway::with_secret(PLENTY);
    let mut client = Client::connect(gateway.address);
    for lines in ["", "\r\n", "\r\n\r\n"] {
        for byte in format!("{lines}{}", head("GET", "/", &key, &[], 0)).as_bytes() {
            client.send([*byte]);
        }
        assert_eq!(client.response().status, 200, "{lines:?}");
    }
    let response = client.send(format!("\r\n\r\n\r\n{}", head("GET", "/", &key, &[], 0))).response();
    assert_eq!(response.code(), "malformed_request");
    assert!(client.rest().is_empty());
}

/// A request whose head has exactly this many bytes.
fn head_of(length: usize, key: &str) -> String {
    let bare = head("GET", "/", key, &[("X-Long", "")], 0).len();
    head("GET", "/", key, &[("X-Long", &"x".repeat(length - bare))], 0)
}

#[test]
fn head_of_exactly_the_maximum_size_is_accepted() {
    const MOST: usize = 8192;
    let upstream = Upstream::start();
    let gateway =
        Gateway::with(&[upstream.address], &format!("{PLENTY}http: {{ max_head: 8KiB, max_target: 1KiB }}\n"));
    let key = gateway.key().text;
    let fits = head_of(MOST, &key);
    assert_eq!(fits.len(), MOST);
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.send(&fits).response().status, 200);
    // In pieces, and behind others.
    assert_eq!(client.send(&fits[..100]).send(&fits[100..8191]).send(&fits[8191..]).response().status, 200);
    client.send(format!("{fits}{fits}"));
    assert_eq!((client.response().status, client.response().status), (200, 200));
    let large = head_of(MOST + 1, &key);
    for pieces in [vec![large.as_str()], vec![&large[..1], &large[1..8192], &large[8192..]]] {
        let mut client = Client::connect(gateway.address);
        for piece in pieces {
            client.try_send(piece).ok();
        }
        let response = client.response();
        assert_eq!((response.status, response.code().as_str()), (431, "head_too_large"));
        assert_eq!(response.header("connection"), Some("close"));
        assert!(client.rest().is_empty());
    }
    for (length, status) in [(1024, 200), (1025, 414)] {
        let target = format!("/{}", "x".repeat(length - 1));
        assert_eq!(Client::connect(gateway.address).get(&target, &key).status, status);
    }
}
