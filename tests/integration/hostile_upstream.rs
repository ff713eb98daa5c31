//! Broken and hostile upstreams: the client gets 502, 504 or a visible truncation, and nothing else.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use journal::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, fetch_http2, head};

mod connections;
mod http2;
mod http2_resets;
mod timeouts;

const PLENTY: &str = "limits: { key: { requests: 1000000, per: 1s } }";

/// Upstream that answers `/N` with the N-th of these responses.
fn scripted(answers: Vec<Vec<u8>>) -> Upstream {
    Upstream::answering(move |request, stream| {
        let number: usize = request.path().trim_start_matches('/').parse().unwrap();
        stream.write_all(&answers[number]).ok();
    })
}

fn answers(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Requests each of the responses over both versions of HTTP, each on its own connection, and expects 502.
fn assert_all_refused(method: &str, answers: Vec<Vec<u8>>) {
    let (count, texts) = (answers.len(), answers.clone());
    let upstream = scripted(answers);
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
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
fn response_with_ambiguous_framing_is_refused() {
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
    assert_all_refused("GET", texts.into_iter().map(String::into_bytes).collect());
}

#[test]
fn bad_framing_is_refused_without_a_body_too() {
    let texts = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 0, 0\r\n\r\n",
    ];
    assert_all_refused("HEAD", answers(&texts));
}

#[test]
fn invalid_status_line_is_refused() {
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
    assert_all_refused("GET", answers(&texts));
}

#[test]
fn bad_names_control_bytes_and_bare_line_ends_are_refused() {
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
    assert_all_refused("GET", texts);
}

#[test]
fn response_head_has_32_kib_and_100_fields_at_most() {
    let fields = |count: usize| (0..count).map(|number| format!("x-{number}: 1\r\n")).collect::<String>();
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n").into_bytes();
    let large = format!("x: {}\r\n", "x".repeat(32 * 1024));
    assert_all_refused("GET", vec![ok(&fields(100)), ok(&large)]);
    let upstream = scripted(vec![ok(&fields(99))]);
    let gateway = Gateway::start(&upstream);
    let response = Client::connect(gateway.address).get("/0", &gateway.key().text);
    assert_eq!((response.status, response.header("x-98")), (200, Some("1")));
}

#[test]
fn response_fields_with_odd_names_are_dropped_and_counted() {
    let fields = "Set_Cookie: a\r\nx.y: 1\r\nx.y: 2\r\nx|y: 1\r\nx-kept: 1\r\n";
    let upstream = scripted(answers(&[&format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n")]));
    let (gateway, key) = Gateway::start(&upstream).and_secret();
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
fn response_framing_is_set_anew() {
    let upstream = scripted(answers(&[
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\nTrailer: x\r\nKeep-Alive: 1\r\nConnection: \
         x-named\r\nX-Named: 1\r\n\r\n2;ext\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0002\r\nConnection: content-length\r\n\r\nok",
        "HTTP/1.1 200 Custom \u{e9}Reason\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    ]));
    let (gateway, key) = Gateway::start(&upstream).and_secret();
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
fn response_without_a_body_keeps_its_content_length() {
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
            let (gateway, key) = Gateway::with(&[upstream.address], "workers: 1").and_secret();
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
fn interim_responses_are_limited_in_number() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert_all_refused("GET", answers(&[&format!("{}{ok}", interim.repeat(17)), &interim.repeat(1000)]));
    let upstream = scripted(answers(&[&format!("{}{ok}", interim.repeat(16))]));
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        assert_eq!(client.get("/0", &key).body, b"ok");
    }
    assert_eq!(upstream.connections(), 1, "each response has its own count");
}

#[test]
fn interim_responses_do_not_extend_the_response_timeout() {
    let upstream = Upstream::answering(|_, stream| {
        // Fewer than the limit of their number: only the time-out ends this.
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
fn truncated_body_is_visibly_truncated() {
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
    let (gateway, key) = Gateway::start(&upstream).and_secret();
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
fn truncated_body_is_visible_to_http10_clients() {
    let upstream = Upstream::answering(|request, stream| {
        let end = if request.path() == "/whole" { "0\r\n\r\n" } else { "" };
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n{end}");
        stream.write_all(text.as_bytes()).ok();
        stream.shutdown(std::net::Shutdown::Both).ok();
    });
    let (gateway, key) = Gateway::start(&upstream).and_secret();
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
fn each_response_of_a_connection_is_cleaned_of_its_own_fields() {
    let plain = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Own: kept\r\n\r\nok";
    let with = |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 2\r\n\r\nok");
    let fields = ["x_odd: a", "Keep-Alive: a", "Connection: x-named\r\nX-Named: a", "Set-Cookie: __Host-keygate=a"];
    let texts: Vec<String> = fields.iter().flat_map(|field| [plain.to_owned(), with(field)]).collect();
    let upstream = scripted(texts.iter().map(|text| text.clone().into_bytes()).collect());
    let (gateway, key) = Gateway::with(&[upstream.address], PLENTY).and_secret();
    let mut client = Client::connect(gateway.address);
    for (number, text) in texts.iter().enumerate() {
        let response = client.get(&format!("/{number}"), &key);
        assert_eq!((response.status, response.body.as_slice()), (200, &b"ok"[..]), "{text}");
        assert_eq!(response.header("x-own"), (number % 2 == 0).then_some("kept"), "{text}");
        for removed in ["x_odd", "keep-alive", "x-named", "set-cookie"] {
            assert_eq!(response.header(removed), None, "{text}");
        }
    }
    assert_eq!(upstream.connections(), 1, "all over one connection");
}
