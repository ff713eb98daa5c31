//! Forwarding of requests and responses, to the byte.

use std::io::Write as _;

use crate::support::{Client, Gateway, Upstream, eventually, head};

/// Names of fields that only the gateway sets, in the spelling of the contract.
const RESERVED: [&str; 12] = [
    "X-User-Id",
    "X-Org-Id",
    "X-Key-Id",
    "X-Permissions",
    "X-Auth-Method",
    "X-Request-Id",
    "Via",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "Authorization",
];

/// Every spelling of the reserved names that some server could read as one of them.
fn spellings() -> Vec<String> {
    let mut all = Vec::new();
    for name in RESERVED.iter().filter(|name| **name != "Authorization") {
        all.extend([name.to_string(), name.to_lowercase(), name.to_uppercase()]);
        for separator in ["_", ".", "~", "!", "'", "*", "+", "|", "^", "`", "#", "$", "%", "&"] {
            if name.contains('-') {
                all.push(name.replace('-', separator));
                all.push(name.replacen('-', separator, 1));
                all.push(name.replace('-', separator).to_uppercase());
            }
        }
    }
    all
}

#[test]
fn identity_headers_of_clients_are_removed_in_every_spelling() {
    let (upstream, gateway, key) = Gateway::with_key("limits: { key: { requests: 1000000, per: 1s } }");
    let mut client = Client::connect(gateway.address);
    let spellings = spellings();
    assert!(spellings.len() >= 40, "{}", spellings.len());
    for spelling in &spellings {
        for connection in ["keep-alive".to_owned(), format!("keep-alive, {spelling}"), RESERVED.join(", ")] {
            let twice = [(spelling.as_str(), "forged"), (spelling.as_str(), "forged"), ("Connection", &connection)];
            assert_eq!(client.request("GET", "/", &key.text, &twice, b"").status, 200, "{spelling}");
            let received = upstream.last();
            assert!(!received.headers.iter().any(|(_, value)| value.contains("forged")), "{spelling}: {received:?}");
            assert_eq!(received.header("x-user-id"), Some(&*key.user.to_string()), "{spelling}");
            assert_eq!(received.header("x-org-id"), Some(&*key.org.to_string()), "{spelling}");
            assert_eq!(received.header("x-key-id"), Some(key.id.as_str()), "{spelling}");
        }
    }
}

/// Fields that upstreams commonly trust, each with the spelling in its source.
const SPOOFABLE: [&str; 22] = [
    "X-Real-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "Fastly-Client-IP",
    "X-Envoy-External-Address",
    "X-Envoy-Original-Path",
    "x-envoy-anything",
    "X-Original-URL",
    "X-Original-Host",
    "X-Rewrite-URL",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X-ProxyUser-Ip",
    "X-Host",
    "Proxy",
    "Front-End-Https",
    "Remote-User",
    "Client-Cert",
    "HTTP2-Settings",
];

#[test]
fn spoofable_fields_do_not_arrive() {
    let (upstream, gateway, key) = Gateway::with_key("");
    let mut client = Client::connect(gateway.address);
    for name in SPOOFABLE {
        let upgrades: [&[(&str, &str)]; 3] =
            [&[], &[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c")], &[("Connection", "Upgrade")]];
        for upgrade in upgrades {
            let fields: Vec<_> = [(name, "spoofed")].into_iter().chain(upgrade.iter().copied()).collect();
            assert_eq!(client.request("GET", "/", &key.text, &fields, b"").status, 200, "{name}");
            let received = upstream.last();
            assert!(!received.headers.iter().any(|(_, value)| value.contains("spoofed")), "{name}: {received:?}");
        }
    }
    client.request("GET", "/", &key.text, &[("X-Trace", "kept"), ("Accept", "x/y"), ("X-Api-Version", "2")], b"");
    let received = upstream.last();
    let seen = ["x-trace", "accept", "x-api-version"].map(|name| received.header(name));
    assert_eq!(seen, [Some("kept"), Some("x/y"), Some("2")]);
}

#[test]
fn spoofable_fields_pass_by_name() {
    let upstream = Upstream::start();
    let endpoint = format!("upstream: {{ endpoints: ['http://{}'], pass_fields: [X-Real-IP] }}", upstream.address);
    let (gateway, key) = Gateway::with(&[], &endpoint).and_key();
    let mut client = Client::connect(gateway.address);
    let mut arrives = |expected: [Option<&str>; 3]| {
        let fields = [("X-Real-IP", "a"), ("X-Client-IP", "b"), ("X-User-Id", "c")];
        assert_eq!(client.request("GET", "/", &key.text, &fields, b"").status, 200);
        let received = upstream.last();
        ["x-real-ip", "x-client-ip", "x-user-id"].map(|name| received.header(name)) == expected
    };
    let user = key.user.to_string();
    assert!(arrives([Some("a"), None, Some(&user)]));
    gateway.reconfigure(|text| text.replace("[X-Real-IP]", "[x-client-ip]"));
    eventually("the reload applies", || arrives([None, Some("b"), Some(&user)]));
}

#[test]
fn identity_headers_are_set_once_each() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let key = gateway.key_with(&["queries:write", "queries:read"]);
    let mut client = Client::connect(gateway.address);
    let response = client.request("GET", "/a%20b?c=%2F", &key.text, &[("Accept", "x/y"), ("TE", "trailers")], b"");
    let received = upstream.last();
    assert_eq!(received.line, "GET /a%20b?c=%2F HTTP/1.1");
    assert_eq!(received.header("x-permissions"), Some("queries:read,queries:write"));
    assert_eq!(received.header("x-auth-method"), Some("api-key"));
    assert_eq!(received.header("x-request-id"), response.header("x-request-id"));
    assert_eq!(received.header("via"), Some("1.1 keygate"));
    assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(received.header("x-forwarded-proto"), Some("http"));
    assert_eq!(received.header("x-forwarded-host"), Some("gateway.test"));
    assert_eq!(received.header("forwarded"), Some("for=127.0.0.1;host=\"gateway.test\";proto=http"));
    assert_eq!(received.header("host"), Some(&*upstream.address.to_string()));
    assert_eq!(received.header("accept"), Some("x/y"));
    for gone in ["authorization", "te", "connection"] {
        assert_eq!(received.header(gone), None);
    }
    let id = uuid::Uuid::parse_str(response.header("x-request-id").unwrap()).unwrap();
    assert_eq!(id.get_version_num(), 7);
    assert_eq!(gateway.records()[0].id, id);
}

#[test]
fn forwarded_for_is_trusted_from_trusted_proxies_only() {
    let forwarded = [("X-Forwarded-For", "6.6.6.6, 203.0.113.9"), ("X-Forwarded-For", "10.1.2.3")];
    let (upstream, gateway, key) = Gateway::with_secret("trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]");
    assert_eq!(Client::connect(gateway.address).request("GET", "/", &key, &forwarded, b"").status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("203.0.113.9, 10.1.2.3, 127.0.0.1"));
    assert_eq!(gateway.records()[0].ip, Some("203.0.113.9".parse().unwrap()));
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    assert_eq!(Client::connect(gateway.address).request("GET", "/", &key, &forwarded, b"").status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(gateway.records()[0].ip, Some("127.0.0.1".parse().unwrap()));
}

#[test]
fn bodies_pass_whole_in_both_framings() {
    let upstream = Upstream::answering(|request, stream| {
        let head =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: x-secret\r\nx-secret: 1\r\nx-kept: 1\r\n\r\n";
        let body = format!("{:x}\r\n", request.body.len());
        stream.write_all(head.as_bytes()).ok();
        stream.write_all(body.as_bytes()).ok();
        stream.write_all(&request.body).ok();
        stream.write_all(b"\r\n0\r\n\r\n").ok();
    });
    let (gateway, key) = Gateway::start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    let body: Vec<u8> = (0..100_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let response = client.request("POST", "/", &key, &[], &body);
    assert!(response.body == body);
    assert_eq!(response.header("x-secret"), None);
    assert_eq!(response.header("x-kept"), Some("1"));
    assert_eq!(upstream.last().header("content-length"), Some("100000"));

    client.send(head("POST", "/", &key, &[("Transfer-Encoding", "chunked")], 0));
    client.send("186a0;ext=1\r\n").send(&body).send("\r\n0\r\nX-User-Id: forged\r\n\r\n");
    assert!(client.response().body == body);
    let received = upstream.last();
    assert!(received.body == body);
    assert_eq!(received.header("transfer-encoding"), Some("chunked"));
    let record = &gateway.records()[0];
    assert_eq!((record.request_bytes, record.response_bytes), (Some(100_000), Some(100_000)));
}

#[test]
fn connections_are_kept_on_both_sides() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    for _ in 0..50 {
        assert_eq!(client.get("/", &key).status, 200);
    }
    assert_eq!(upstream.connections(), 1);
    let head = client.request("HEAD", "/", &key, &[], b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("2")));
    let pipelined = crate::support::head("GET", "/", &key, &[], 0).repeat(3);
    client.send(pipelined);
    for _ in 0..3 {
        assert_eq!(client.response().body, b"ok");
    }
}

#[test]
fn refusal_comes_before_100_continue() {
    let (_upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", &key, &[("Expect", "100-continue")], 5));
    assert_eq!(client.head().unwrap().0, 100);
    client.send("hello");
    assert_eq!(client.response().status, 200);
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", "sk_live_bad", &[("Expect", "100-continue")], 5));
    assert_eq!(client.head().unwrap().0, 401);
}

#[test]
fn request_fields_with_odd_names_are_dropped_and_counted() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    let odd = [("X_Kind", "1"), ("x.kind", "1"), ("Content_Length", "3"), ("Transfer~Encoding", "chunked")];
    let plain = [("X-Kind", "2"), ("Accept", "x/y")];
    let fields: Vec<_> = odd.into_iter().chain(plain).collect();
    assert_eq!(client.request("GET", "/", &key, &fields, b"").status, 200);
    let received = upstream.last();
    assert!(received.headers.iter().all(|(name, _)| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')));
    assert_eq!((received.header("x-kind"), received.header("accept")), (Some("2"), Some("x/y")));
    assert_eq!(gateway.metric("keygate_fields_dropped_total{direction=\"request\"}"), 4.0);
}

#[test]
fn unknown_expectation_is_refused() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    let response = client.request("POST", "/", &key, &[("Expect", "200-maybe")], b"x");
    assert_eq!((response.status, response.code().as_str()), (417, "expectation_failed"));
    assert_eq!(upstream.count(), 0);
}
