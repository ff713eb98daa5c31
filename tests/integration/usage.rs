//! `GET` of a route with `serve: usage`: a caller's own usage and limits, and never those of another key.

use journal::audit::Outcome;
use keygate::config::Config;
use serde_json::{Value, json};

use crate::support::{Client, Gateway, Response, Upstream, eventually};

const ROUTES: &str = "
gateway: gw-7
routes:
  - { name: usage, path: /usage, serve: usage }
  - { name: write, methods: [POST], path: /api, permission: 'queries:write' }
  - { name: all, path: '/api/**' }
";

/// The answer, which has the documented form and agrees with the fields of the response.
fn usage(client: &mut Client, key: &str) -> Value {
    let response = client.get("/usage", key);
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")), "{response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let usage = response.json();
    assert_matches_document(&usage);
    // The fields say the same as the body.
    let limit = &usage["limit"];
    let fields = format!(
        "\"key\";r={};t={}, \"org\";r={}",
        limit["remaining"], limit["reset"], usage["concurrent"]["remaining"]
    );
    assert_eq!(response.header("ratelimit"), Some(&*fields));
    usage
}

pub fn assert_matches_document(usage: &Value) {
    let text = std::fs::read_to_string("docs/openapi-usage.json").unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let schema = json!({ "$ref": "#/components/schemas/Usage", "components": document["components"] });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(usage).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?} in {usage}");
}

#[test]
fn caller_reads_the_usage_of_its_own_key_only() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let (mine, other) = (gateway.key(), gateway.key());
    let mut client = Client::connect(gateway.address);
    let fresh = usage(&mut client, &mine.text);
    assert_eq!((fresh["total"].clone(), fresh["day"]["requests"].clone()), (json!(1), json!(1)), "its first use");
    for _ in 0..3 {
        assert_eq!(client.get("/api/x", &mine.text).status, 200);
    }
    let sister = gateway.another_key(&mine);
    for key in [&other, &sister] {
        assert_eq!(client.get("/api/x", &key.text).status, 200);
    }
    for _ in 0..2 {
        assert_eq!(client.request("POST", "/api", &mine.text, &[], b"").status, 403);
    }
    let answer = usage(&mut client, &mine.text);
    assert_eq!(answer["key_id"], json!(mine.id.to_string()));
    assert_eq!((answer["org_id"].clone(), answer["user_id"].clone()), (json!(mine.org), json!(mine.user)));
    assert_eq!((answer["total"].clone(), answer["gateway"].clone()), (json!(5), json!("gw-7")));
    // Unless the hour has just begun.
    assert!(answer["hour"]["requests"].as_u64() <= Some(5));
    assert_eq!((answer["day"]["requests"].clone(), answer["day"]["refusals"].clone()), (json!(5), json!(2)));
    assert_eq!(answer["limit"]["remaining"], json!(995), "a request for usage costs a token");
    assert_eq!(answer["concurrent"], json!({ "limit": 100, "remaining": 99 }));
    assert_eq!(usage(&mut client, &other.text)["total"], json!(2));
    assert_eq!(upstream.count(), 5, "no request for usage reaches the upstream");
    // No parameter names another key.
    let named = client.get(&format!("/usage?key={}", other.id), &mine.text).json();
    assert_eq!(named["key_id"], json!(mine.id.to_string()));

    let records = gateway.records();
    let record = records.iter().find(|record| record.action == "usage").unwrap();
    assert_eq!((record.outcome, record.status), (Outcome::Completed, Some(200)));
    assert!(record.response_bytes.unwrap() > 100);
}

#[test]
fn refused_callers_read_no_usage() {
    let blocks = format!("limits: {{ key: {{ requests: 2, per: 1h, burst: 2 }} }}\n{ROUTES}");
    let (upstream, gateway, key) = Gateway::with_key(&blocks);
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/usage", "").code(), "unauthenticated");
    assert_eq!(client.get("/usage", "sk_live_short").code(), "invalid_token");
    assert_eq!(client.request("POST", "/usage", &key.text, &[], b"").code(), "not_found");
    assert_eq!(client.get("/usage/x", &key.text).code(), "not_found");
    usage(&mut client, &key.text);
    assert_eq!(usage(&mut client, &key.text)["limit"]["remaining"], json!(0));
    let limited = client.get("/usage", &key.text);
    assert_eq!((limited.status, limited.header("retry-after").is_some()), (429, true), "{limited:?}");
    let revoked = gateway.another_key(&key);
    gateway.revoke(&revoked);
    assert_eq!(client.get("/usage", &revoked.text).code(), "invalid_token");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn slot_is_free_and_the_connection_stays_after_the_answer() {
    let blocks = format!("limits: {{ org: {{ concurrent: 1 }} }}\n{ROUTES}");
    let (_upstream, gateway, key) = Gateway::with_key(&blocks);
    let mut client = Client::connect(gateway.address);
    for _ in 0..5 {
        usage(&mut client, &key.text);
    }
    let head = client.request("HEAD", "/usage", &key.text, &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.header("content-length").is_some_and(|length| length.parse::<u32>().unwrap() > 100));
    assert_eq!(client.get("/api/x", &key.text).status, 200, "on the same connection");
    // A body that nothing reads ends the connection.
    let with_body: Response = client.request("GET", "/usage", &key.text, &[], b"unread");
    assert_eq!((with_body.status, with_body.header("connection")), (200, Some("close")));
    eventually("all slots are free", || gateway.explain_in_flight(&key) == 0);
}

#[test]
fn access_log_names_no_upstream_for_usage() {
    let blocks = format!("telemetry: {{ access_log: {{ file: access.log }} }}\n{ROUTES}");
    let (_upstream, gateway, key) = Gateway::with_key(&blocks);
    let mut client = Client::connect(gateway.address);
    usage(&mut client, &key.text);
    assert_eq!(client.get("/api/x", &key.text).status, 200);
    let log = gateway.dir.path().join("access.log");
    eventually("both lines are written", || std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 2));
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("\"usage\"") && !lines[0].contains("upstream"), "{}", lines[0]);
    assert!(lines[1].contains("upstream"), "{}", lines[1]);
}

#[test]
fn served_route_has_no_settings_of_an_upstream() {
    const FILE: &str = "listen: [{ address: 127.0.0.1:0 }]\nadmin: { socket: s, address: 127.0.0.1:1 }\n\
        upstreams: { a: { endpoints: [http://127.0.0.1:2] }, b: { endpoints: [http://127.0.0.1:3] } }\n\
        state: { embedded: { path: s.db } }\naudit: { path: audit }\nroutes:\n  - { name: r, path: /r, upstream: a }\n";
    let parse = |route: &str| {
        Config::parse("keygate.yaml".as_ref(), &format!("{FILE}  - {{ name: usage, path: /usage, serve: {route} }}\n"))
    };
    let config = parse("usage").unwrap();
    assert_eq!(config.routes[1].methods, [http::Method::GET]);
    let unused = config.warnings();
    assert!(unused.len() == 1 && unused[0].contains("`b`"), "{unused:?}");
    assert!(parse("usage, methods: [GET]").is_ok());
    for (route, error) in [
        ("usag", "`usag` is not a resource; did you mean `usage`?"),
        ("usage, upstream: a", "upstream: has no effect beside `serve`"),
        ("usage, strip_prefix: /usage", "has no effect beside `serve`"),
        ("usage, upgrade: [websocket]", "has no effect beside `serve`"),
        ("usage, trailers: true", "has no effect beside `serve`"),
        ("usage, idempotent: true", "has no effect beside `serve`"),
        ("usage, methods: [GET, POST]", "must be [GET] beside `serve: usage`"),
    ] {
        let errors = parse(route).unwrap_err().to_string();
        assert!(errors.contains(error), "{route}: {errors}");
    }
}
