//! Refusals on the wire, as the table of the contract has them.

use std::io::Write as _;

use crate::support::{Client, Gateway, Response, Upstream, eventually, free_address};

const ROUTES: &str = "
routes:
  - { name: queries.list, methods: [GET], path: /api/queries, permission: 'queries:read' }
  - { name: queries.create, methods: [POST], path: /api/queries, permission: 'queries:write' }
";

fn assert_refused(response: &Response, status: u16, code: &str, challenge: Option<&str>) {
    assert_eq!((response.status, response.code().as_str()), (status, code), "{response:?}");
    let challenge = challenge.map(|error| format!("Bearer realm=\"keygate\"{error}"));
    assert_eq!(response.header("www-authenticate"), challenge.as_deref(), "{response:?}");
}

#[test]
fn invalid_credentials_are_refused() {
    let (upstream, gateway, key) = Gateway::with_key("");
    let mut client = Client::connect(gateway.address);
    assert_refused(&client.get("/x", ""), 401, "unauthenticated", Some(""));
    let basic = client.request("GET", "/x", "", &[("authorization", "Basic YTpi")], b"");
    assert_refused(&basic, 401, "unauthenticated", Some(""));
    for header in ["Bearer", "Bearer  "] {
        let empty = client.request("GET", "/x", "", &[("authorization", header)], b"");
        assert_refused(&empty, 400, "invalid_request", Some(", error=\"invalid_request\""));
    }
    let two = client.request("GET", "/x", &key.text, &[("authorization", "Basic YTpi")], b"");
    assert_refused(&two, 400, "invalid_request", Some(", error=\"invalid_request\""));

    gateway.revoke(&gateway.key());
    let revoked = gateway.key();
    gateway.revoke(&revoked);
    let mut changed = key.text.clone();
    changed.replace_range(20..21, if &changed[20..21] == "A" { "B" } else { "A" });
    let mut details = Vec::new();
    for bad in [&*revoked.text, "sk_live_short", "another-systems-key", &changed] {
        let response = client.get("/x", bad);
        assert_refused(&response, 401, "invalid_token", Some(", error=\"invalid_token\""));
        assert_eq!(response.header("ratelimit"), None);
        details.push(response.json()["detail"].clone());
    }
    details.dedup();
    assert_eq!(details.len(), 2, "unknown and revoked keys must read the same: {details:?}");
    assert!(details[1].as_str().unwrap().contains("not a complete API key"), "{details:?}");
    assert_eq!(upstream.count(), 0);
    assert_eq!(client.get("/x", &key.text).status, 200);
}

#[test]
fn problem_type_links_to_the_page_of_errors_where_it_is_configured() {
    let blocks = "listen: [{ address: 127.0.0.1:0 }, { address: 127.0.0.1:0, serves: management }]
session: { origin: http://127.0.0.1:8080 }
";
    let upstream = Upstream::start();
    let base = "https://docs.example/errors";
    let problems = format!("problems: {{ base: '{base}' }}\nlimits: {{ key: {{ requests: 1, per: 1h }} }}\n");
    for (blocks, base) in [(blocks.to_owned(), None), (format!("{blocks}{problems}"), Some(base))] {
        let (gateway, key) = Gateway::with(&[upstream.address], &blocks).and_secret();
        let [gateway_port, management] = gateway.addresses() else { panic!("two listeners") };
        let assert_linked = |response: &Response, code: &str| {
            assert_eq!(response.code(), code, "{response:?}");
            let link = base.map_or("about:blank".to_owned(), |base| format!("{base}#{code}"));
            assert_eq!(response.json()["type"], link, "{response:?}");
        };
        let mut client = Client::connect(*gateway_port);
        assert_linked(&client.get("/x", ""), "unauthenticated");
        assert_linked(&client.get("/settings/api/v1/session", ""), "unauthenticated");
        assert_linked(&client.send("\r\nnonsense\r\n\r\n").response(), "malformed_request");
        assert_linked(&Client::connect(*management).get("/v1/orgs", ""), "unauthenticated");
        if base.is_some() {
            let mut client = Client::connect(*gateway_port);
            assert_eq!(client.get("/x", &key).status, 200);
            assert_linked(&client.get("/x", &key), "rate_limited");
        }
    }
}

#[test]
fn missing_permissions_and_routes_are_refused() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let reader = gateway.key_with(&["queries:read"]);
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/api/queries?limit=3", &reader.text).status, 200);
    let denied = client.request("POST", "/api/queries", &reader.text, &[], b"{}");
    assert_refused(&denied, 403, "insufficient_scope", Some(", error=\"insufficient_scope\", scope=\"queries:write\""));
    assert!(denied.header("ratelimit").is_some(), "the caller is authenticated");
    assert_refused(&client.get("/api/other", &reader.text), 404, "not_found", None);
    assert_refused(
        &client.get("/api/other", "sk_live_garbage"),
        401,
        "invalid_token",
        Some(", error=\"invalid_token\""),
    );
    assert_refused(&client.get("/api//queries", &reader.text), 404, "ambiguous_path", None);

    gateway.permit(&reader, &["queries:read", "queries:write"]);
    assert_eq!(client.request("POST", "/api/queries", &reader.text, &[], b"{}").status, 200);
    gateway.permit(&reader, &[]);
    assert_eq!(client.get("/api/queries", &reader.text).status, 403);
    gateway.suspend(&reader);
    let suspended = client.get("/api/queries", &reader.text);
    assert_refused(&suspended, 403, "insufficient_scope", Some(", error=\"insufficient_scope\""));
    assert_eq!(upstream.count(), 2);

    let mut outcomes: Vec<String> = gateway.records().iter().map(|record| record.outcome.name().to_owned()).collect();
    outcomes.retain(|outcome| outcome != "completed");
    outcomes.sort();
    let refused = gateway.records().into_iter().find(|record| record.status == Some(403)).unwrap();
    assert!(refused.duration_us > Some(0) && refused.response_bytes > Some(100), "{refused:?}");
    assert_eq!(outcomes, ["forbidden", "forbidden", "not_found", "not_found", "org_suspended", "unknown"]);
}

#[test]
fn key_is_refused_when_its_user_is_removed() {
    let (_upstream, gateway, key) = Gateway::with_key("");
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key.text).status, 200);
    gateway.remove_user(&key);
    assert_refused(&client.get("/", &key.text), 401, "invalid_token", Some(", error=\"invalid_token\""));
}

#[test]
fn malformed_requests_are_refused() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    for bytes in [
        "GET / HTTP/1.1\r\nHost: h\r\nbad header\r\n\r\n".to_owned(),
        "NOT HTTP\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: h\r\nx: \u{0}\r\n\r\n".into(),
        "GET / HTTP/9.9\r\nHost: h\r\n\r\n".into(),
        format!("POST / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nContent-Length: 1, 2\r\n\r\n"),
    ] {
        let mut client = Client::connect(gateway.address);
        let response = client.send(&bytes).response();
        assert_refused(&response, 400, "malformed_request", None);
        assert_eq!(response.header("connection"), Some("close"));
        assert!(client.is_closed(), "{bytes:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn oversized_requests_are_refused() {
    let (upstream, gateway, key) = Gateway::with_secret("http: { max_head: 16KiB, max_target: 4KiB, max_body: 1MiB }");
    let check = |bytes: String, status, code| {
        let mut client = Client::connect(gateway.address);
        // The response may come before all was sent, and then the connection may be closed.
        client.try_send(bytes).ok();
        let response = client.response();
        assert_refused(&response, status, code, None);
        assert_eq!(response.header("connection"), Some("close"));
    };
    let auth = format!("Host: h\r\nAuthorization: Bearer {key}\r\n");
    check(format!("GET / HTTP/1.1\r\n{auth}x: {}\r\n\r\n", "x".repeat(20_000)), 431, "head_too_large");
    let many: String = (0..101).map(|i| format!("x-{i}: 1\r\n")).collect();
    check(format!("GET / HTTP/1.1\r\n{auth}{many}\r\n"), 431, "head_too_large");
    check(format!("GET /{} HTTP/1.1\r\n{auth}\r\n", "x".repeat(5000)), 414, "target_too_long");
    check(format!("GET /{} HTTP/1.1\r\n{auth}\r\n", "x".repeat(20_000)), 414, "target_too_long");
    check(format!("PUT / HTTP/1.1\r\n{auth}Content-Length: 1048577\r\n\r\n"), 413, "body_too_large");
    assert_eq!(upstream.count(), 0);
    let chunk = format!("80000\r\n{}\r\n", "x".repeat(0x80000));
    check(
        format!("PUT / HTTP/1.1\r\n{auth}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}1\r\nx\r\n"),
        413,
        "body_too_large",
    );
}

#[test]
fn slow_requests_are_refused() {
    let (_upstream, gateway, key) =
        Gateway::with_secret("timeouts: { head: 200ms, body_idle: 200ms, keep_alive: 300ms }");
    let mut slow_head = Client::connect(gateway.address);
    assert_refused(&slow_head.send("GET / HTTP/1.1\r\nHost:").response(), 408, "request_timeout", None);
    assert!(slow_head.is_closed());
    let mut slow_body = Client::connect(gateway.address);
    slow_body.send(format!("PUT / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nContent-Length: 9\r\n\r\nx"));
    let response = slow_body.response();
    assert_refused(&response, 408, "request_timeout", None);
    assert_eq!(response.header("connection"), Some("close"));
    let mut idle = Client::connect(gateway.address);
    assert_eq!(idle.get("/", &key).status, 200);
    assert!(idle.is_closed(), "an idle connection is closed without a word");
    assert!(Client::connect(gateway.address).is_closed(), "so is one that never says anything");
}

#[test]
fn upstream_failures_have_their_status() {
    let closed = free_address();
    let gateway = Gateway::with(&[closed], "");
    let unreachable = Client::connect(gateway.address).get("/", &gateway.key().text);
    assert_refused(&unreachable, 503, "upstream_unavailable", None);
    let problem = unreachable.json();
    assert!(problem["detail"].as_str().unwrap().contains("it has not executed the request"), "{problem}");
    assert_eq!(unreachable.header("retry-after"), Some("1"));
    assert!(unreachable.header("ratelimit").is_some());

    let upstream = Upstream::answering(|request, stream| match request.path() {
        "/garbage" => drop(stream.write_all(b"what?\r\n\r\n")),
        "/close" => drop(stream.shutdown(std::net::Shutdown::Both)),
        "/switch" => {
            drop(stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"))
        }
        "/short" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").ok();
            stream.shutdown(std::net::Shutdown::Both).ok();
        }
        _ => {}
    });
    let (gateway, key) = Gateway::with(&[upstream.address], "timeouts: { response: 300ms }").and_secret();
    for path in ["/garbage", "/close", "/switch"] {
        assert_refused(&Client::connect(gateway.address).get(path, &key), 502, "upstream_failed", None);
    }
    assert_refused(&Client::connect(gateway.address).get("/silence", &key), 504, "upstream_timeout", None);
    for path in ["/close", "/silence"] {
        let problem = Client::connect(gateway.address).get(path, &key).json();
        assert!(problem["detail"].as_str().unwrap().ends_with("It may have executed the request."), "{problem}");
    }
    let mut client = Client::connect(gateway.address);
    client.send(crate::support::head("GET", "/short", &key, &[], 0));
    assert!(client.try_response_to("GET").is_err(), "a truncated body must be visibly truncated");
    eventually("all slots are back", || gateway.metric("keygate_in_flight") == 0.0);
    let records = gateway.records();
    assert!(records.iter().all(|record| record.outcome.name() == "upstream_error"), "{records:?}");
    assert_eq!(records.len(), 7);
}

#[test]
fn endpoint_that_is_down_is_skipped() {
    let closed = free_address();
    let upstream = Upstream::start();
    let (gateway, key) = Gateway::with(&[closed, upstream.address], "").and_secret();
    let mut client = Client::connect(gateway.address);
    for _ in 0..10 {
        assert_eq!(client.request("POST", "/", &key, &[], b"body").status, 200);
    }
    assert_eq!(upstream.count(), 10);
    assert!(upstream.received().iter().all(|request| request.body == b"body"));
}

#[test]
fn requests_avoid_the_endpoint_with_more_in_flight() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(Some(wait));
    // The first of its requests is held.
    let busy = Upstream::answering(move |_, stream| {
        let first = wait.lock().unwrap().take();
        first.map(|wait| wait.recv().ok());
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok();
    });
    let free = Upstream::start();
    let gateway = Gateway::with(&[busy.address, free.address], "limits: { key: { requests: 1000000, per: 1s } }");
    let key = gateway.key().text;
    let mut held = Client::connect(gateway.address);
    let mut client = Client::connect(gateway.address);
    let mut sent = 0;
    while busy.count() == 0 {
        held = Client::connect(gateway.address);
        held.send(crate::support::head("GET", "/", &key, &[], 0));
        sent += 1;
        eventually("the request arrives", || busy.count() + free.count() == sent);
    }
    // A stall of the machine counts as latency of an endpoint, and fades within seconds. By chance alone, one window
    // in a million would do.
    eventually("twenty requests in a row go to the other one", || {
        let before = busy.count();
        (0..20).for_each(|_| assert_eq!(client.get("/", &key).status, 200));
        busy.count() == before
    });
    release.send(()).unwrap();
    assert_eq!(held.response().status, 200);
}

#[test]
fn browser_that_looks_for_a_dashboard_where_there_is_none_gets_a_page() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let mut client = Client::connect(gateway.address);
    let mut ask = |path: &str, key: &str, accept: &str| client.request("GET", path, key, &[("accept", accept)], b"");
    let browsers = "text/html,application/xhtml+xml,*/*;q=0.8";
    let page = ask("/settings", "", browsers);
    assert_eq!((page.status, page.header("content-type")), (401, Some("text/html; charset=utf-8")));
    assert!(String::from_utf8_lossy(&page.body).contains("has no block <code>session</code>"), "{page:?}");
    for (path, accept) in [("/settings", "application/json"), ("/settings/x", browsers), ("/", browsers)] {
        assert_refused(&ask(path, "", accept), 401, "unauthenticated", Some(""));
    }
    assert_refused(
        &ask("/settings", "sk_live_short", browsers),
        401,
        "invalid_token",
        Some(", error=\"invalid_token\""),
    );
    // The path is the upstream's, for callers with a key.
    assert_eq!(ask("/settings", &gateway.key().text, browsers).status, 200);
}
