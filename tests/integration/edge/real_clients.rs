//! Requests of programs that are in wide use, as they send them: characters in queries, calls of gRPC and Connect,
//! uploads that are refused, proxies that name a scheme.

use std::io::Write as _;
use std::process::Command;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;

use super::PLENTY;
use super::frames::{self, Raw};
use crate::support::page::block;
use crate::support::{Client, Gateway, Upstream, fetch_http2, over_http2};

/// Output of Debian's curl.
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-s", "-m", "20"]).args(arguments).output().expect("curl is installed");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn characters_that_browsers_send_in_a_query_arrive_as_they_are() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    for target in ["/a?sql=select+`x`", "/a?q=`|^{}[]\\'", "/a|b^c{d}?`"] {
        let mut client = Client::connect(gateway.address);
        assert_eq!(client.get(target, &key).status, 200, "{target}");
        assert_eq!(upstream.last().path(), target);
        assert_eq!(fetch_http2(gateway.address, "GET", &target.replace('^', "%5E"), &key).unwrap().status, 200);
    }
    let mut raw = Raw::connect(gateway.address);
    raw.send(frames::request(1, "GET", "/a?`b`", &key));
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200);
    assert_eq!(upstream.last().path(), "/a?`b`");
}

/// `fetch` of Node.js sends these characters as they are, and reads the answer to an upload that is refused.
#[test]
fn fetch_of_node_is_served_and_sees_its_refusal() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], PLENTY);
    let script = "const [origin, key] = process.argv.slice(1);\n\
                  const headers = { authorization: `Bearer ${key}` };\n\
                  const good = await fetch(origin + '/a?q=`x`|^{}', { headers });\n\
                  const body = new Uint8Array(1e6);\n\
                  const bad = await fetch(origin + '/a', { method: 'POST', body });\n\
                  console.log(good.status, bad.status, (await bad.json()).code);";
    let (origin, key) = (format!("http://{}", gateway.address), gateway.key().text);
    let node = Command::new("node").args(["--input-type=module", "-e", script, &origin, &key]).output();
    let node = node.expect("node is installed: `make setup`");
    assert_eq!(String::from_utf8_lossy(&node.stdout).trim(), "200 401 unauthenticated", "{node:?}");
    assert_eq!((upstream.count(), upstream.last().path()), (1, "/a?q=`x`|^{}"));
}

#[test]
fn refusal_names_the_byte_of_the_target() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    for (target, named) in [
        ("/a?ids=[\"x\"]", "Byte 9 of the target is `\"`: percent-encode it as %22."),
        ("/a?x=<b>", "Byte 6 of the target is `<`: percent-encode it as %3C."),
        ("/a/{\"a\":1}", "Byte 5 of the target is `\"`: percent-encode it as %22."),
        ("/a?q=caf\u{e9}", "Byte 9 of the target is 0xC3: percent-encode it as %C3."),
        ("/a b", "Byte 3 of the target is a space: percent-encode it as %20."),
        ("/`", "Byte 2 of the target is ```: percent-encode it as %60."),
        ("/a#b", "Byte 3 of the target is `#`: percent-encode it as %23."),
    ] {
        let refused = Client::connect(gateway.address).get(target, &key);
        assert_eq!((refused.status, &*refused.code()), (400, "malformed_request"), "{target}");
        assert_eq!(refused.json()["detail"], named, "{target}");
    }
    // Targets that the HTTP library takes have this answer over HTTP/2, too.
    for (target, byte) in [("/a/{\"a\":1}", "0x22"), ("/caf\u{e9}", "0xC3")] {
        let mut raw = Raw::connect(gateway.address);
        raw.send(frames::request(1, "GET", target, &key));
        assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 400, "{target}");
        let body = raw.until(|frame| frame.is(frames::DATA, 1)).payload;
        let named = if byte == "0x22" { "percent-encode it as %22" } else { "percent-encode it as %C3" };
        assert!(String::from_utf8_lossy(&body).contains(named), "{target}");
    }
    assert_eq!(upstream.count(), 0);
}

/// Status, content type, `grpc-status`, `grpc-retry-pushback-ms`, and body of the answer to a call.
fn call(gateway: &Gateway, key: &str, fields: &[(&str, &str)]) -> (u16, String, Option<String>, bool, Bytes) {
    let mut request = Request::post(format!("http://{}/s.S/M", gateway.address));
    for (name, value) in [("authorization", &*format!("Bearer {key}"))].iter().chain(fields) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from_static(&[0; 5]))).unwrap();
    over_http2(gateway.address, async |mut sender: SendRequest<Full<Bytes>>| {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let text = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let body = body.collect().await.unwrap().to_bytes();
        let has_pushback = text("grpc-retry-pushback-ms").is_some_and(|ms| ms.parse::<u64>().unwrap() >= 1000);
        (head.status.as_u16(), text("content-type").unwrap(), text("grpc-status"), has_pushback, body)
    })
}

#[test]
fn calls_are_refused_in_their_own_protocol() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(
        &[upstream.address],
        "limits: { key: { requests: 1, per: 1h } }\nroutes: [{ name: s, path: /s.S/** }]\n",
    );
    let (key, other) = (gateway.key(), "sk_live_unknown");
    assert_eq!(Client::connect(gateway.address).request("POST", "/s.S/M", &key.text, &[], b"").status, 200);
    for media_type in ["application/grpc", "application/grpc-web"] {
        let fields = [("content-type", &*format!("{media_type}+proto"))];
        let unknown = call(&gateway, other, &fields);
        assert_eq!(unknown, (200, media_type.into(), Some("16".into()), false, Bytes::new()));
        let limited = call(&gateway, &key.text, &fields);
        assert_eq!(limited, (200, media_type.into(), Some("8".into()), true, Bytes::new()));
    }
    let unary = call(&gateway, &key.text, &[("content-type", "application/json"), ("connect-protocol-version", "1")]);
    assert_eq!((unary.0, &*unary.1), (429, "application/json"));
    let error: serde_json::Value = serde_json::from_slice(&unary.4).unwrap();
    assert_eq!(error["code"], "resource_exhausted");
    let stream = call(&gateway, other, &[("content-type", "application/connect+proto")]);
    assert_eq!((stream.0, &*stream.1, stream.4[0]), (200, "application/connect+proto", 2));
    let end: serde_json::Value = serde_json::from_slice(&stream.4[5..]).unwrap();
    assert_eq!(end["error"]["code"], "unauthenticated");
    // Every other client has the problem document, and the refusal is counted as such.
    let plain = Client::connect(gateway.address).request("POST", "/s.S/M", &key.text, &[], b"");
    assert_eq!((plain.status, &*plain.code()), (429, "rate_limited"));
    assert!(gateway.metric("keygate_requests_total{code=\"429\",route=\"s\"}") >= 4.0);
}

#[test]
fn refusal_of_an_upload_over_http2_reaches_curl() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], PLENTY);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[b'x'; 1_000_000]).unwrap();
    let (path, url) = (file.path().display().to_string(), format!("http://{}/x", gateway.address));
    for _ in 0..5 {
        let said = curl(&[
            "--http2-prior-knowledge",
            "-H",
            "Authorization: Bearer wrong",
            "-T",
            &path,
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} exit %{exitcode}",
            &url,
        ]);
        assert!(said.starts_with("401 exit "), "{said}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn get_whose_stream_ends_with_an_empty_frame_has_no_body() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    for body in [&b""[..], b"abc"] {
        let mut raw = Raw::connect(gateway.address);
        raw.send(frames::head(1, "GET", "/get", &key, &[], false));
        raw.send(frames::frame(frames::DATA, frames::END_STREAM, 1, body));
        assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200);
        let received = upstream.last();
        assert_eq!(received.header("transfer-encoding").is_some(), !body.is_empty());
        assert_eq!(received.body, body);
    }
}

#[test]
fn upload_that_waits_for_a_100_over_http2_arrives() {
    let (upstream, gateway, key) = Gateway::with_secret(PLENTY);
    let url = format!("http://{}/x", gateway.address);
    let said = curl(&[
        "--http2-prior-knowledge",
        "-H",
        &format!("Authorization: Bearer {key}"),
        "-H",
        "Expect: 100-continue",
        "-d",
        "body",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &url,
    ]);
    assert_eq!(said, "200");
    assert_eq!(upstream.last().body, b"body");
}

#[test]
fn upstream_gets_the_host_that_its_setting_names() {
    let upstream = Upstream::start();
    let endpoint = upstream.address.to_string();
    for (setting, expected) in [
        ("", endpoint.as_str()),
        (", host: endpoint", &endpoint),
        (", host: client", "api.example.com"),
        (", host: \"inner.example.com:81\"", "inner.example.com:81"),
    ] {
        let blocks = format!("upstream: {{ endpoints: [\"http://{endpoint}\"]{setting} }}\n");
        let (gateway, key) = Gateway::with(&[], &blocks).and_secret();
        let mut client = Client::connect(gateway.address);
        client.send(format!("GET / HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer {key}\r\n\r\n"));
        assert_eq!(client.response().status, 200, "{setting}");
        let received = upstream.last();
        assert_eq!(received.header("host"), Some(expected), "{setting}");
        assert_eq!(received.header("x-forwarded-host"), Some("api.example.com"), "{setting}");
        assert_eq!(received.headers.iter().filter(|(name, _)| name == "host").count(), 1);
        // Without a host of the client there is that of the endpoint.
        let mut client = Client::connect(gateway.address);
        client.send(format!("GET / HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\r\n"));
        assert_eq!(client.response().status, 200, "{setting}");
        let expected = if setting.contains("client") { &endpoint } else { expected };
        assert_eq!(upstream.last().header("host"), Some(expected), "{setting}");
        let status = over_http2(gateway.address, async |mut sender: SendRequest<Full<Bytes>>| {
            let request = Request::get("http://api.example.com/").header("authorization", format!("Bearer {key}"));
            sender.send_request(request.body(Full::default()).unwrap()).await.unwrap().status()
        });
        assert_eq!(status, StatusCode::OK);
        let expected = if setting.contains("client") { "api.example.com" } else { expected };
        assert_eq!(upstream.last().header("host"), Some(expected), "{setting}");
    }
}

/// The routes of a GitLab and of a registry, with the paths that their clients send.
const LENIENT: &str = "
routes:
  - { name: admin, path: /admin/**, permission: admin }
  - { name: projects, path: \"/api/v4/projects/{id}\", encoded_slash: pass }
  - { name: packages, path: /npm/**, encoded_slash: pass, empty_segments: pass }
  - { name: merged, path: /matrix/**, empty_segments: pass }
  - { name: plain, path: /plain/** }
  - { name: literal, path: /raw/a%2Fb, encoded_slash: pass }
";

#[test]
fn encoded_slashes_and_empty_segments_pass_where_the_route_says_so() {
    let (upstream, gateway, key) = Gateway::with_secret(&format!("{PLENTY}{LENIENT}"));
    for target in [
        "/api/v4/projects/group%2Fproject",
        "/api/v4/projects/group%2fsub%2Fproject?a=//",
        "/npm/@scope%2fpackage",
        "/npm//@scope%2Fpackage/",
        "//matrix/client",
        "/matrix///client//v3/",
        "/raw/a%2fb",
    ] {
        assert_eq!(Client::connect(gateway.address).get(target, &key).status, 200, "{target}");
        assert_eq!(upstream.last().path(), target, "as it was sent");
    }
    let before = upstream.count();
    for (target, reason) in [
        ("/plain/a%2Fb", "an encoded slash"),
        ("/plain//a", "an empty segment"),
        ("/matrix/a%2Fb", "an encoded slash"),
        ("/api/v4/projects//a", "an empty segment"),
        ("/npm/..%2Fadmin/x", "an encoded slash"),
        ("/npm/%2e%2e/admin/x", "an encoded letter, digit"),
        ("/npm/../admin/x", "a dot segment"),
        ("/npm/a;b", "a `;`"),
        ("/plain/%7Ea", "an encoded letter, digit"),
        ("/plain/a%0A", "an encoded control character"),
        ("/plain/a%", "a `%` without"),
        ("/plain/a%5Cb", "a backslash"),
        // The upstream might read these as `/admin/x`.
        ("/api/v4/projects/..%2F..%2Fadmin", "an encoded slash"),
        ("/admin%2Fx", "an encoded slash"),
    ] {
        let refused = Client::connect(gateway.address).get(target, &key);
        assert_eq!((refused.status, &*refused.code()), (404, "ambiguous_path"), "{target}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(&format!("No route takes this path: it has {reason}")), "{target}: {detail}");
    }
    assert_eq!(Client::connect(gateway.address).get("/other", &key).code(), "not_found");
    assert_eq!(upstream.count(), before);
}

#[test]
fn clients_that_know_only_basic_are_served_where_it_is_on() {
    let upstream = Upstream::start();
    let on = Gateway::with(&[upstream.address], &format!("{PLENTY}credentials: {{ basic: true }}\n"));
    let key = on.key().text;
    let url = |gateway: &Gateway| format!("http://{}/x", gateway.address);
    let code =
        |gateway: &Gateway, user: &str| curl(&["-u", user, "-o", "/dev/null", "-w", "%{http_code}", &url(gateway)]);
    let (as_name, as_password) = (format!("{key}:"), format!("anybody:{key}"));
    assert_eq!([code(&on, &as_name), code(&on, &as_password), code(&on, "anybody:wrong")], ["200", "200", "401"]);
    assert_eq!(upstream.last().header("authorization"), None);
    let challenge = "Basic realm=\"keygate\", charset=\"UTF-8\"";
    let bearer = Client::connect(on.address).request("GET", "/x", "", &[("authorization", "Bearer")], b"");
    assert_eq!(bearer.header("www-authenticate"), Some("Bearer realm=\"keygate\", error=\"invalid_request\""));
    let bare = Client::connect(on.address).send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").response();
    assert_eq!((bare.status, bare.header("www-authenticate")), (401, Some(challenge)));
    assert!(bare.json()["detail"].as_str().unwrap().contains("the password of HTTP Basic"));
    let line = block("machine api.example.com login key passwo");
    let netrc = tempfile::NamedTempFile::new().unwrap();
    let line = line.replace("api.example.com", "127.0.0.1").replace("sk_live_…", &key);
    std::fs::write(netrc.path(), line).unwrap();
    let file = netrc.path().display().to_string();
    assert_eq!(curl(&["--netrc-file", &file, "-o", "/dev/null", "-w", "%{http_code}", &url(&on)]), "200");

    let off = Gateway::with(&[upstream.address], PLENTY);
    let key = off.key().text;
    assert_eq!(code(&off, &format!("{key}:")), "401");
    let bare = Client::connect(off.address).send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").response();
    assert_eq!(bare.header("www-authenticate"), Some("Bearer realm=\"keygate\""));
}
