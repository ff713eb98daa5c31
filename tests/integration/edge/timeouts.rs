//! Slow and silent clients: each wait has a time-out, a metric and a response, and leaves nothing in flight.

use std::io::Read as _;
use std::time::{Duration, Instant};

use journal::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, eventually, head};

use super::frames::{self, Raw};
use super::{PLENTY, all_is_given_back, endless, serves, timeouts};

/// Sends `sent`, then stays silent. Returns what the gateway sends until it closes the connection.
fn silent_after(gateway: &Gateway, sent: &str, kind: &str) -> Vec<u8> {
    let before = timeouts(gateway.admin, kind);
    let mut client = Client::connect(gateway.address);
    client.send(sent);
    let rest = client.rest();
    eventually("the metric counts it", || timeouts(gateway.admin, kind) == before + 1.0);
    rest
}

#[test]
fn silent_connection_is_closed_without_a_response() {
    let upstream = Upstream::start();
    for listen in ["http2: alpn", "http2: prior_knowledge"] {
        let blocks = format!("\nlisten: [{{ address: 127.0.0.1:0, {listen} }}]\ntimeouts: {{ first_byte: 200ms }}\n");
        let gateway = Gateway::with(&[upstream.address], &blocks);
        assert_eq!(silent_after(&gateway, "", "first_byte"), b"", "{listen}");
        all_is_given_back(&gateway);
        serves(&gateway, &gateway.key().text);
    }
    // The beginning of the preface is not yet a first byte of HTTP.
    let gateway = Gateway::with(&[upstream.address], "timeouts: { first_byte: 200ms }");
    assert_eq!(silent_after(&gateway, "PRI * HTTP/2", "first_byte"), b"");
    all_is_given_back(&gateway);
}

#[test]
fn silent_proxy_is_closed_without_a_response() {
    let upstream = Upstream::start();
    let blocks = "\nlisten: [{ address: 127.0.0.1:0, proxy_protocol: [127.0.0.1] }]\n\
                  timeouts: { handshake: 200ms }\n";
    let gateway = Gateway::with(&[upstream.address], blocks);
    for sent in ["", "PROXY TCP4 192.0.2.1", "\r\n\r\n\0\r\nQUIT\n\x21\x11"] {
        assert_eq!(silent_after(&gateway, sent, "handshake"), b"", "{sent:?}");
    }
    all_is_given_back(&gateway);
}

#[test]
fn head_that_does_not_end_is_answered_with_408() {
    let (upstream, gateway, key) = Gateway::with_key("timeouts: { head: 300ms, first_byte: 1h, keep_alive: 1h }");
    let whole = head("GET", "/", &key.text, &[], 0);
    for sent in ["G", "\r\n", "GET / HTTP/1.1\r\nHost: h\r\n", &whole[..whole.len() - 1]] {
        let answer = String::from_utf8(silent_after(&gateway, sent, "head")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{sent:?}: {answer}");
        assert!(answer.contains("connection: close") && answer.contains("request_timeout"), "{answer}");
    }
    // The second head of a connection, begun with the first or later.
    for apart in [false, true] {
        let mut client = Client::connect(gateway.address);
        client.send(if apart { whole.clone() } else { format!("{whole}GET /") });
        assert_eq!(client.response().status, 200);
        if apart {
            client.send("GET /");
        }
        assert_eq!(client.response().code(), "request_timeout");
        assert!(client.rest().is_empty());
    }
    all_is_given_back(&gateway);
    assert_eq!(upstream.count(), 2);
}

#[test]
fn head_that_trickles_gets_no_more_time() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], "timeouts: { head: 500ms }");
    let began = Instant::now();
    let mut client = Client::connect(gateway.address);
    client.send("GET / HTTP/1.1\r\nX: ");
    while !client.hears_within(Duration::from_millis(20)) {
        client.try_send("x").ok();
        assert!(began.elapsed() < Duration::from_secs(10), "no byte extends the time-out");
    }
    assert_eq!(client.response().code(), "request_timeout");
    assert!(client.rest().is_empty());
}

#[test]
fn body_that_stops_is_answered_with_408_and_gives_its_slot_back() {
    let (_upstream, gateway, key) = Gateway::with_key("timeouts: { body_idle: 300ms }");
    for (name, value, some) in [("Content-Length", "100", "some"), ("Transfer-Encoding", "chunked", "4\r\nsome\r\n")] {
        let sent = format!("{}{some}", head("POST", "/", &key.text, &[(name, value)], 0));
        let answer = String::from_utf8(silent_after(&gateway, &sent, "body_idle")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
    let records = gateway.records();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record.status == Some(408)), "{records:?}");
    assert!(records.iter().all(|record| record.outcome == Outcome::ClientError), "{records:?}");
    serves(&gateway, &key.text);
}

#[test]
fn body_that_trickles_below_the_rate_is_answered_with_408() {
    let (_upstream, gateway, key) = Gateway::with_key("http: { min_body_rate: 1KiB }");
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", &key.text, &[], 1 << 20));
    let began = Instant::now();
    while !client.hears_within(Duration::from_millis(50)) {
        client.try_send("x").ok();
        assert!(began.elapsed() < Duration::from_secs(15), "the trickle is not ended");
    }
    assert_eq!(client.response().code(), "request_timeout");
    assert!(began.elapsed() > Duration::from_secs(4), "the grace of a body is 5 s");
    assert_eq!(timeouts(gateway.admin, "body_rate"), 1.0);
    drop(client);
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
    assert_eq!(gateway.records()[0].status, Some(408));
}

#[test]
fn body_that_is_large_and_steady_is_accepted() {
    let (_upstream, gateway, key) = Gateway::with_key("timeouts: { body_idle: 500ms }\nhttp: { min_body_rate: 1MiB }");
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", &key.text, &[], 20));
    for _ in 0..20 {
        assert!(!client.hears_within(Duration::from_millis(50)));
        client.send("x");
    }
    assert_eq!(client.response().status, 200, "the idle time-out is measured between two pieces");
}

#[test]
fn response_that_the_client_does_not_take_is_dropped() {
    let upstream = endless();
    let (gateway, key) = Gateway::with(&[upstream.address], "timeouts: { write_idle: 400ms }").and_key();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/endless", &key.text, &[], 0));
    assert_eq!(client.head().unwrap().0, 200);
    eventually("the metric counts it", || timeouts(gateway.admin, "write_idle") == 1.0);
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
    let records = gateway.records();
    assert_eq!((records[0].status, records[0].outcome), (Some(200), Outcome::Aborted));
    serves(&gateway, &key.text);
}

#[test]
fn response_that_is_taken_slowly_is_not_dropped() {
    let upstream = endless();
    let (gateway, key) = Gateway::with(&[upstream.address], "timeouts: { write_idle: 400ms }").and_key();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/endless", &key.text, &[], 0));
    assert_eq!(client.head().unwrap().0, 200);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1200) {
        client.read_exact(2 << 20);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateway.explain_in_flight(&key), 1);
    assert_eq!(timeouts(gateway.admin, "write_idle"), 0.0);
}

#[test]
fn stream_whose_window_is_never_opened_is_reset_and_others_are_served() {
    let upstream = endless();
    let gateway = Gateway::with(&[upstream.address], &format!("{PLENTY}timeouts: {{ write_idle: 400ms }}\n"));
    let key = gateway.key();
    // No window from the beginning, and one that is used up; the connection's own window stays open.
    for (window, path) in [(0, "/"), (100_000, "/endless")] {
        let before = timeouts(gateway.admin, "write_idle");
        let mut raw = Raw::connect_with(gateway.address, &[(frames::INITIAL_WINDOW_SIZE, window)]);
        raw.open_window(0, 1 << 20);
        raw.send(frames::request(1, "GET", path, &key.text));
        let mut stream = 1;
        let reset = loop {
            stream += 2;
            raw.send(frames::request(stream, "GET", "/", &key.text));
            raw.open_window(stream, 1 << 20);
            let reset = raw.until(|frame| frame.ends(stream) || frame.is(frames::RST_STREAM, 1));
            if reset.is(frames::RST_STREAM, 1) {
                break reset;
            }
        };
        assert_eq!(reset.payload, frames::CANCEL.to_be_bytes(), "window {window}");
        assert!(stream > 3, "other streams were served meanwhile");
        assert_eq!(timeouts(gateway.admin, "write_idle"), before + 1.0);
        raw.send(frames::request(stream + 2, "GET", "/", &key.text));
        raw.open_window(stream + 2, 1 << 20);
        raw.until(|frame| frame.ends(stream + 2));
        eventually("nothing is in flight", || gateway.explain_in_flight(&key) == 0);
    }
    all_is_given_back(&gateway);
    // The small response was sent whole.
    let records = gateway.records();
    let aborted: Vec<_> = records.iter().filter(|record| record.outcome == Outcome::Aborted).collect();
    assert_eq!(aborted.iter().map(|record| record.path.as_str()).collect::<Vec<_>>(), ["/endless"]);
}

#[test]
fn http2_connection_that_takes_nothing_is_dropped() {
    let upstream = endless();
    let (gateway, key) = Gateway::with(&[upstream.address], "timeouts: { write_idle: 400ms }").and_key();
    let mut raw = Raw::connect_with(gateway.address, &[(frames::INITIAL_WINDOW_SIZE, 1 << 30)]);
    raw.open_window(0, 1 << 30);
    raw.send(frames::request(1, "GET", "/endless", &key.text));
    eventually("the metric counts it", || timeouts(gateway.admin, "write_idle") >= 1.0);
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
    assert_eq!(gateway.records()[0].outcome, Outcome::Aborted);
}

#[test]
fn idle_connection_is_closed_without_a_response() {
    let (_upstream, gateway, key) = Gateway::with_key("timeouts: { keep_alive: 1s, head: 1h, first_byte: 1h }");
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        assert_eq!(client.get("/", &key.text).status, 200);
        assert!(!client.hears_within(Duration::from_millis(400)), "the time-out begins anew with each request");
    }
    assert!(client.rest().is_empty());
    assert_eq!(timeouts(gateway.admin, "keep_alive"), 1.0);
    all_is_given_back(&gateway);
}

#[test]
fn http2_head_that_does_not_end_ends_the_connection() {
    let (upstream, gateway, key) = Gateway::with_secret("timeouts: { head: 300ms }");
    let whole = frames::request(1, "GET", "/", &key);
    let mut begun = whole.clone();
    begun[4] = frames::END_STREAM;
    // A whole frame without the end of its head; then the same with slow CONTINUATION frames.
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send(begun.clone());
    assert!(raw.ends());
    assert_eq!(timeouts(gateway.admin, "head"), 1.0);
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send(begun);
    let began = Instant::now();
    while raw.try_send(frames::frame(frames::CONTINUATION, 0, 1, &frames::field("x", "y"))).is_ok() {
        raw.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let _read = raw.stream.read(&mut [0; 1024]);
        assert!(began.elapsed() < Duration::from_secs(10), "no frame extends the time-out");
    }
    all_is_given_back(&gateway);
    assert_eq!(upstream.count(), 0);
    serves(&gateway, &key);
}

#[test]
fn http2_body_that_stops_is_answered_with_408() {
    let (_upstream, gateway, key) = Gateway::with_key("timeouts: { body_idle: 300ms }");
    let mut raw = Raw::connect(gateway.address);
    raw.send(frames::head(1, "POST", "/", &key.text, &[], false));
    raw.send(frames::frame(frames::DATA, 0, 1, b"some"));
    let answer = raw.until(|frame| frame.is(frames::HEADERS, 1));
    assert_eq!(answer.status(), 408);
    assert_eq!(timeouts(gateway.admin, "body_idle"), 1.0);
    raw.send(frames::request(3, "GET", "/", &key.text));
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 3)).status(), 200, "the connection stays open");
    drop(raw);
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
}
