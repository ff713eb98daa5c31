//! Raw bytes: requests and responses that a careless proxy would pass on, misread or truncate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use journal::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, eventually, head};

#[test]
fn body_that_looks_like_a_response_of_the_http_library_is_passed_on() {
    let body = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (seen, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |_, stream| {
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
        // Sent when the client has the head, so that the gateway writes the body in a write of its own.
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(body.as_bytes()).unwrap();
    });
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        client.send(head("GET", "/", &key, &[], 0));
        assert_eq!(client.head().unwrap().0, 200);
        seen.send(()).unwrap();
        assert_eq!(client.read_exact(body.len()), body.as_bytes());
    }
}

#[test]
fn targets_without_a_path_and_tunnels_are_refused() {
    let upstream = Upstream::start();
    let routes = "
routes:
  - { name: admin, path: /, permission: 'admin:all' }
  - { name: rest, path: /** }
";
    let (gateway, key) = Gateway::with(&[upstream.address], routes).and_secret();
    let auth = format!("Host: h\r\nAuthorization: Bearer {key}\r\n\r\n");
    for line in ["GET example HTTP/1.1", "CONNECT h:80 HTTP/1.1", "TRACE / HTTP/1.1", "CONNECT / HTTP/1.1"] {
        let mut client = Client::connect(gateway.address);
        let response = client.send(format!("{line}\r\n{auth}")).response();
        assert_eq!(response.status, 400, "{line}: {response:?}");
    }
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 403);
    for path in ["/x/..;/", "/x/.;a/y", "/;/"] {
        assert_eq!(Client::connect(gateway.address).get(path, &key).status, 404, "{path}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn exactly_one_valid_host_is_required() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    for hosts in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: \r\n",
        "Host: a b\r\n",
        "Host: u@h\r\n",
        "Host: a\"\r\n",
    ] {
        let mut client = Client::connect(gateway.address);
        let request = format!("GET / HTTP/1.1\r\n{hosts}Authorization: Bearer {key}\r\n\r\n");
        let response = client.send(request).response();
        assert_eq!((response.status, response.code().as_str()), (400, "malformed_request"), "{hosts:?}");
        assert_eq!(response.header("connection"), Some("close"));
    }
    assert_eq!(upstream.count(), 0);
    let mut old = Client::connect(gateway.address);
    old.send(format!("GET / HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\r\n"));
    assert_eq!(old.response().status, 200);
    let mut absolute = Client::connect(gateway.address);
    absolute.send(format!("GET http://u:p@evil/ HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n\r\n"));
    assert_eq!(absolute.response().status, 200);
    assert_eq!(upstream.last().header("x-forwarded-host"), Some("evil"));
    let mut bare = Client::connect(gateway.address);
    bare.send(format!("GET http://evil HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n\r\n"));
    assert_eq!(bare.response().status, 200);
    assert_eq!(upstream.last().line, "GET / HTTP/1.1");
}

#[test]
fn bodies_are_framed_whatever_the_method() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/", &key, &[("Transfer-Encoding", "chunked")], 0)).send("3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.last().body, b"abc");
    let empty = client.request("POST", "/", &key, &[("Content-Length", "0")], b"");
    assert_eq!(empty.status, 200);
    assert_eq!(upstream.last().header("content-length"), Some("0"));
    assert_eq!(client.get("/", &key).status, 200);
    let plain = upstream.last();
    assert_eq!((plain.header("content-length"), plain.header("transfer-encoding")), (None, None));
}

#[test]
fn http_1_0_upstream_does_not_change_the_version_of_responses() {
    let upstream = Upstream::answering(|request, stream| {
        let length = request.body.len();
        stream
            .write_all(
                format!("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: {length}\r\n\r\n").as_bytes(),
            )
            .ok();
        stream.write_all(&request.body).ok();
    });
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    for _ in 0..2 {
        stream.write_all(head("POST", "/", &key, &[("Transfer-Encoding", "chunked")], 0).as_bytes()).unwrap();
        stream.write_all(b"2\r\nok\r\n0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0);
            answer.extend(&piece[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(upstream.last().line, "POST / HTTP/1.1");
    }
}

#[test]
fn response_with_trailers_is_complete() {
    let upstream = Upstream::answering(|_, stream| {
        let answer =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
        stream.write_all(answer.as_bytes()).ok();
    });
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        assert_eq!(client.get("/", &key).body, b"ok");
    }
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::Completed), "{:?}", gateway.records());
    assert_eq!(upstream.connections(), 1, "the connection is reused");
}

#[test]
fn refusal_reaches_a_client_that_is_still_sending() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", "sk_live_bad", &[], 20 << 20));
    let piece = vec![b'x'; 1 << 20];
    (0..20).for_each(|_| {
        client.send(&piece);
    });
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (401, Some("close")));
    assert!(client.is_closed());
}

#[test]
fn pipelined_malformed_head_is_answered_with_its_error() {
    let (_upstream, gateway, key) = Gateway::with_secret("");
    let many: String = (0..101).map(|i| format!("x-{i}: 1\r\n")).collect();
    let mut client = Client::connect(gateway.address);
    client.send(format!("{}GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n", head("GET", "/", &key, &[], 0)));
    assert_eq!(client.response().status, 200);
    assert_eq!(client.response().code(), "head_too_large");
}

#[test]
fn upload_that_breaks_off_is_the_clients_error() {
    let upstream = Upstream::answering(|_, _| {});
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", &key, &[], 100)).send("some");
    drop(client);
    eventually("the use is recorded", || !gateway.records().is_empty());
    let outcome = gateway.records()[0].outcome;
    assert!(matches!(outcome, Outcome::Aborted | Outcome::ClientError), "{outcome:?}");
}

#[test]
fn refused_request_with_a_small_body_keeps_or_announces_the_end_of_its_connection() {
    let (_upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        let response = client.request("POST", "/", "sk_live_bad", &[], b"small");
        assert_eq!((response.status, response.header("connection")), (401, None));
    }
    assert_eq!(client.get("/", &key).status, 200, "the connection is still open");
    // The body comes after the response.
    client.send(head("POST", "/", "sk_live_bad", &[], 5));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (401, Some("close")));
    assert!(client.is_closed());
}

#[test]
fn trailers_of_requests_are_dropped() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n0\r\n\r\n") {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the upstream's connection ended before the body did: {}", received.escape_ascii());
            received.extend(&piece[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        received
    });
    let (gateway, key) = Gateway::with(&[address], "").and_secret();
    let mut client = Client::connect(gateway.address);
    let announced = [("Transfer-Encoding", "chunked"), ("Trailer", "X-User-Id, X-Sum")];
    client.send(head("POST", "/", &key, &announced, 0));
    client.send("3\r\nabc\r\n0\r\nX-User-Id: forged\r\nX-Sum: forged\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let received = String::from_utf8(upstream.join().unwrap()).unwrap().to_ascii_lowercase();
    assert!(received.contains("3\r\nabc\r\n0\r\n\r\n"), "{received}");
    assert!(!received.contains("forged") && !received.contains("trailer"), "{received}");
}
