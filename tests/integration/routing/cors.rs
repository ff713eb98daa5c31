//! `cors`: preflights, and answers that pages of other origins may read.

use std::io::Write as _;

use super::{PLENTY, problems, start};
use crate::support::{Client, Gateway, Response, Upstream, eventually};

const APP: &str = "https://app.example";

const BLOCKS: &str = "credentials: { headers: [X-API-Key] }\n\
                      cors: { origins: ['https://app.example'], headers: [X-Trace], expose: [Link] }\n\
                      routes:\n  \
                      - { name: list, path: /items, methods: [GET] }\n  \
                      - { name: add, path: /items, methods: [POST], permission: 'items:write' }\n  \
                      - { name: purge, path: /items, methods: [PURGE, REPORT] }\n  \
                      - { name: purge.one, path: '/items/{id}', methods: [PURGE] }\n  \
                      - { name: any, path: '/any/**' }\n  \
                      - { name: health, path: /health, access: public }\n  \
                      - { name: open, path: /open, cors: { origins: ['*'], max_age: 0s } }\n  \
                      - { name: own, path: /own, cors: { origins: [] } }\n";

fn blocks() -> String {
    format!("{PLENTY}{BLOCKS}")
}

/// Every value of a field.
fn all<'a>(response: &'a Response, name: &str) -> Vec<&'a str> {
    response.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| &**value).collect()
}

fn preflight(gateway: &Gateway, path: &str, origin: &str, method: &str) -> Response {
    let fields = [("Origin", origin), ("Access-Control-Request-Method", method)];
    Client::connect(gateway.address).request("OPTIONS", path, "", &fields, b"")
}

/// An upstream that says something else of other origins.
fn upstream() -> Upstream {
    Upstream::answering(|_, stream| {
        let fields = "access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\n\
                      access-control-expose-headers: X-Own\r\nvary: Accept\r\n";
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}content-length: 2\r\n\r\nok").as_bytes()).ok();
    })
}

#[track_caller]
fn assert_readable(response: &Response, origin: &str) {
    assert_eq!(all(response, "access-control-allow-origin"), [origin], "{response:?}");
    let exposed = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id";
    assert!(all(response, "access-control-expose-headers")[0].starts_with(exposed), "{response:?}");
    assert!(all(response, "vary").iter().any(|names| names.contains("Origin")), "{response:?}");
    assert_eq!(response.header("access-control-allow-credentials"), None);
}

#[test]
fn preflight_of_a_listed_origin_is_answered_without_a_key() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, &blocks()).and_key();
    for (path, asked, methods) in [
        ("/items", "POST", "GET, HEAD, POST, PURGE, REPORT"),
        ("/items", "PURGE", "GET, HEAD, POST, PURGE, REPORT"),
        ("/items", "DELETE", "GET, HEAD, POST, PURGE, REPORT"),
        ("/any/x", "BREW", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, PURGE, REPORT, BREW"),
        ("/health", "GET", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, PURGE, REPORT"),
    ] {
        let response = preflight(&gateway, path, APP, asked);
        assert_eq!((response.status, response.header("access-control-allow-methods")), (204, Some(methods)), "{path}");
        assert_eq!(
            response.header("access-control-allow-headers"),
            Some("Authorization, Content-Type, X-API-Key, x-trace")
        );
        assert_eq!(response.header("access-control-max-age"), Some("600"));
        assert_eq!(
            all(&response, "vary").join(""),
            "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
        );
        assert_readable(&response, APP);
    }
    let nowhere = preflight(&gateway, "/nowhere", APP, "GET");
    assert_eq!((nowhere.status, nowhere.header("access-control-allow-methods")), (204, None));
    let open = preflight(&gateway, "/open", "null", "GET");
    assert_eq!((open.status, open.header("access-control-max-age")), (204, Some("0")));
    assert_readable(&open, "*");
    // Of an origin or a route that is not listed, and other requests with OPTIONS: as without the block.
    for (path, origin, asked) in
        [("/items", "https://evil.example", "GET"), ("/own", APP, "GET"), ("/items", APP, "a b")]
    {
        assert_eq!(preflight(&gateway, path, origin, asked).status, 401, "{path} {origin} {asked}");
    }
    let plain = Client::connect(gateway.address).request("OPTIONS", "/any/x", &key.text, &[("Origin", APP)], b"");
    assert_eq!((plain.status, upstream.count()), (200, 1));
    assert_eq!(gateway.uses(&key), Some(1), "preflights took no token");
    assert_eq!(gateway.records().len(), 1, "and have no records");
    let counted = "keygate_requests_total{code=\"204\",route=\"add\"}";
    assert_eq!(gateway.metric(counted), 1.0, "it is counted for the route that it asks for");
}

#[test]
fn preflights_are_bounded_by_the_bucket_of_the_address() {
    let upstream = Upstream::start();
    let limits = "limits: { public: { requests: 2, per: 1h, burst: 2 } }\n";
    let gateway = start(&upstream, &format!("{limits}{BLOCKS}"));
    assert_eq!([(); 2].map(|()| preflight(&gateway, "/items", APP, "GET").status), [204; 2]);
    let refused = preflight(&gateway, "/items", APP, "GET");
    assert_eq!((refused.status, &*refused.code()), (429, "address_limited"));
    assert!(refused.header("retry-after").is_some());
    assert_readable(&refused, APP);
    let key = gateway.key().text;
    assert_eq!(Client::connect(gateway.address).get("/items", &key).status, 200);
}

#[test]
fn answers_to_a_listed_origin_can_be_read_refusals_included() {
    let upstream = upstream();
    let gateway = start(&upstream, &BLOCKS.replace("routes:", "limits: { key: { requests: 1, per: 1h } }\nroutes:"));
    let key = gateway.key_with(&["items:read"]).text;
    let mut client = Client::connect(gateway.address);
    let mut send = |method: &str, path: &str, key: &str, origin: &str| {
        client.request(method, path, key, &[("Origin", origin)], b"")
    };
    let admitted = send("GET", "/items", &key, APP);
    assert_eq!(admitted.status, 200);
    assert_readable(&admitted, APP);
    assert_eq!(all(&admitted, "vary"), ["Accept", "Origin"]);
    let limited = send("GET", "/items", &key, APP);
    assert_eq!((limited.status, limited.header("retry-after").is_some()), (429, true));
    assert_readable(&limited, APP);
    for (method, path, key, status) in [
        ("GET", "/items", "", 401),
        ("GET", "/items", "other", 401),
        ("POST", "/items", &*key, 403),
        ("GET", "/nowhere", &*key, 404),
        ("GET", "/health", "", 200),
    ] {
        let response = send(method, path, key, APP);
        assert_eq!(response.status, status, "{method} {path}");
        assert_readable(&response, APP);
    }
    let every = send("GET", "/open", "", "https://else.example");
    assert_eq!(every.status, 401);
    assert_readable(&every, "*");
    let malformed = "GET /items HTTP/1.1\r\nHost: gateway.test\r\nOrigin: https://app.example\r\nExpect: tea\r\n\r\n";
    let malformed = Client::connect(gateway.address).send(malformed).response();
    assert_eq!(malformed.status, 417);
    assert_readable(&malformed, APP);
}

#[test]
fn answers_to_other_origins_stay_as_they_are() {
    let upstream = upstream();
    let (gateway, key) = start(&upstream, &blocks()).and_secret();
    let mut client = Client::connect(gateway.address);
    for (path, fields, varies) in [
        ("/items", &[("Origin", "https://evil.example")][..], true),
        ("/items", &[("Origin", "https://app.example.evil.example")], true),
        ("/items", &[("Origin", APP), ("Origin", APP)], true),
        ("/items", &[], true),
        ("/own", &[("Origin", APP)], false),
    ] {
        let response = client.request("GET", path, &key, fields, b"");
        assert_eq!(response.status, 200);
        // The answer of the upstream.
        assert_eq!(all(&response, "access-control-allow-origin"), ["*"], "{fields:?}");
        assert_eq!(all(&response, "access-control-allow-credentials"), ["true"]);
        assert_eq!(all(&response, "access-control-expose-headers"), ["X-Own"]);
        assert_eq!(all(&response, "vary").contains(&"Origin"), varies, "caches know that it depends on the origin");
        let refused = client.request("GET", path, "other", fields, b"");
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, None), "{fields:?}");
    }
}

#[test]
fn origins_change_by_a_reload() {
    let upstream = Upstream::start();
    let gateway = start(&upstream, &blocks());
    let other = "https://other.example";
    assert_eq!(preflight(&gateway, "/items", other, "GET").status, 401);
    gateway.reconfigure(|text| text.replace(APP, other));
    eventually("the new origin is listed", || preflight(&gateway, "/items", other, "GET").status == 204);
    // Each worker applies the configuration by itself.
    eventually("the former origin is not listed", || preflight(&gateway, "/items", APP, "GET").status == 401);
}

#[test]
fn origin_that_no_browser_sends_is_a_configuration_error() {
    for (block, expected) in [
        ("cors: { origins: [app.example] }", "`app.example` is not an origin"),
        ("cors: { origins: ['https://app.example/'] }", "has a path"),
        ("cors: { origins: ['https://App.example'] }", "has upper case"),
        ("cors: { origins: ['https://app.example:443'] }", "has the default port"),
        ("cors: { origins: ['http://localhost:80'] }", "has the default port"),
        ("cors: { origins: ['*', 'https://app.example'] }", "keep `*` alone"),
        ("cors: { origins: ['null'] }", "`null` is not an origin"),
        ("cors: { max_age: 1m }", "cors.origins: is required"),
        ("cors: { origins: ['*'], max_age: 2d }", "cors.max_age"),
        ("cors: { origins: ['*'], headers: ['a b'] }", "`a b` is not the name of a field"),
        ("cors: { origins: ['*'], credentials: true }", "cors.credentials"),
        ("routes: [{ name: a, path: /a, cors: { origins: [x] } }]", "routes[0].cors.origins[0]: `x` is not an origin"),
    ] {
        let problems = problems(block);
        assert!(problems.contains(expected), "{block}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{block}: {problems}");
    }
}
