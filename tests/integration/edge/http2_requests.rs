//! HTTP/2 requests that are malformed, or that would mean something else behind the gateway.

use crate::support::{Client, Gateway, Upstream, head};

use super::frames::{self, Raw};
use super::{PLENTY, all_is_given_back, serves};

#[test]
fn tunnels_and_traces_are_refused() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    let bearer = format!("Bearer {key}");
    let tunnel = [(":method", "CONNECT"), (":authority", "h:80"), ("authorization", &bearer)];
    let tunnel: Vec<u8> = tunnel.iter().flat_map(|(name, value)| frames::field(name, value)).collect();
    let tunnel = frames::frame(frames::HEADERS, frames::END_HEADERS, 1, &tunnel);
    for request in [tunnel, frames::request(1, "TRACE", "/", &key)] {
        let mut raw = Raw::connect(gateway.address);
        raw.send(request);
        assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 400);
        raw.send(frames::request(3, "GET", "/", &key));
        assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 3)).status(), 200, "the connection stays open");
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn fields_that_change_their_meaning_in_http_1_are_refused() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("connection", "x-user-id"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("content-length", "3"),
        ("content-length", "+3"),
        ("host", "a b"),
        ("X-Upper", "1"),
        ("x y", "1"),
        ("x:y", "1"),
        ("", "1"),
        ("x", "a\rb"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x", "a\r\nx-user-id: forged"),
        (":path", "/other"),
        (":unknown", "1"),
    ] {
        let mut raw = Raw::connect(gateway.address);
        raw.send(frames::head(1, "GET", "/", &key, &[(name, value)], true));
        let answer = raw.until(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
        let refused = match answer.kind {
            frames::HEADERS => answer.status() == 400,
            kind => matches!(kind, frames::RST_STREAM | frames::GOAWAY),
        };
        assert!(refused, "{name:?}: {value:?}: {answer:?}");
    }
    for path in ["", "a", "/a b", "/a\0", "/a\r\nx: y", "/a\u{7f}", "/<", "http://h/"] {
        let mut raw = Raw::connect(gateway.address);
        raw.send(frames::request(1, "GET", path, &key));
        let answer = raw.until(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
        let refused = answer.kind != frames::HEADERS || answer.status() == 400;
        assert!(refused, "{path:?}: {:?}", upstream.received());
    }
    all_is_given_back(&gateway);
    assert_eq!(upstream.count(), 0, "{:?}", upstream.received());
    serves(&gateway, &key);
}

#[test]
fn body_of_another_length_than_declared_never_reaches_the_upstream() {
    let (upstream, gateway, key) = Gateway::with_key(PLENTY);
    for body in ["four", "sixsix"] {
        let mut raw = Raw::connect(gateway.address);
        raw.send(frames::head(1, "POST", "/", &key.text, &[("content-length", "5")], false));
        raw.send(frames::frame(frames::DATA, frames::END_STREAM, 1, body.as_bytes()));
        let answer = raw.until(|frame| frame.stream == 1 && frame.kind != frames::WINDOW_UPDATE);
        assert!(answer.kind == frames::RST_STREAM || answer.status() == 400, "{body}: {answer:?}");
    }
    all_is_given_back(&gateway);
    assert_eq!((upstream.count(), gateway.explain_in_flight(&key)), (0, 0));
}

#[test]
fn preface_is_refused_where_http2_was_not_negotiated() {
    let blocks = format!("{PLENTY}\nlisten: [{{ address: 127.0.0.1:0 }}]\n");
    let (upstream, gateway, key) = Gateway::with_secret(&blocks);
    let mut client = Client::connect(gateway.address);
    let request = frames::request(1, "GET", "/", &key);
    let response =
        client.send([frames::PREFACE, &frames::frame(frames::SETTINGS, 0, 0, &[]), &request].concat()).response();
    assert_eq!((response.status, response.code().as_str()), (400, "malformed_request"));
    assert!(client.rest().is_empty());
    // HTTP/2 is not reached by an upgrade, either (RFC 9113, section 3.1).
    let upgrade = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")];
    let response = Client::connect(gateway.address).send(head("GET", "/", &key, &upgrade, 0)).response();
    assert_eq!(response.status, 200);
    let last = upstream.last();
    assert_eq!((last.header("upgrade"), last.header("http2-settings")), (None, None));
}

#[test]
fn streams_and_windows_are_announced_as_configured() {
    use std::io::{Read as _, Write as _};
    let upstream = Upstream::start();
    let http = "http: { max_streams: 5, stream_window: 70000, connection_window: 200000 }";
    let gateway = Gateway::with(&[upstream.address], http);
    let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    // The server begins with a list of settings, each of an identifier and a value (RFC 9113, section 6.5.2).
    let mut header = [0; 9];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[3], 4, "SETTINGS");
    let mut settings = vec![0; usize::from(header[2])];
    stream.read_exact(&mut settings).unwrap();
    let value = |name: u8| {
        let setting = settings.chunks(6).find(|setting| setting[..2] == [0, name]).unwrap();
        u32::from_be_bytes(setting[2..].try_into().unwrap())
    };
    assert_eq!((value(3), value(4)), (5, 70_000), "SETTINGS_MAX_CONCURRENT_STREAMS, SETTINGS_INITIAL_WINDOW_SIZE");
    // The connection's window begins with 65,535 bytes (section 6.9.2); a WINDOW_UPDATE of stream 0 enlarges it.
    loop {
        stream.read_exact(&mut header).unwrap();
        let mut payload = vec![0; usize::from(header[2])];
        stream.read_exact(&mut payload).unwrap();
        if header[3] == 8 {
            assert_eq!(header[5..], [0; 4]);
            assert_eq!(u32::from_be_bytes(payload.try_into().unwrap()), 200_000 - 65_535);
            break;
        }
    }
}

/// A head with these representations (RFC 7541, section 6) of `:path` and `:scheme`.
fn head_with(stream: u32, path: &[u8], scheme: &[u8], host: &str, key: &str) -> Vec<u8> {
    let bearer = format!("Bearer {key}");
    let fields = [&[0x82], scheme, path, &frames::field(host, "h"), &frames::field("authorization", &bearer)].concat();
    frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &fields)
}

/// Sends the requests of one connection, whole or byte by byte. The bad one is refused, and reaches no upstream; the
/// good ones behind it are served, on the same connection where a byte by byte client does not force its end.
fn is_refused_alone(gateway: &Gateway, what: &str, bad: &[u8], good: &[u8]) {
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send([bad, good].concat());
    let mut answers = [None, None];
    while answers.iter().any(Option::is_none) {
        let answer = raw.until(|frame| matches!(frame.kind, frames::HEADERS | frames::RST_STREAM | frames::GOAWAY));
        assert_ne!(answer.kind, frames::GOAWAY, "{what}: {answer:?}");
        let number = usize::from(answer.stream == 3);
        answers[number] = Some(answer);
    }
    let [first, second] = answers.map(Option::unwrap);
    match first.kind {
        frames::RST_STREAM => assert_eq!(first.error(), frames::PROTOCOL_ERROR, "{what}"),
        _ => assert_eq!(first.status(), 400, "{what}"),
    }
    assert_eq!(second.status(), 200, "{what}");
    let mut raw = Raw::connect(gateway.address).settled();
    for byte in bad {
        raw.try_send(vec![*byte]).ok();
    }
    let answer = std::iter::from_fn(|| raw.next()).find(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
    // The connection may be reset before its GOAWAY is read.
    let is_refused = answer.as_ref().is_none_or(|answer| answer.kind != frames::HEADERS || answer.status() == 400);
    assert!(is_refused, "{what}: {answer:?}");
}

const HTTP: &[u8] = &[0x86];
const ROOT: &[u8] = &[0x84];

#[test]
fn fragment_in_a_path_is_refused_in_every_representation() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    // `/a#b` in Huffman code.
    let coded = [0x84, 0x60, 0x7f, 0xf5, 0x1f];
    let plain = [&[4][..], b"/a#b"].concat();
    for first in [0x04, 0x05, 0x14, 0x44, 0x45] {
        for value in [&coded[..], &plain] {
            let path = [&[first], value].concat();
            let good = head_with(3, ROOT, HTTP, ":authority", &key);
            is_refused_alone(&gateway, &format!("{path:02x?}"), &head_with(1, &path, HTTP, ":authority", &key), &good);
        }
    }
    for (what, path) in [("name", frames::field(":path", "/#")), ("only", b"\x04\x01#".to_vec())] {
        let good = head_with(3, ROOT, HTTP, ":authority", &key);
        is_refused_alone(&gateway, what, &head_with(1, &path, HTTP, ":authority", &key), &good);
    }
    // Once in the table, the path is as bad.
    let mut raw = Raw::connect(gateway.address).settled();
    for (stream, path) in [(1, [&[0x44], &coded[..]].concat()), (3, vec![0xbe]), (5, vec![0x7e, 2, b'/', b'#'])] {
        raw.send(head_with(stream, &path, HTTP, ":authority", &key));
        let answer = raw.until(|frame| matches!(frame.kind, frames::HEADERS | frames::RST_STREAM));
        assert_eq!((answer.kind, answer.stream), (frames::RST_STREAM, stream));
    }
    let served = upstream.received();
    assert!(served.iter().all(|request| request.path() == "/"), "{served:?}");
}

#[test]
fn scheme_other_than_http_and_https_is_refused_in_every_representation() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    let schemes = [&b"\x03ftp"[..], &[0x83, 0x95, 0x35, 0xff], b"\x05https"];
    for host in [":authority", "host"] {
        for first in [0x06, 0x07, 0x16, 0x46, 0x47] {
            for (number, scheme) in schemes.iter().enumerate() {
                let scheme = [&[first], *scheme].concat();
                let request = head_with(1, ROOT, &scheme, host, &key);
                if number == 2 {
                    let mut raw = Raw::connect(gateway.address).settled();
                    raw.send(request);
                    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200, "{scheme:02x?}");
                    continue;
                }
                let good = head_with(3, ROOT, &[0x87], host, &key);
                is_refused_alone(&gateway, &format!("{host} {scheme:02x?}"), &request, &good);
            }
        }
    }
    for scheme in ["http", "https"] {
        let before = upstream.count();
        let mut raw = Raw::connect(gateway.address).settled();
        raw.send(head_with(1, ROOT, &frames::field(":scheme", scheme), ":authority", &key));
        assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200, "{scheme}");
        assert_eq!(upstream.count(), before + 1);
    }
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send(head_with(1, ROOT, &frames::field(":scheme", "ftp"), ":authority", &key));
    let answer = raw.until(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
    assert!(answer.kind != frames::HEADERS || answer.status() == 400, "{answer:?}");
    // HTTP/1 names a scheme in the absolute form alone.
    for (target, status) in [("http://h/", 200), ("HTTPS://h/", 200), ("ftp://h/", 400), ("x://h/", 400)] {
        let request = head("GET", target, &key, &[], 0);
        assert_eq!(Client::connect(gateway.address).send(request).response().status, status, "{target}");
    }
}

#[test]
fn pseudo_field_in_trailers_is_refused() {
    let routes = "routes:\n  - { name: all, path: /**, trailers: true }\n";
    let (upstream, gateway, key) = Gateway::with_secret(&format!("{PLENTY}{routes}"));
    let begun = [frames::head(1, "POST", "/", &key, &[], false), frames::frame(frames::DATA, 0, 1, b"body")].concat();
    let trailers = |fields: &[u8]| frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, 1, fields);
    let own = frames::field("x-checksum", "1");
    for bad in [
        ROOT.to_vec(),
        b"\x04\x02/x".to_vec(),
        b"\x44\x02/x".to_vec(),
        b"\x02\x03GET".to_vec(),
        b"\x08\x03200".to_vec(),
        frames::field(":path", "/x"),
        frames::field(":method", "GET"),
        [own.clone(), ROOT.to_vec()].concat(),
    ] {
        let request = [begun.as_slice(), &trailers(&bad)].concat();
        is_refused_alone(&gateway, &format!("{bad:02x?}"), &request, &frames::request(3, "GET", "/", &key));
    }
    let served = upstream.received();
    assert!(served.iter().all(|request| request.line.starts_with("GET")), "{served:?}");
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send([begun.as_slice(), &trailers(&own)].concat());
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200);
    drop(raw);
    all_is_given_back(&gateway);
}
