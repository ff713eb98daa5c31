//! Envoy with `ext_proc`: a stream is the exchange, with its slot, its record and its end.

use std::fs;
use std::time::{Duration, Instant};

use journal::audit::Outcome;

use super::setup::blocks_with;
use super::{Kind, Proxy, Setup, blocks, upstream};
use crate::limits::{budget_left, metered_upstream};
use crate::support::{
    Client, GatedUpstream, Gateway, Key, Setup as Installation, eventually, free_address, head, metric,
};

const KIND: Kind = Kind::EnvoyExtProc;

/// An upstream that is in the middle of a response until its gate is opened.
fn responding() -> GatedUpstream {
    GatedUpstream::sending(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha", b"lf")
}

/// Sends a request, without waiting for its response.
fn begin(proxy: &Proxy, key: &str) -> Client {
    let mut client = proxy.client();
    client.send(head("GET", "/reads/a", key, &[], 0));
    client
}

/// Asserts that an exchange holds the one slot of its organization: neither less nor more.
fn assert_slot_is_held(gateway: &Gateway, key: &Key, proxy: &Proxy) {
    assert_eq!(gateway.explain_in_flight(key), 1);
    let refused = proxy.client().get("/reads/a", &key.text);
    assert_eq!((refused.status, &*refused.code()), (429, "too_many_in_flight"));
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn slot_is_held_as_long_as_the_response_and_free_after_it() {
    let upstream = responding();
    let (gateway, key, proxy) = Setup::before(KIND, upstream.address(), |text| text);
    gateway.limit_org(&key, 1);
    for _ in 0..3 {
        upstream.close();
        let mut client = begin(&proxy, &key.text);
        assert_eq!(client.head().unwrap().0, 200);
        assert_eq!(client.read_exact(2), b"ha");
        assert_slot_is_held(&gateway, &key, &proxy);
        upstream.open();
        assert_eq!(client.read_exact(2), b"lf");
        eventually("the slot is free", || gateway.explain_in_flight(&key) == 0);
    }
    let mut records = gateway.records();
    records.retain(|record| record.outcome.name() != "too_many_in_flight");
    let ends: Vec<_> = records.iter().map(|record| (record.outcome, record.status)).collect();
    assert_eq!(ends, [(Outcome::Decided, Some(200)); 3], "Envoy does not say whether the body went to its end");
}

#[test]
fn abort_of_the_client_frees_the_slot() {
    let upstream = GatedUpstream::start();
    let (gateway, key, proxy) = Setup::before(KIND, upstream.address(), |text| text);
    gateway.limit_org(&key, 1);
    upstream.open();
    assert_eq!(proxy.client().get("/reads/a", &key.text).status, 200);
    eventually("the slot is free", || gateway.explain_in_flight(&key) == 0);
    upstream.close();
    let client = begin(&proxy, &key.text);
    eventually("the request is at the upstream", || upstream.count() == 2);
    assert_slot_is_held(&gateway, &key, &proxy);
    drop(client);
    eventually("the slot is free", || gateway.explain_in_flight(&key) == 0);
    let records = gateway.records();
    let aborted: Vec<_> = records.iter().filter(|record| record.outcome == Outcome::Aborted).collect();
    assert_eq!((aborted.len(), aborted[0].status), (1, None), "{records:?}");
}

/// In the middle of a response the connection of the client breaks; before it, Envoy can still answer.
#[test]
fn revocation_ends_open_exchanges_at_the_client() {
    for (upstream, has_begun) in [(responding(), true), (GatedUpstream::start(), false)] {
        let (gateway, key, proxy) = Setup::before(KIND, upstream.address(), |text| text);
        let mut clients: Vec<_> = (0..20).map(|_| begin(&proxy, &key.text)).collect();
        eventually("the requests are at the upstream", || upstream.count() == clients.len());
        if has_begun {
            for client in &mut clients {
                assert_eq!(client.head().unwrap().0, 200);
                assert_eq!(client.read_exact(2), b"ha");
            }
        }
        let revoked = Instant::now();
        gateway.revoke(&key);
        for client in &mut clients {
            if has_begun {
                assert_eq!(client.rest(), b"", "no end of a response");
            } else {
                let response = client.try_response_to("GET");
                assert!(response.as_ref().map_or(true, |response| response.status == 503), "{response:?}");
            }
        }
        assert!(revoked.elapsed() < crate::support::lenient(Duration::from_secs(1)), "{:?}", revoked.elapsed());
        eventually("the slots are free", || gateway.explain_in_flight(&key) == 0);
        let records = gateway.records();
        let terminated = records.iter().filter(|record| record.outcome == Outcome::Terminated);
        assert_eq!(terminated.count(), 20, "{records:?}");
        assert_eq!(proxy.client().get("/reads/a", &key.text).status, 401);
    }
}

/// A gateway as a process, with an organization, and a key that may read.
fn installed() -> (Installation, String) {
    let setup = Installation::new("127.0.0.1:9".parse().unwrap(), "");
    let text = setup.text();
    let (_, rest) = text.split_once("admin:").unwrap();
    let (rest, _) = rest.split_once("audit:").unwrap();
    let blocks = blocks(KIND).replace("127.0.0.1:0", &setup.address.to_string());
    setup.write(&format!("admin:{rest}{blocks}timeouts: {{ lame_duck: 0s }}\n"));
    setup.ok(&["org", "create", "acme"]);
    setup.ok(&["user", "create", "--org", "acme", "--permission", "queries:read", "ada@example.com"]);
    let key = setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "laptop"]);
    (setup, key)
}

#[test]
fn killed_gateway_ends_open_exchanges_and_new_ones_are_refused() {
    let upstream = responding();
    let (setup, key) = installed();
    let mut gateway = setup.start();
    let proxy = Proxy::start(KIND, setup.address, upstream.address());
    let mut clients: Vec<_> = (0..5).map(|_| begin(&proxy, &key)).collect();
    for client in &mut clients {
        assert_eq!(client.head().unwrap().0, 200);
        assert_eq!(client.read_exact(2), b"ha");
    }
    gateway.kill();
    for client in &mut clients {
        assert_eq!(client.rest(), b"", "no end of a response");
    }
    let before = upstream.count();
    assert_eq!(proxy.client().get("/reads/a", &key).status, 503);
    assert_eq!(upstream.count(), before);
    // Another one at its address is found again.
    let _gateway = setup.start();
    upstream.open();
    eventually("requests are served again", || proxy.client().get("/reads/a", &key).status == 200);
}

/// The head of the response says the cost, or its trailers; a response that says nothing, and one that Envoy makes
/// itself, cost the reservation.
#[test]
fn cost_of_the_response_is_what_its_head_or_its_trailers_say() {
    let upstream = metered_upstream();
    let plan = "plans: { sold: { requests: 100, per: 1s, quota: { units: 1000, per: month, of: org } } }\n";
    let routes = "routes: [{ name: chat, path: '/**', cost: { at_most: 100, from: X-Cost } }]\n";
    let blocks = blocks_with(KIND, routes).replace("limits: { key:", &format!("{plan}limits: {{ plan: sold, key:"));
    let mut gateway = Gateway::with(&[free_address()], &blocks);
    let key = gateway.key().text;
    // Envoy reads trailers of HTTP/1 where the cluster and the listener say so.
    let trailers = |text: String| {
        let begin = "    - name: protected\n      connect";
        let options = "    - name: protected\n      typed_extension_protocol_options: { \
                       envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { '@type': \
                       type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, \
                       explicit_http_config: { http_protocol_options: { enable_trailers: true } } } }\n      connect";
        assert!(text.contains(begin), "the upstream is not found");
        text.replacen(begin, options, 1)
    };
    let proxy = Proxy::start_changed(KIND, gateway.address, upstream.address, trailers);
    let mut client = proxy.client();
    let (mut left, mut costs) = (1000, Vec::new());
    for (path, cost) in [("/head/12", 12), ("/trailers/30", 30), ("/none", 100), ("/twice/5", 100), ("/head/150", 150)]
    {
        let response = client.get(path, &key);
        assert_eq!((response.status, budget_left(&response).0), (200, left - 100), "{path}");
        left -= cost;
        costs.insert(0, Some(cost));
        eventually("the exchange has ended", || gateway.records().len() == costs.len());
    }
    assert_eq!(gateway.records().iter().map(|record| record.cost).collect::<Vec<_>>(), costs);
    assert_eq!(gateway.metric("keygate_cost_over_total{route=\"chat\"}"), 1.0);
    // It is exact after a restart, too. Then Envoy has no upstream.
    gateway.restart_with(str::to_owned);
    let proxy = Proxy::start(KIND, gateway.address, free_address());
    for left in [left - 100, left - 200] {
        let response = proxy.client().get("/head/1", &key);
        assert_eq!((response.status, budget_left(&response).0), (503, left));
    }
}

/// The stream ends when the head of the request is sent, long before the response: one warning, and a metric.
#[test]
fn missing_override_of_the_mode_is_counted_and_warned_of_once() {
    let without = |text: String| {
        let lines = ["allow_mode_override: true", "response_header_mode: SEND", "response_trailer_mode: SEND"];
        let kept: Vec<_> = text.lines().filter(|line| !lines.contains(&line.trim())).collect();
        assert_eq!(kept.len() + lines.len(), text.lines().count());
        kept.join("\n").replace("response_body_mode: NONE", "response_header_mode: SKIP")
    };
    let (setup, key) = installed();
    let _gateway = setup.start_logged();
    let upstream = upstream();
    let proxy = Proxy::start_changed(KIND, setup.address, upstream.address, without);
    for _ in 0..10 {
        assert_eq!(proxy.client().get("/reads/a", &key).status, 200);
    }
    eventually("all are counted", || metric(setup.admin, "keygate_decision_streams_early_total") >= 10.0);
    assert_eq!(metric(setup.admin, "keygate_decision_streams_early_total"), 10.0);
    let log = fs::read_to_string(setup.path().join("log")).unwrap();
    assert_eq!(log.matches("so that its slots were not held").count(), 1, "{log}");
    assert!(log.contains("allow_mode_override: true"), "{log}");
}
