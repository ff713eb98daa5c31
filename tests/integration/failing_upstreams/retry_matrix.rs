//! Every method, with and without a body, against every way to fail: a request is sent a second time only when it
//! may be repeated and nothing of a response has arrived, or a status asks for it; and never a third time, nor
//! twice to one endpoint.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};

use super::retries::{ALL, gateway, good};
use crate::support::upstream::Received;
use crate::support::{Client, Gateway, Upstream, head};

/// A kind of request.
#[derive(Clone, Copy, Debug)]
struct Kind {
    method: &'static str,
    path: &'static str,
    /// True when it may be sent twice: by its method (RFC 9110, section 9.2.2) or because its route says so.
    is_repeatable: bool,
}

/// A way in which an endpoint fails.
#[derive(Clone, Copy, Debug)]
struct Failure {
    name: &'static str,
    answer: fn(&Received, &mut TcpStream),
    /// True when a request that may be repeated gets its response from another endpoint.
    is_retried: bool,
    /// The client's status when it is not sent again; none when the response breaks off behind its head.
    status: Option<u16>,
}

const ROUTES: &str = "routes:\n  - { name: again, path: /again/**, idempotent: true }\n  - { name: all, path: /** }\n";

const KINDS: [Kind; 10] = [
    Kind { method: "GET", path: "/", is_repeatable: true },
    Kind { method: "HEAD", path: "/", is_repeatable: true },
    Kind { method: "OPTIONS", path: "/", is_repeatable: true },
    Kind { method: "PUT", path: "/", is_repeatable: true },
    Kind { method: "DELETE", path: "/", is_repeatable: true },
    Kind { method: "POST", path: "/", is_repeatable: false },
    Kind { method: "PATCH", path: "/", is_repeatable: false },
    Kind { method: "PURGE", path: "/", is_repeatable: false },
    Kind { method: "POST", path: "/again/a", is_repeatable: true },
    Kind { method: "PURGE", path: "/again/a", is_repeatable: true },
];

const FAILURES: [Failure; 9] = [
    Failure { name: "closes without a byte", answer: |_, stream| close(stream), is_retried: true, status: Some(502) },
    Failure {
        name: "503",
        answer: |received, stream| respond(503, received, stream),
        is_retried: true,
        status: Some(503),
    },
    Failure {
        name: "500",
        answer: |received, stream| respond(500, received, stream),
        is_retried: false,
        status: Some(500),
    },
    Failure {
        name: "502",
        answer: |received, stream| respond(502, received, stream),
        is_retried: false,
        status: Some(502),
    },
    Failure {
        name: "closes after a byte",
        answer: |_, stream| send_and_close(b"H", stream),
        is_retried: false,
        status: Some(502),
    },
    Failure {
        name: "closes within the head",
        answer: |_, stream| send_and_close(b"HTTP/1.1 200 OK\r\ncontent-le", stream),
        is_retried: false,
        status: Some(502),
    },
    Failure {
        name: "closes after 103",
        answer: |_, stream| send_and_close(b"HTTP/1.1 103 Early Hints\r\n\r\n", stream),
        is_retried: false,
        status: Some(502),
    },
    Failure {
        name: "sends no HTTP",
        answer: |_, stream| send_and_close(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", stream),
        is_retried: false,
        status: Some(502),
    },
    Failure {
        name: "closes within the body",
        answer: |_, stream| send_and_close(b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\nok", stream),
        is_retried: false,
        status: None,
    },
];

fn close(stream: &mut TcpStream) {
    stream.shutdown(Shutdown::Both).ok();
}

fn send_and_close(bytes: &[u8], stream: &mut TcpStream) {
    stream.write_all(bytes).ok();
    close(stream);
}

fn respond(status: u16, received: &Received, stream: &mut TcpStream) {
    let body = if received.line.starts_with("HEAD ") { "" } else { "no" };
    write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\n{body}").ok();
}

#[test]
fn retries_follow_method_and_failure_in_every_combination() {
    let mut cases = 0;
    for failure in FAILURES {
        let (failing, good) = (Upstream::answering(failure.answer), good());
        let (gateway, key) = gateway(&[&failing, &good], ALL, ROUTES).and_secret();
        for kind in KINDS {
            for body in [&b""[..], b"body"] {
                check(&gateway, &key, kind, body, failure, (&failing, &good));
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 180);
}

/// Sends requests until one of them has gone to the failing endpoint first, and checks where each was sent.
fn check(
    gateway: &Gateway,
    key: &str,
    kind: Kind,
    body: &[u8],
    failure: Failure,
    (failing, good): (&Upstream, &Upstream),
) {
    let case = format!("{} {} with {} bytes, endpoint {}", kind.method, kind.path, body.len(), failure.name);
    // The endpoints take turns.
    for _ in 0..2 {
        let before = [failing.count(), good.count()];
        let status = send(gateway, key, kind, body);
        let sent = [failing.count() - before[0], good.count() - before[1]];
        let (expected, answered) = match (sent[0], failure.is_retried && kind.is_repeatable) {
            (0, _) => ([0, 1], Some(200)),
            (_, true) => ([1, 1], Some(200)),
            // A response to HEAD has no body that could break off.
            (_, false) if failure.status.is_none() && kind.method == "HEAD" => ([1, 0], Some(200)),
            (_, false) => ([1, 0], failure.status),
        };
        assert_eq!((sent, status), (expected, answered), "{case}");
        if sent == [1, 1] {
            let (first, second) = (failing.last(), good.last());
            assert_eq!((&first.line, &first.body), (&second.line, &second.body), "{case}");
            assert_eq!(first.header("x-request-id"), second.header("x-request-id"), "{case}");
        }
        if sent[0] == 1 {
            return;
        }
    }
    panic!("{case}: the failing endpoint got no first try");
}

/// Status of the response; none when it breaks off behind its head.
fn send(gateway: &Gateway, key: &str, Kind { method, path, .. }: Kind, body: &[u8]) -> Option<u16> {
    let mut client = Client::connect(gateway.address);
    client.send([head(method, path, key, &[], body.len()).as_bytes(), body].concat());
    client.try_response_to(method).ok().map(|response| response.status)
}
