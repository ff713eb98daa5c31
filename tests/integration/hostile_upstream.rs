//! An upstream that is broken or hostile: nothing of it reaches the client but as 502, 504 or a visible truncation.

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use keygate::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, eventually, fetch_http2, head, over_http2};

const PLENTY: &str = "limits: { key: { requests: 1000000, per: 1s } }";

/// An upstream that answers `/N` with the N-th of these.
fn scripted(answers: Vec<Vec<u8>>) -> Upstream {
    Upstream::answering(move |request, stream| {
        let number: usize = request.path().trim_start_matches('/').parse().unwrap();
        stream.write_all(&answers[number]).ok();
    })
}

fn answers(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Asks for each of the answers over both versions of HTTP, on connections of their own, and expects a 502 each time.
fn none_is_shown(method: &str, answers: Vec<Vec<u8>>) {
    let (count, texts) = (answers.len(), answers.clone());
    let upstream = scripted(answers);
    let gateway = Gateway::with(&[upstream.address], PLENTY);
    let key = gateway.key().text;
    for (number, text) in texts.iter().enumerate() {
        let text = String::from_utf8_lossy(text).chars().take(200).collect::<String>();
        let mut client = Client::connect(gateway.address);
        let old = client.request(method, &format!("/{number}"), &key, &[], b"");
        let new = fetch_http2(gateway.address, method, &format!("/{number}"), &key).unwrap();
        for response in [old, new] {
            assert_eq!(response.status, 502, "{text:?}: {response:?}");
            if method != "HEAD" {
                assert_eq!(response.code(), "upstream_failed", "{text:?}");
            }
        }
    }
    assert_eq!(upstream.connections(), 2 * count, "no connection is used after a bad response");
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::UpstreamError));
}

#[test]
fn a_response_that_could_be_framed_otherwise_is_not_shown() {
    let chunks = "2\r\nok\r\n0\r\n\r\n";
    let encoded = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n{chunks}");
    let sized = |value: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\nok");
    let mut texts: Vec<String> = ["gzip", "gzip, chunked", "chunked, chunked", ",chunked", "chunked,", "identity", ""]
        .iter()
        .map(|value| encoded(&format!("Transfer-Encoding: {value}\r\n")))
        .collect();
    texts.push(encoded("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"));
    texts.push(encoded("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"));
    texts.push(encoded("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n"));
    texts.push(encoded("Content-Length: 12\r\nTransfer-Encoding: chunked\r\n"));
    texts.push(format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
    texts.extend(["2, 2", "2,3", "+2", "-2", "", "0x2", "2 2", "99999999999999999999", "two"].map(sized));
    texts.push("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok".into());
    texts.push("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nok".into());
    none_is_shown("GET", texts.into_iter().map(String::into_bytes).collect());
}

#[test]
fn bad_framing_is_bad_without_a_body_too() {
    let texts = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 0, 0\r\n\r\n",
    ];
    none_is_shown("HEAD", answers(&texts));
}

#[test]
fn a_status_line_that_is_none_is_not_shown() {
    let texts = [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 600 Beyond\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 999 Beyond\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 099 Below\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 +20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 O\x1bK\r\nContent-Length: 0\r\n\r\n",
        " HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "<html>\r\n\r\n",
    ];
    none_is_shown("GET", answers(&texts));
}

#[test]
fn bad_names_control_bytes_and_bare_line_ends_are_not_shown() {
    let field = |field: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{field}\r\n\r\n").into_bytes();
    let mut texts: Vec<Vec<u8>> = [
        "x y: 1",
        "x : 1",
        ": 1",
        " x: 1",
        "\tx: 1",
        "x: 1\r\n folded",
        "x: 1\r\n\tfolded",
        "no colon",
        "x\0: 1",
        "x\x7f: 1",
        "x\u{e9}: 1",
        "x: \0",
        "x: \x01",
        "x: a\x7f",
        "x: a\x08b",
        "x: a\rb",
        "x: a\nb: 1",
        "x: 1\n",
        "x@y: 1",
        "x\"y: 1",
    ]
    .iter()
    .map(|text| field(text))
    .collect();
    texts.push(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n".to_vec());
    texts.push(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n".to_vec());
    texts.push(b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n".to_vec());
    none_is_shown("GET", texts);
}

#[test]
fn a_head_has_32_kib_and_100_fields_at_most() {
    let fields = |count: usize| (0..count).map(|number| format!("x-{number}: 1\r\n")).collect::<String>();
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n").into_bytes();
    let large = format!("x: {}\r\n", "x".repeat(32 * 1024));
    none_is_shown("GET", vec![ok(&fields(100)), ok(&large)]);
    let upstream = scripted(vec![ok(&fields(99))]);
    let gateway = Gateway::start(&upstream);
    let response = Client::connect(gateway.address).get("/0", &gateway.key().text);
    assert_eq!((response.status, response.header("x-98")), (200, Some("1")));
}

#[test]
fn fields_with_odd_names_are_dropped_and_counted() {
    let fields = "Set_Cookie: a\r\nx.y: 1\r\nx.y: 2\r\nx|y: 1\r\nx-kept: 1\r\n";
    let upstream = scripted(answers(&[&format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n")]));
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let old = Client::connect(gateway.address).get("/0", &key);
    let new = fetch_http2(gateway.address, "GET", "/0", &key).unwrap();
    for response in [old, new] {
        assert_eq!((response.status, response.header("x-kept")), (200, Some("1")));
        for dropped in ["set_cookie", "x.y", "x|y"] {
            assert_eq!(response.header(dropped), None, "{response:?}");
        }
    }
    assert_eq!(gateway.metric("keygate_fields_dropped_total{direction=\"response\"}"), 8.0);
}

#[test]
fn framing_is_made_anew() {
    let upstream = scripted(answers(&[
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\nTrailer: x\r\nKeep-Alive: 1\r\nConnection: x-named\r\nX-Named: 1\r\n\r\n\
         2;ext\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0002\r\nConnection: content-length\r\n\r\nok",
        "HTTP/1.1 200 Custom \u{e9}Reason\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    ]));
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for number in 0..3 {
        let response = client.get(&format!("/{number}"), &key);
        assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
        let framing = (response.header("transfer-encoding"), response.header("content-length"));
        assert_eq!(framing, if number == 0 { (Some("chunked"), None) } else { (None, Some("2")) });
        for gone in ["trailer", "keep-alive", "connection", "x-named"] {
            assert_eq!(response.header(gone), None, "{gone}: {response:?}");
        }
        let new = fetch_http2(gateway.address, "GET", &format!("/{number}"), &key).unwrap();
        assert_eq!((new.status, &*new.body, new.header("transfer-encoding")), (200, &b"ok"[..], None));
    }
}

#[test]
fn a_response_without_a_body_has_none_and_keeps_the_length_of_what_it_stands_for() {
    let cases = [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Some("5")),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Some("5")),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", None),
    ];
    for (method, text, length) in cases {
        for smuggled in ["", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"] {
            let upstream = scripted(answers(&[&format!("{text}{smuggled}")]));
            // One worker, so one pool of connections.
            let gateway = Gateway::with(&[upstream.address], "workers: 1");
            let key = gateway.key().text;
            let mut client = Client::connect(gateway.address);
            for _ in 0..3 {
                let response = client.request(method, "/0", &key, &[], b"");
                assert_eq!(response.header("content-length"), length, "{method} {text}: {response:?}");
                assert_eq!(
                    (response.status, response.header("transfer-encoding")),
                    (text[9..12].parse().unwrap(), None)
                );
                let new = fetch_http2(gateway.address, method, "/0", &key).unwrap();
                assert_eq!((new.header("content-length"), new.body.len()), (length, 0), "{method} {text}: {new:?}");
            }
            let expected = if smuggled.is_empty() { 1 } else { 6 };
            assert_eq!(upstream.connections(), expected, "{method} {text}{smuggled}");
        }
    }
}

#[test]
fn interim_responses_are_bounded_in_count() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    none_is_shown("GET", answers(&[&format!("{}{ok}", interim.repeat(17)), &interim.repeat(1000)]));
    let upstream = scripted(answers(&[&format!("{}{ok}", interim.repeat(16))]));
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        assert_eq!(client.get("/0", &key).body, b"ok");
    }
    assert_eq!(upstream.connections(), 1, "each response has its own count");
}

#[test]
fn interim_responses_do_not_stretch_the_time() {
    let upstream = Upstream::answering(|_, stream| {
        // Fewer than are allowed: what ends this is the time.
        for _ in 0..10 {
            if stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(60));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok();
    });
    let gateway = Gateway::with(&[upstream.address], "timeouts: { response: 300ms }");
    let response = Client::connect(gateway.address).get("/", &gateway.key().text);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
}

#[test]
fn a_truncated_body_is_visibly_truncated() {
    let texts = [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nsome",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\nfffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome",
    ];
    let script = answers(&texts);
    let upstream = Upstream::answering(move |request, stream| {
        let number: usize = request.path().trim_start_matches('/').parse().unwrap();
        stream.write_all(&script[number]).ok();
        stream.shutdown(std::net::Shutdown::Both).ok();
    });
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    for (number, text) in texts.iter().enumerate() {
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", &format!("/{number}"), &key, &[], 0));
        let cut = client.try_response_to("GET").expect_err(text);
        assert!(matches!(cut.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{text}: {cut}");
        let reset = fetch_http2(gateway.address, "GET", &format!("/{number}"), &key);
        assert!(reset.is_err(), "{text}: {reset:?}");
    }
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::UpstreamError), "{:?}", gateway.records());
}

#[test]
fn a_truncated_body_is_truncated_for_clients_of_http10_too() {
    let upstream = Upstream::answering(|request, stream| {
        let end = if request.path() == "/whole" { "0\r\n\r\n" } else { "" };
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n{end}");
        stream.write_all(text.as_bytes()).ok();
        stream.shutdown(std::net::Shutdown::Both).ok();
    });
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let fetch = |path: &str| {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.write_all(head("GET", path, &key, &[], 0).replace("HTTP/1.1", "HTTP/1.0").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map(|_| answer)
    };
    assert!(fetch("/whole").unwrap().ends_with(b"\r\n\r\nsome"));
    assert_eq!(fetch("/cut").unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_connection_with_more_to_say_is_not_used_again() {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    for first in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{forged}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{forged}"),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_owned(),
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok".to_owned(),
    ] {
        let upstream = scripted(answers(&[&first]));
        let gateway = Gateway::start(&upstream);
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        for number in 1..=3 {
            assert_eq!(client.get("/0", &key).body, b"ok", "{first}");
            assert_eq!(upstream.connections(), number, "{first}");
        }
    }
}

#[test]
fn bytes_that_come_late_are_nobodys_response() {
    let (ask, asked) = mpsc::channel::<()>();
    let (told, tell) = mpsc::channel();
    let (asked, told) = (Mutex::new(asked), Mutex::new(told));
    let upstream = Upstream::answering(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        asked.lock().unwrap().recv().ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged").ok();
        told.lock().unwrap().send(()).ok();
    });
    let gateway = Gateway::with(&[upstream.address], PLENTY);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for number in 1..=200 {
        assert_eq!(client.get("/", &key).body, b"ok");
        assert_eq!(upstream.connections(), number);
        ask.send(()).unwrap();
        tell.recv().unwrap();
    }
}

/// An upstream that answers at the end of the head, whatever is to come, and tells when its connection is closed.
fn hasty(answer: &'static str) -> (std::net::SocketAddr, mpsc::Receiver<usize>) {
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
fn an_early_answer_is_whole_and_ends_the_upload() {
    for answer in [
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
    ] {
        let (address, is_closed) = hasty(answer);
        let gateway = Gateway::with(&[address], "");
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key, &[], 1 << 20)).send("some");
        let response = client.response();
        assert_eq!((response.status, &*response.body), (403, &b"no"[..]));
        assert_eq!(response.header("connection"), Some("close"));
        // The client has not ended, nor gone away.
        is_closed.recv_timeout(Duration::from_secs(10)).expect("the upstream's connection is closed at once");
        eventually("the slot is back", || gateway.metric("keygate_in_flight") == 0.0);
        drop(client);
        assert_eq!(gateway.records()[0].outcome, Outcome::Completed);
    }
}

#[test]
fn an_early_answer_ends_the_upload_of_a_stream_too() {
    let (address, is_closed) = hasty("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    // Nor does the client's slowness end it.
    let gateway = Gateway::with(&[address], "http: { min_body_rate: 0 }");
    let key = gateway.key().text;
    let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"some")))]);
    let body = StreamBody::new(first.chain(stream::pending()));
    let request =
        Request::post(format!("http://{}/", gateway.address)).header("authorization", format!("Bearer {key}"));
    let request = request.body(body).unwrap();
    over_http2(gateway.address, async |mut sender| {
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
        // The client's connection stays, and so would the upstream's.
        is_closed.recv_timeout(Duration::from_secs(10)).expect("the upstream's connection is closed at once");
    });
}

#[test]
fn an_upload_that_ended_closes_nothing() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for _ in 0..5 {
        let sized = client.request("POST", "/", &key, &[], &vec![b'x'; 100_000]);
        assert_eq!((sized.status, sized.header("connection")), (200, None));
        client.send(head("POST", "/", &key, &[("Transfer-Encoding", "chunked")], 0)).send("2\r\nab\r\n0\r\n\r\n");
        assert_eq!(client.response().header("connection"), None);
    }
    assert_eq!(upstream.connections(), 1);
}

/// An upstream that closes each connection, without a word or with some, when a second request comes on it.
fn forgetful(last_words: &'static [u8]) -> Upstream {
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

/// The answer to a request that meets a dying connection, and how often something was sent again.
fn meets_a_dying_connection(method: &str, body: &[u8], last_words: &'static [u8]) -> (u16, f64, usize) {
    let upstream = forgetful(last_words);
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/first", &key).body, b"ok");
    let response = client.request(method, "/second", &key, &[], body);
    (response.status, gateway.metric("keygate_upstream_retries_total"), upstream.count())
}

#[test]
fn only_what_may_be_repeated_is_sent_again_when_a_pooled_connection_died_unanswered() {
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
        assert_eq!(meets_a_dying_connection(method, b"", b""), (200, 1.0, 3), "{method}");
        assert_eq!(meets_a_dying_connection(method, b"body", b""), (502, 0.0, 2), "{method} with a body");
        assert_eq!(meets_a_dying_connection(method, b"", b"H"), (502, 0.0, 2), "{method} after a byte");
    }
    for method in ["POST", "PATCH", "get"] {
        assert_eq!(meets_a_dying_connection(method, b"", b""), (502, 0.0, 2), "{method}");
    }
}

#[test]
fn nothing_is_sent_again_after_a_new_connection_or_twice() {
    let upstream = forgetful(b"");
    let gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/fresh", &key).status, 502, "on a new connection");
    assert_eq!((upstream.count(), gateway.metric("keygate_upstream_retries_total")), (1, 0.0));
    assert_eq!(client.get("/first", &key).status, 200);
    assert_eq!(client.get("/fresh", &key).status, 502, "again on a new one");
    assert_eq!((upstream.count(), gateway.metric("keygate_upstream_retries_total")), (4, 1.0));
}

fn timeouts(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric(&format!("keygate_timeouts_total{{kind=\"{kind}\"}}"))
}

#[test]
fn an_upstream_that_says_nothing_is_late_with_its_first_byte() {
    let upstream = Upstream::answering(|_, _| {});
    let gateway = Gateway::with(&[upstream.address], "timeouts: { response: 200ms }");
    let key = gateway.key().text;
    let response = Client::connect(gateway.address).get("/", &key);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
    assert_eq!(fetch_http2(gateway.address, "GET", "/", &key).unwrap().status, 504);
    assert_eq!(timeouts(&gateway, "upstream_first_byte"), 2.0);
    assert_eq!(gateway.records()[0].outcome, Outcome::UpstreamError);
}

/// Begins a response and then, while it can, adds a byte to it now and then; ends it after six seconds.
fn trickling(stream: &mut TcpStream, pause: Duration) {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(6) && stream.write_all(b"1\r\nx\r\n").is_ok() {
        std::thread::sleep(pause);
    }
    stream.write_all(b"0\r\n\r\n").ok();
}

#[test]
fn a_body_that_stalls_is_cut() {
    let upstream = Upstream::answering(|_, stream| trickling(stream, Duration::from_secs(3)));
    let gateway = Gateway::with(&[upstream.address], "timeouts: { response_idle: 200ms }");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/", &key, &[], 0));
    assert!(client.try_response_to("GET").is_err());
    assert!(fetch_http2(gateway.address, "GET", "/", &key).is_err());
    assert_eq!((timeouts(&gateway, "upstream_body"), timeouts(&gateway, "upstream_whole")), (2.0, 0.0));
}

#[test]
fn an_exchange_that_trickles_ends_in_time() {
    let upstream = Upstream::answering(|request, stream| match request.path() {
        "/silent" => {}
        _ => trickling(stream, Duration::from_millis(20)),
    });
    let blocks = "timeouts: { exchange: 400ms, response: 10s, response_idle: 10s }";
    let gateway = Gateway::with(&[upstream.address], blocks);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/", &key, &[], 0));
    assert!(client.try_response_to("GET").is_err());
    assert!(fetch_http2(gateway.address, "GET", "/", &key).is_err());
    let response = Client::connect(gateway.address).get("/silent", &key);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
    assert_eq!((timeouts(&gateway, "upstream_body"), timeouts(&gateway, "upstream_whole")), (0.0, 3.0));
}

#[test]
fn an_upstream_that_does_not_accept_is_late_with_the_connection() {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    // The kernel completes a connection or two by itself; then it lets the others wait.
    let timeout = Duration::from_millis(200);
    let waiting: Vec<TcpStream> = (0..8).map_while(|_| TcpStream::connect_timeout(&address, timeout).ok()).collect();
    assert!(waiting.len() < 8);
    let gateway = Gateway::with(&[address], "timeouts: { connect: 200ms }");
    let key = gateway.key().text;
    let response = Client::connect(gateway.address).get("/", &key);
    assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"));
    assert_eq!(timeouts(&gateway, "upstream_connect"), 1.0);
}
