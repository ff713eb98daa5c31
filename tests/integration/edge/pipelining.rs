//! Several requests in one write, and one request in many writes: the responses are the same, and in order.

use journal::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, eventually, head};

use super::{PLENTY, all_is_given_back, echo};

#[test]
fn requests_in_one_write_are_answered_in_order() {
    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let mut client = Client::connect(gateway.address);
    let requests: String = (0..50).map(|number| head("GET", &format!("/{number}"), &key, &[], 0)).collect();
    client.send(requests);
    for number in 0..50 {
        assert_eq!(client.response().body, format!("/{number}").as_bytes());
    }
    let paths: Vec<_> = upstream.received().iter().map(|request| request.path().to_owned()).collect();
    let expected: Vec<_> = (0..50).map(|number| format!("/{number}")).collect();
    assert_eq!(paths, expected, "in the order of the requests");
}

#[test]
fn each_head_in_one_write_is_cleaned_of_its_own_fields() {
    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_key();
    // Heads that have something to remove stand before and behind heads that have nothing.
    let forged: [&[(&str, &str)]; 6] = [
        &[("X-USER-ID", "forged")],
        &[("x_org_id", "forged")],
        &[("Connection", "x-named"), ("X-Named", "forged")],
        &[("cookie", "__Host-keygate=forged")],
        &[("Keep-Alive", "forged"), ("X-Forwarded-For", "forged")],
        &[("Forwarded", "for=forged"), ("X-Original-URL", "/forged")],
    ];
    let heads = forged.iter().flat_map(|fields| [&[("X-Own", "kept")][..], fields]);
    let requests: String = heads.map(|fields| head("GET", "/", &key.text, fields, 0)).collect();
    let mut client = Client::connect(gateway.address);
    client.send(requests);
    for _ in 0..2 * forged.len() {
        assert_eq!(client.response().status, 200);
    }
    for (number, received) in upstream.received().iter().enumerate() {
        assert!(!received.headers.iter().any(|(_, value)| value.contains("forged")), "{number}: {received:?}");
        assert_eq!(received.header("x-user-id"), Some(&*key.user.to_string()), "{number}");
        assert_eq!(received.header("x-own"), (number % 2 == 0).then_some("kept"), "{number}");
    }
}

/// Two requests with bodies, a malformed one, and one behind it.
fn sequence(key: &str) -> Vec<u8> {
    let chunked = head("POST", "/2", key, &[("Transfer-Encoding", "chunked")], 0);
    [
        head("POST", "/1", key, &[], 3).as_str(),
        "abc",
        &chunked,
        "3;x=y\r\ndef\r\n1\r\ng\r\n0\r\nTrailer: 1\r\n\r\n",
        "\r\nGET /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        &head("GET", "/4", key, &[], 0),
    ]
    .concat()
    .into_bytes()
}

fn answered(mut client: Client, how: &str) {
    assert_eq!(client.response().body, b"/1", "{how}");
    assert_eq!(client.response().body, b"/2", "{how}");
    let refusal = client.response();
    assert_eq!((refusal.status, refusal.code().as_str()), (400, "malformed_request"), "{how}");
    assert_eq!(client.rest(), b"", "{how}");
}

#[test]
fn malformed_request_is_refused_after_the_responses_before_it_however_the_bytes_are_split() {
    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let bytes = sequence(&key);
    for split in 0..=bytes.len() {
        let mut client = Client::connect(gateway.address);
        client.send(&bytes[..split]);
        std::thread::yield_now();
        client.try_send(&bytes[split..]).ok();
        answered(client, &format!("split at {split}"));
    }
    let mut client = Client::connect(gateway.address);
    for byte in &bytes {
        client.try_send([*byte]).ok();
    }
    answered(client, "byte by byte");
    all_is_given_back(&gateway);
    for (number, request) in upstream.received().iter().enumerate() {
        let (path, body) = if number % 2 == 0 { ("/1", "abc") } else { ("/2", "defg") };
        assert_eq!((request.path(), request.body.as_slice()), (path, body.as_bytes()), "request {number}");
    }
    assert_eq!(upstream.count(), 2 * (bytes.len() + 2));
}

#[test]
fn requests_behind_connection_close_are_not_served() {
    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let mut client = Client::connect(gateway.address);
    let last = head("GET", "/1", &key, &[("Connection", "close")], 0);
    client.send(format!("{last}{}", head("GET", "/2", &key, &[], 0)));
    let response = client.response();
    assert_eq!((response.body.as_slice(), response.header("connection")), (&b"/1"[..], Some("close")));
    assert!(client.rest().is_empty());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn client_that_vanishes_behind_a_pipelined_request_leaves_nothing_in_flight() {
    let upstream = echo();
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_key();
    for length in [1, 20, 100] {
        let mut client = Client::connect(gateway.address);
        let second = head("GET", "/2", &key.text, &[], 0);
        client.send(format!("{}{}", head("GET", "/1", &key.text, &[], 0), &second[..length]));
        drop(client);
    }
    // Before they are accepted, nothing is in flight either.
    let admitted = r#"keygate_limit_decisions_total{decision="allowed",policy="org"}"#;
    eventually("the first requests are admitted", || gateway.metric(admitted) == 3.0);
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
}

/// A client that is gone while its request is served gives everything back at once, whatever it has sent behind the
/// request.
#[test]
fn disconnect_is_seen_behind_bytes_that_wait_for_the_response() {
    let upstream = Upstream::answering(|_, _| {});
    // Were it not seen, the request would go on for as long.
    let gateway =
        Gateway::with(&[upstream.address], &format!("{PLENTY}timeouts: {{ response: 10m, exchange: 10m }}\n"));
    let key = gateway.key();
    let request = head("GET", "/silent", &key.text, &[], 0);
    let behind = ["", "x", "\r\n", "\r\n\r\n", "GET / HT", &request, &request.repeat(200)];
    for (number, behind) in behind.iter().enumerate() {
        let mut client = Client::connect(gateway.address);
        client.send(&request);
        eventually("the request is at the upstream", || upstream.count() == number + 1);
        client.send(behind);
        assert_eq!(gateway.explain_in_flight(&key), 1);
        drop(client);
        eventually("the disconnect is seen", || gateway.explain_in_flight(&key) == 0);
    }
    all_is_given_back(&gateway);
    let outcomes: Vec<_> = gateway.records().iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Aborted; 7]);
}

#[test]
fn request_behind_another_is_served_after_a_slow_response() {
    let (gate, upstream) = {
        let gate = std::sync::Arc::new(std::sync::Barrier::new(2));
        let at_upstream = std::sync::Arc::clone(&gate);
        let upstream = Upstream::answering(move |request, stream| {
            use std::io::Write as _;
            if request.path() == "/slow" {
                at_upstream.wait();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
        });
        (gate, upstream)
    };
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    // More than is read ahead, in one write and in pieces, before the first response and during it.
    let behind = head("GET", "/fast", &key, &[], 0).repeat(100);
    for pieces in [1, 7] {
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", "/slow", &key, &[], 0));
        for piece in behind.as_bytes().chunks(behind.len().div_ceil(pieces)) {
            client.send(piece);
        }
        // The gateway has looked for the client's end, and found bytes.
        std::thread::sleep(std::time::Duration::from_millis(700));
        gate.wait();
        for _ in 0..101 {
            assert_eq!(client.response().status, 200);
        }
    }
}
