//! The request that is decided is the one that the upstream gets.

use super::records::assert_one_for_each_request;
use super::setup::blocks_with;
use super::{Kind, Setup};

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"];

const TARGETS: [&str; 33] = [
    "/",
    "/reads/a?b=c&d",
    "/reads/a%20b",
    "/reads/a%2Fb",
    "/reads/a%2fb",
    "/reads/%61",
    "/%72eads/a",
    "/reads/a/../b",
    "/reads/../writes/a",
    "/open/../writes/a",
    "/open/%2e%2e/writes/a",
    "/open/..%2fwrites/a",
    "/open/..\\writes\\a",
    "/open/x/..;/../writes/a",
    "/reads/a/./b",
    "/reads/a/%2e%2E%2fb",
    "//reads/a",
    "//writes/a",
    "/open//../writes/a",
    "/reads//a",
    "/reads/a;b=c/d",
    "/reads/a%5Cb",
    "/reads/a%00b",
    "/reads/a%3Fb",
    "/reads/a?b=/../c",
    "/reads/a?b?c",
    "/reads/a?",
    "/reads/%C3%A4",
    "/reads/a|b{c}'d",
    "/reads/a%zz",
    "http://gateway.test/reads/a?b",
    "http://other.test/writes/a",
    "/reads/a#b",
];

/// The path as a lax server reads it: decoded, with `\` for `/`, and without dot segments, empty ones and parameters.
pub(super) fn as_read_laxly(target: &str) -> String {
    let path = target.split('?').next().unwrap();
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy().replace('\\', "/");
    let mut segments = Vec::new();
    for segment in decoded.split('/').map(|segment| segment.split(';').next().unwrap()) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

#[test]
fn method_and_target_of_the_upstream_are_those_of_the_decision() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        for target in TARGETS {
            for method in METHODS {
                let before = setup.upstream.count();
                let body: &[u8] = if matches!(method, "POST" | "PUT" | "PATCH") { b"body" } else { b"" };
                let response = setup.request(method, target, &[], body);
                let after = setup.upstream.count();
                if response.status != 200 {
                    assert_eq!(after, before, "{kind:?}: {method} {target}: {response:?}");
                    continue;
                }
                assert_eq!(after, before + 1, "{kind:?}: {method} {target}");
                let received = setup.upstream.last();
                assert_eq!(received.line.split(' ').next(), Some(method), "{kind:?}: {target}");
                assert_eq!(received.body, body, "{kind:?}: {method} {target}");
                // The key may not write.
                let path = as_read_laxly(received.path());
                assert!(!path.starts_with("writes"), "{kind:?}: {method} {target}: {path}");
                if received.path() != target && method == "GET" {
                    println!("{kind:?}: {target} arrives as {}", received.path());
                }
            }
        }
        for method in METHODS {
            assert_eq!(setup.request(method, "/reads/a?b=c", &[], b"").status, 200, "{kind:?}: {method}");
        }
        assert_one_for_each_request(kind, &setup);
    }
}

/// Fields by which a client could describe another request than its own.
#[test]
fn question_is_about_the_request_of_the_client() {
    let forged = [
        ("X-Forwarded-Method", "PUT"),
        ("X-Forwarded-Uri", "/open/a"),
        ("x_forwarded_uri", "/open/a"),
        ("X-Forwarded-Method", "PATCH"),
        ("X-Forwarded-Uri", "/open/twice"),
        ("X-Original-Method", "PUT"),
        ("X-Original-URI", "/open/a"),
        ("X-Original-URL", "/open/a"),
        ("X-Rewrite-URL", "/open/a"),
        ("X-Forwarded-Prefix", "/open"),
        ("X-Envoy-Original-Path", "/open/a"),
        ("X-HTTP-Method-Override", "PUT"),
    ];
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        assert_eq!(setup.request("DELETE", "/reads/a?b=c", &forged, b"").status, 200, "{kind:?}");
        let received = setup.upstream.last();
        assert_eq!(received.line, "DELETE /reads/a?b=c HTTP/1.1", "{kind:?}");
        for name in ["X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Prefix", "X-Original-URL", "X-Rewrite-URL"] {
            let is_there = received.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
            assert!(!is_there, "{kind:?}: {name}: {:?}", received.headers);
        }
        assert_one_for_each_request(kind, &setup);
        // With them, what is refused stays refused.
        assert_eq!(setup.request("GET", "/writes/a", &forged, b"").status, 403, "{kind:?}");
        assert_eq!(setup.proxy.client().request("GET", "/reads/a", "", &forged, b"").status, 401, "{kind:?}");
    }
}

/// A route of another host is not reached by a host that only one of the two sees.
#[test]
fn host_of_the_question_is_that_of_the_upstream() {
    let cases = [
        ("/reads/a", "gateway.test", &[][..]),
        ("/reads/a", "other.test", &[]),
        ("/reads/a", "Gateway.test:8443", &[]),
        ("/reads/a", "gateway.test", &[("X-Forwarded-Host", "other.test")]),
        ("http://other.test/reads/a", "gateway.test", &[("X-Host", "forged.test")]),
        ("http://other.test:81/reads/a", "gateway.test", &[]),
    ];
    let routes = "routes: [{ name: gateway.test, host: gateway.test, path: '/**' }, { name: other.test, host: \
                  other.test, path: '/**' }]\n";
    for kind in Kind::all() {
        let setup = Setup::with(kind, &blocks_with(kind, routes));
        for (target, named, others) in cases {
            let before = setup.upstream.count();
            let key = &setup.key.text;
            let mut request = format!("GET {target} HTTP/1.1\r\nHost: {named}\r\nAuthorization: Bearer {key}\r\n");
            for (name, value) in others {
                request += &format!("{name}: {value}\r\n");
            }
            let response = setup.proxy.client().send(request + "\r\n").response();
            if setup.upstream.count() == before {
                assert_eq!(response.status, 400, "{kind:?}: {target} {named}");
                continue;
            }
            let received = setup.upstream.last();
            let host = received.header("host").unwrap().to_ascii_lowercase();
            let record = setup.gateway.records().remove(0);
            println!("{kind:?}: {target} {named}: {host}");
            assert_eq!(host.split(':').next(), Some(&*record.action), "{kind:?}: {target} {named}");
            let forwarded = received.header("x-forwarded-host").unwrap_or(&host);
            assert!(host.eq_ignore_ascii_case(forwarded), "{kind:?}: {target} {named}: {forwarded}");
        }
    }
}

/// keygate refuses two credentials: no proxy shows it one of them.
#[test]
fn two_credentials_are_refused() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        let good = &*setup.key.text;
        for (first, second) in [(good, "bad"), ("bad", good), (good, good)] {
            let other = format!("Bearer {second}");
            let other = [("authorization", other.as_str())];
            let response = setup.proxy.client().request("GET", "/reads/a", first, &other, b"");
            assert_eq!(response.status, 400, "{kind:?}: {response:?}");
        }
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}
