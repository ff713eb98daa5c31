//! `access: public`: requests without a key, and the limits that they have in place of a key's.

use super::{PLENTY, problems, start};
use crate::config::{MINIMAL, parse};
use crate::support::redis::Redis;
use crate::support::{Client, GatedUpstream, Gateway, Upstream, eventually, head};

const ROUTES: &str = "credentials: { headers: [X-API-Key] }\n\
                      routes:\n  - { name: health, path: /health, access: public }\n  - { name: rest, path: '/**' }\n";

fn blocks(limits: &str) -> String {
    format!("limits: {{ key: {{ requests: 1000000, per: 1s }}, public: {{ {limits} }} }}\n{ROUTES}")
}

fn counted(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric(&format!("keygate_public_requests_total{{result=\"{result}\",route=\"health\"}}"))
}

/// A request to the public route with these fields.
fn health(gateway: &Gateway, fields: &[(&str, &str)]) -> crate::support::Response {
    Client::connect(gateway.address).request("GET", "/health", "", fields, b"")
}

#[test]
fn public_route_needs_no_key_and_takes_nothing_from_one() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, &format!("{PLENTY}{ROUTES}")).and_key();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/other", "").status, 401);
    let response = client.get("/health", "");
    assert_eq!(response.status, 200);
    assert!(response.header("ratelimit").is_none() && response.header("x-request-id").is_some(), "{response:?}");
    // No credential is looked at, and none reaches the upstream: neither a valid one nor a second one.
    let bearer = format!("Bearer {}", key.text);
    for fields in [
        &[("Authorization", &*bearer)][..],
        &[("Authorization", "Bearer other"), ("X-API-Key", &key.text)],
        &[("X_API_Key", ""), ("Cookie", "a=b; __Host-keygate=AAAA")],
        &[("X-User-Id", "usr_1"), ("X-Org-Id", "org_1"), ("X-Auth-Method", "api-key"), ("X-Key-Id", "x")],
    ] {
        assert_eq!(health(&gateway, fields).status, 200, "{fields:?}");
        let received = upstream.last();
        assert_eq!(received.header("x-auth-method"), Some("none"), "{fields:?}");
        for name in ["authorization", "x-api-key", "x_api_key", "x-user-id", "x-org-id", "x-key-id", "x-permissions"] {
            assert_eq!(received.header(name), None, "{name}");
        }
        assert!(received.header("x-request-id").is_some() && received.header("x-forwarded-for").is_some());
        assert!(received.header("cookie").is_none_or(|cookie| cookie == "a=b"));
    }
    assert_eq!(gateway.uses(&key), Some(0), "no token was taken");
    assert!(gateway.records().is_empty(), "nothing was recorded");
    assert_eq!(counted(&gateway, "admitted"), 5.0);
    let of_route = "keygate_requests_total{code=\"200\",route=\"health\"}";
    assert_eq!(gateway.metric(of_route), 5.0);
    assert_eq!(client.get("/other", &key.text).status, 200);
}

#[test]
fn service_with_its_own_authorization_gets_it_on_a_public_route() {
    let upstream = Upstream::start();
    let blocks = format!("{PLENTY}{}", ROUTES.replace("access: public", "access: public, pass_authorization: true"));
    let (gateway, key) = start(&upstream, &blocks).and_key();
    for authorization in ["Bearer of-the-service", "Basic YTpi", "AWS4-HMAC-SHA256 Credential=x"] {
        let forged = [("X-User-Id", "usr_1"), ("X_Org_Id", "org_1"), ("X-Auth-Method", "api-key"), ("X-Key-Id", "x")];
        let own = [("Authorization", authorization), ("X-API-Key", &*key.text), ("X-Permissions", "all")];
        assert_eq!(health(&gateway, &[&forged[..], &own].concat()).status, 200);
        let received = upstream.last();
        assert_eq!(received.header("authorization"), Some(authorization));
        assert_eq!(received.header("x-auth-method"), Some("none"));
        for name in ["x-api-key", "x-user-id", "x_org_id", "x-org-id", "x-key-id", "x-permissions"] {
            assert_eq!(received.header(name), None, "{name}");
        }
    }
    assert_eq!(Client::connect(gateway.address).get("/other", "").status, 401, "the other routes ask for a key");
    assert_eq!(gateway.uses(&key), Some(0));
    let warnings = parse(&format!("{MINIMAL}{}", blocks.replace(PLENTY, ""))).unwrap().warnings();
    let warning = "the route `health` is public and passes `Authorization`";
    assert!(warnings.len() == 1 && warnings[0].contains(warning), "{warnings:?}");
}

#[test]
fn address_beyond_its_bucket_is_refused_and_keys_from_it_are_not() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, &blocks("requests: 3, per: 1h, burst: 3")).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!([(); 3].map(|()| client.get("/health", "").status), [200; 3]);
    let refused = client.get("/health", "");
    assert_eq!((refused.status, &*refused.code()), (429, "address_limited"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1199..=1200).contains(&seconds), "{seconds}");
    assert_eq!(client.get("/health", &key).status, 429, "a key is not looked at");
    assert_eq!(client.get("/other", &key).status, 200);
    assert_eq!((counted(&gateway, "address_limited"), upstream.count()), (2.0, 4));
    // A client that goes on has to connect again from time to time.
    let closing = (0..200).find(|_| client.get("/health", "").header("connection") == Some("close"));
    assert!(closing.is_some());
    // The bucket survives a reload that does not change it, and begins anew with another one.
    gateway.reconfigure(|text| text.replace("path: '/**'", "path: '/o/**'"));
    eventually("the reload", || Client::connect(gateway.address).get("/other", &key).status == 404);
    assert_eq!(health(&gateway, &[]).status, 429);
    gateway.reconfigure(|text| text.replace("burst: 3", "burst: 2"));
    eventually("the new limit", || health(&gateway, &[]).status == 200);
}

#[test]
fn requests_in_flight_are_bounded_for_all_addresses_together() {
    let upstream = GatedUpstream::start();
    let gateway = Gateway::with(&[upstream.address()], &blocks("requests: 1000, per: 1s, concurrent: 2"));
    let key = gateway.key().text;
    let mut open = [(); 2].map(|()| Client::connect(gateway.address));
    open.iter_mut().for_each(|client| _ = client.send(head("GET", "/health", "", &[], 0)));
    eventually("both are at the upstream", || upstream.count() == 2);
    let refused = health(&gateway, &[]);
    assert_eq!((refused.status, &*refused.code(), refused.header("retry-after")), (503, "public_busy", Some("1")));
    assert_eq!(counted(&gateway, "busy"), 1.0);
    let mut keyed = Client::connect(gateway.address);
    keyed.send(head("GET", "/other", &key, &[], 0));
    eventually("a request with a key is served", || upstream.count() == 3);
    // A client that goes away gives its place back.
    let [mut first, second] = open;
    drop(second);
    eventually("the exchange has ended", || gateway.metric("keygate_in_flight") == 2.0);
    let mut next = Client::connect(gateway.address);
    next.send(head("GET", "/health", "", &[], 0));
    eventually("another one has the place", || upstream.count() == 4);
    upstream.open();
    assert_eq!([first.response().status, next.response().status], [200, 200]);
}

#[test]
fn public_route_is_served_while_nothing_can_be_recorded_or_decided() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let state = format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    let (gateway, key) = start(&upstream, &format!("{state}{PLENTY}{ROUTES}")).and_secret();
    drop(redis);
    let mut client = Client::connect(gateway.address);
    eventually("keys cannot be checked", || client.get("/other", &key).status == 503);
    assert_eq!(client.get("/health", "").status, 200);
}

#[test]
fn public_route_over_a_keyed_one_is_a_configuration_error() {
    for (blocks, expected) in [
        (
            "routes: [{ name: p, path: '/**', access: public }, { name: k, path: /a }]",
            "routes[1]: the public route `p` before it takes its requests",
        ),
        (
            "routes: [{ name: p, path: '/{x}', methods: [GET], access: public }, { name: k, path: /a }]",
            "routes[1]: the public route `p` before it takes its requests",
        ),
        ("routes: [{ name: p, path: /a, access: public, permission: 'a:read' }]", "contradicts `access: public`"),
        ("routes: [{ name: p, path: /a, access: public, serve: usage }]", "contradicts `access: public`"),
        (
            "routes: [{ name: p, path: /a, access: public, pass_authorization: true }]",
            "leaves no field for the API key",
        ),
        ("routes: [{ name: p, path: /a, access: public, query_in_audit: true }]", "have no audit records"),
        ("routes: [{ name: p, path: /a, access: open }]", "`open` is not an access; give key or public"),
    ] {
        let problems = problems(blocks);
        assert!(problems.contains(expected), "{blocks}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{blocks}: {problems}");
    }
    for blocks in [
        "routes: [{ name: p, path: /health, access: public }, { name: k, path: '/**' }]",
        "routes: [{ name: p, path: /a, methods: [GET], access: public }, { name: k, path: /a, methods: [POST] }]",
        "routes: [{ name: p, path: '/**', host: p.example, access: public }, { name: k, path: '/**' }]",
        "routes: [{ name: k, path: '/a/**' }, { name: p, path: '/**', access: public }]",
    ] {
        assert!(parse(&format!("{MINIMAL}{blocks}\n")).is_ok(), "{blocks}");
    }
}
