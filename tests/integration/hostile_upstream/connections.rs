//! Connections to hostile upstreams: when they are reused, closed, and requests are sent again.

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use journal::audit::Outcome;

use super::{PLENTY, answers, scripted};
use crate::support::{Client, Gateway, Upstream, eventually, head, over_http2};

#[test]
fn connection_with_leftover_bytes_is_not_reused() {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    for first in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{forged}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{forged}"),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_owned(),
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok".to_owned(),
    ] {
        let upstream = scripted(answers(&[&first]));
        let (gateway, key) = Gateway::start(&upstream).and_secret();
        let mut client = Client::connect(gateway.address);
        for number in 1..=3 {
            assert_eq!(client.get("/0", &key).body, b"ok", "{first}");
            assert_eq!(upstream.connections(), number, "{first}");
        }
    }
}

#[test]
fn late_bytes_are_not_the_next_response() {
    let (send_late, late) = mpsc::channel::<()>();
    let (late_sent, is_sent) = mpsc::channel();
    let (late, late_sent) = (Mutex::new(late), Mutex::new(late_sent));
    let upstream = Upstream::answering(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        late.lock().unwrap().recv().ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged").ok();
        late_sent.lock().unwrap().send(()).ok();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let mut client = Client::connect(gateway.address);
    for number in 1..=200 {
        assert_eq!(client.get("/", &key).body, b"ok");
        assert_eq!(upstream.connections(), number);
        send_late.send(()).unwrap();
        is_sent.recv().unwrap();
    }
}

/// Upstream that responds at the end of the request head, without waiting for the body, and reports when its connection
/// is closed.
fn early_upstream(answer: &'static str) -> (std::net::SocketAddr, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (closed, is_closed)) = (listener.local_addr().unwrap(), mpsc::channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let closed = closed.clone();
            std::thread::spawn(move || {
                let mut received: Vec<u8> = Vec::new();
                while !received.windows(4).any(|window| window == b"\r\n\r\n") {
                    let mut piece = [0; 1024];
                    let read = stream.read(&mut piece).unwrap();
                    received.extend(&piece[..read]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                let rest = io::copy(&mut stream, &mut io::sink()).unwrap_or_default();
                closed.send(usize::try_from(rest).unwrap()).ok();
            });
        }
    });
    (address, is_closed)
}

#[test]
fn early_response_is_whole_and_ends_the_upload() {
    for answer in [
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
    ] {
        let (address, is_closed) = early_upstream(answer);
        let (gateway, key) = Gateway::with(&[address], "").and_secret();
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key, &[], 1 << 20)).send("some");
        let response = client.response();
        assert_eq!((response.status, &*response.body), (403, &b"no"[..]));
        assert_eq!(response.header("connection"), Some("close"));
        // Meanwhile the client has neither finished its request nor closed its connection.
        is_closed.recv_timeout(Duration::from_secs(10)).expect("the upstream's connection is closed at once");
        eventually("the slot is back", || gateway.metric("keygate_in_flight") == 0.0);
        drop(client);
        assert_eq!(gateway.records()[0].outcome, Outcome::Completed);
    }
}

#[test]
fn early_response_ends_the_upload_over_http2() {
    let (address, is_closed) = early_upstream("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    // No minimum rate: the upload must not end because the client is slow.
    let (gateway, key) = Gateway::with(&[address], "http: { min_body_rate: 0 }").and_secret();
    let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"some")))]);
    let body = StreamBody::new(first.chain(stream::pending()));
    let request =
        Request::post(format!("http://{}/", gateway.address)).header("authorization", format!("Bearer {key}"));
    let request = request.body(body).unwrap();
    over_http2(gateway.address, async |mut sender| {
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
        // The client's connection stays open: nothing else would close the upstream's.
        is_closed.recv_timeout(Duration::from_secs(10)).expect("the upstream's connection is closed at once");
    });
}

#[test]
fn connection_is_kept_after_a_whole_upload() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    for _ in 0..5 {
        let sized = client.request("POST", "/", &key, &[], &vec![b'x'; 100_000]);
        assert_eq!((sized.status, sized.header("connection")), (200, None));
        client.send(head("POST", "/", &key, &[("Transfer-Encoding", "chunked")], 0)).send("2\r\nab\r\n0\r\n\r\n");
        assert_eq!(client.response().header("connection"), None);
    }
    assert_eq!(upstream.connections(), 1);
}

/// Upstream that closes each connection when a second request comes on it, after it has sent `last_words`.
fn closing_upstream(last_words: &'static [u8]) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |request, stream| {
        if request.path() == "/first" && count.fetch_add(1, Ordering::SeqCst) == 0 {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        } else if request.path() == "/fresh" {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        } else if count.fetch_add(1, Ordering::SeqCst) == 1 {
            stream.write_all(last_words).unwrap();
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        } else {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain").unwrap();
        }
    })
}

/// Sends a request on a pooled connection that the upstream closes. Returns its status, the number of retries, and the
/// number of requests that the upstream saw.
fn send_on_dying_connection(method: &str, body: &[u8], last_words: &'static [u8]) -> (u16, f64, usize) {
    let upstream = closing_upstream(last_words);
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/first", &key).body, b"ok");
    let response = client.request(method, "/second", &key, &[], body);
    (response.status, gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), upstream.count())
}

#[test]
fn retry_is_for_idempotent_requests() {
    // A byte more than is kept.
    let large = vec![b'x'; 64 * 1024 + 1];
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
        assert_eq!(send_on_dying_connection(method, b"", b""), (200, 1.0, 3), "{method}");
        assert_eq!(send_on_dying_connection(method, b"body", b""), (200, 1.0, 3), "{method} with a body");
        assert_eq!(send_on_dying_connection(method, &large[1..], b""), (200, 1.0, 3), "{method} with 64 KiB");
        assert_eq!(send_on_dying_connection(method, &large, b""), (502, 0.0, 2), "{method} with a larger body");
        assert_eq!(send_on_dying_connection(method, b"", b"H"), (502, 0.0, 2), "{method} after a byte");
    }
    for method in ["POST", "PATCH", "get"] {
        assert_eq!(send_on_dying_connection(method, b"", b""), (502, 0.0, 2), "{method}");
        assert_eq!(send_on_dying_connection(method, b"body", b""), (502, 0.0, 2), "{method} with a body");
    }
}

#[test]
fn request_that_is_sent_again_is_the_same() {
    let upstream = closing_upstream(b"");
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/first", &key).status, 200);
    let long = "x".repeat(20_000);
    let fields =
        [("X-Text", "caf\u{e9}: a; b"), ("X-Empty", ""), ("Accept", "a/b"), ("Accept", "*/*"), ("X-Long", &long)];
    assert_eq!(client.request("GET", "/second?a=%20:b&c", &key, &fields, b"").body, b"again");
    let received = upstream.received();
    let [_, first, again] = &received[..] else { panic!("{received:?}") };
    assert_eq!((&again.line, &again.headers), (&first.line, &first.headers));
    assert!(fields.iter().all(|(name, value)| {
        again.headers.iter().any(|(given, sent)| given.eq_ignore_ascii_case(name) && sent == value)
    }));
}

#[test]
fn retry_happens_once_and_never_after_a_new_connection() {
    let upstream = closing_upstream(b"");
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/fresh", &key).status, 502, "on a new connection");
    assert_eq!((upstream.count(), gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}")), (1, 0.0));
    assert_eq!(client.get("/first", &key).status, 200);
    assert_eq!(client.get("/fresh", &key).status, 502, "also on a new connection after a retry");
    assert_eq!((upstream.count(), gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}")), (4, 1.0));
}
