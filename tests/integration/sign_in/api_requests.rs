//! Web sessions as credentials of API requests: permissions, limits, CSRF check and audit records.

use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

use super::ORIGIN;
use super::fixture::{self, Member, PERSON, hostile, member, signed_in};
use super::gateway_browser::{AGENT, GatewayBrowser, SESSION, text};
use crate::oidc::hostile::Hostile;
use crate::support::gateway::OPERATOR;
use crate::support::updates::suspension;
use crate::support::{Client, Gateway, Upstream, eventually, head};
use crate::usage::assert_matches_document;
use control::management;
use domain::refusal::Refusal;
use journal::audit::Outcome;

/// A gateway with these further blocks of configuration, and one user.
fn setup(upstream: &Upstream, provider: &Hostile, blocks: &str) -> (Gateway, Member) {
    let session = fixture::session(&[hostile("corp", provider, "")], "");
    let gateway = Gateway::with(&[upstream.address], &format!("{session}{blocks}"));
    let person = member(&gateway, "acme", PERSON, &["queries:read"]);
    (gateway, person)
}

/// Creates a key of the user.
fn key(gateway: &Gateway, person: Member) -> String {
    gateway.create_key(person.org, person.user, "laptop").text
}

#[test]
fn sessions_of_a_user_share_a_bucket_apart_from_their_keys() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let limits = "limits: { key: { requests: 3, per: 1h, burst: 3 } }\n";
    let (gateway, person) = setup(&upstream, &provider, limits);
    let key = key(&gateway, person);
    let mut browsers = [signed_in(&gateway, "corp"), signed_in(&gateway, "corp")];
    for (browser, left) in [(0, 2), (1, 1), (0, 0)] {
        let answer = browsers[browser].fetch("GET", "/x");
        assert_eq!(answer.status, 200);
        let limit = answer.header("ratelimit").unwrap();
        assert!(limit.starts_with(&format!("\"user\";r={left};")), "{limit}");
        assert!(answer.header("ratelimit-policy").unwrap().starts_with("\"user\";q=3;w=3600"));
    }
    for browser in &mut browsers {
        let answer = browser.fetch("GET", "/x");
        assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"));
        assert_eq!(answer.json()["violated-policies"], serde_json::json!(["user"]));
        assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() > 0);
        // Pages do not count: users look there for the reason.
        assert_eq!(browser.open("/settings/keys").status, 200);
    }
    // A new session has no new bucket.
    assert_eq!(signed_in(&gateway, "corp").fetch("GET", "/x").status, 429);
    let mut client = Client::connect(gateway.address);
    let statuses: Vec<u16> = (0..4).map(|_| client.get("/x", &key).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let refused =
        gateway.records().into_iter().filter(|record| record.outcome == Outcome::Refused(Refusal::RateLimited));
    assert_eq!(refused.filter(|record| record.key_id.is_none()).count(), 3);
}

#[test]
fn sessions_and_keys_share_the_organizations_requests_in_flight() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = Arc::clone(&gate);
    let upstream = Upstream::answering(move |request, stream| {
        if request.path() == "/held" {
            let (open, changed) = &*held;
            drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        }
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    });
    let provider = Hostile::start();
    let (gateway, person) = setup(&upstream, &provider, "limits: { org: { concurrent: 1 } }\n");
    let key = key(&gateway, person);
    let (mut holder, mut other) = (signed_in(&gateway, "corp"), signed_in(&gateway, "corp"));
    std::thread::scope(|scope| {
        let holding = scope.spawn(move || holder.fetch("GET", "/held").status);
        eventually("the request is held", || upstream.count() == 1);
        let by_key = Client::connect(gateway.address).get("/x", &key);
        let by_session = other.fetch("GET", "/x");
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        assert_eq!(holding.join().unwrap(), 200);
        for refused in [by_key, by_session] {
            assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_in_flight"));
        }
    });
    eventually("the slot is released", || Client::connect(gateway.address).get("/x", &key).status == 200);
}

#[test]
fn unsafe_methods_with_a_session_require_the_same_origin() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let (gateway, person) = setup(&upstream, &provider, "");
    let key = key(&gateway, person);
    let mut visitor = signed_in(&gateway, "corp");
    let evil = ("Origin", "https://evil.test");
    for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
        for fields in [
            vec![],
            vec![("Sec-Fetch-Site", "cross-site"), evil],
            vec![("Sec-Fetch-Site", "same-site"), ("Origin", ORIGIN)],
            vec![("Sec-Fetch-Site", "none")],
            vec![("Origin", "null")],
            vec![evil],
        ] {
            let answer = visitor.send(method, "/x", &fields, "");
            assert_eq!((answer.status, answer.code().as_str()), (403, "cross_site_request"), "{method} {fields:?}");
        }
    }
    assert_eq!(upstream.count(), 0);
    for (method, fields) in [
        ("POST", vec![("Sec-Fetch-Site", "same-origin")]),
        ("DELETE", vec![("Sec-Fetch-Site", "same-origin"), evil]),
        ("PUT", vec![("Origin", ORIGIN)]),
        ("GET", vec![("Sec-Fetch-Site", "cross-site"), evil]),
        ("OPTIONS", vec![]),
    ] {
        assert_eq!(visitor.send(method, "/x", &fields, "").status, 200, "{method} {fields:?}");
    }
    // Browsers do not add keys to requests by themselves, so a key needs no CSRF check.
    let bearer = format!("Bearer {key}");
    assert_eq!(visitor.send("POST", "/x", &[("Authorization", &bearer), evil], "").status, 200);
}

#[test]
fn tunnels_with_a_session_require_the_same_origin() {
    const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (provider, upstream) = (Hostile::start(), Upstream::answering(|_, stream| drop(stream.write_all(SWITCH))));
    let routes = "routes: [{ name: socket, path: /socket, upgrade: [websocket] }]\n";
    let (gateway, _) = setup(&upstream, &provider, routes);
    let cookie = format!("{SESSION}={}", signed_in(&gateway, "corp").session());
    let ask = |fields: &[(&str, &str)]| {
        let handshake = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Cookie", &cookie)];
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", "/socket", "", &[&handshake, fields].concat(), 0));
        client.head().unwrap().0
    };
    // Browsers open WebSockets for pages of any origin, send the cookies of the target's site, and let the page read
    // the messages.
    for fields in [
        vec![("Origin", "https://evil.gateway.test")],
        vec![("Origin", "https://evil.gateway.test"), ("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "websocket")],
        vec![("Origin", "null")],
        vec![],
    ] {
        assert_eq!(ask(&fields), 403, "{fields:?}");
    }
    assert_eq!(upstream.count(), 0);
    assert_eq!(ask(&[("Origin", ORIGIN)]), 101);
    assert_eq!(ask(&[("Origin", ORIGIN), ("Sec-Fetch-Site", "same-origin")]), 101);
}

#[test]
fn session_cookie_beside_a_key_is_ignored() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let (gateway, person) = setup(&upstream, &provider, "");
    let key = gateway.key_with(&["other:read"]);
    let mut visitor = signed_in(&gateway, "corp");
    let bearer = format!("Bearer {}", key.text);
    let answer = visitor.send("GET", "/x", &[("Authorization", &bearer)], "");
    assert!(answer.status == 200 && answer.header("ratelimit").unwrap().starts_with("\"key\""), "{answer:?}");
    let received = upstream.last();
    assert_eq!(received.header("x-auth-method"), Some("api-key"));
    assert_eq!(received.header("x-user-id"), Some(&*key.user.to_string()));
    assert_ne!(key.user, person.user);
    assert_eq!(received.header("cookie"), None);
    gateway.revoke(&key);
    for bad in [bearer.as_str(), "Bearer nonsense", "Bearer sk_live_nonsense"] {
        let answer = visitor.send("GET", "/x", &[("Authorization", bad)], "");
        assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_token"), "{bad}");
    }
    let answer = visitor.send("GET", "/x", &[("Authorization", "Bearer ")], "");
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    assert_eq!(upstream.count(), 1);
    // Keys do not open the dashboard either.
    let mut stranger = GatewayBrowser::new(&gateway);
    let page = stranger.send("GET", "/settings/keys", &[("Authorization", &bearer)], "");
    assert!(page.status == 303 && page.header("location").unwrap().starts_with("/settings/sign-in"), "{}", text(&page));
}

#[test]
fn permissions_of_a_session_are_read_for_each_request() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let routes = "routes: [{ name: read, methods: [GET], path: /read, permission: 'queries:read' }]\n";
    let (gateway, person) = setup(&upstream, &provider, routes);
    let mut visitor = signed_in(&gateway, "corp");
    assert_eq!(visitor.fetch("GET", "/read").status, 200);
    gateway.permit_user_of("acme", person.user, &[]);
    let answer = visitor.fetch("GET", "/read");
    assert_eq!((answer.status, answer.code().as_str()), (403, "insufficient_scope"));
    gateway.permit_user_of("acme", person.user, &["queries:read", "queries:write"]);
    assert_eq!(visitor.fetch("GET", "/read").status, 200);
    assert_eq!(upstream.last().header("x-permissions"), Some("queries:read,queries:write"));
    gateway.perform(async |to, now| management::update_org(to, OPERATOR, "acme", suspension(true), now).await);
    assert_eq!(visitor.fetch("GET", "/read").code(), "insufficient_scope");
    let outcomes: Vec<_> = gateway.records().iter().rev().map(|record| record.outcome).collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Completed,
            Outcome::Refused(Refusal::Forbidden),
            Outcome::Completed,
            Outcome::Refused(Refusal::OrgSuspended)
        ]
    );
    for record in gateway.records() {
        assert_eq!((record.user_id, record.org_id, record.key_id), (Some(person.user), Some(person.org), None));
        assert_eq!((record.auth_method.as_str(), record.user_agent.as_deref()), ("session", Some(AGENT)));
        assert_eq!(record.action, "read");
    }
}

#[test]
fn unknown_session_is_refused() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let (gateway, _) = setup(&upstream, &provider, "");
    for value in ["", "x", &"a".repeat(43), &"a".repeat(5000), "\"quoted\"", "__Host-keygate="] {
        let mut visitor = GatewayBrowser::new(&gateway);
        let cookie = format!("{SESSION}={value}");
        let answer = visitor.send("GET", "/x", &[("Cookie", &cookie)], "");
        assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_session"), "{value}");
        assert!(answer.header("www-authenticate").is_some());
    }
    // A cookie with another name is not a credential.
    let answer =
        GatewayBrowser::new(&gateway).send("GET", "/x", &[("Cookie", "keygate=x; __Host-keygate-sign-in=y")], "");
    assert_eq!((answer.status, answer.code().as_str()), (401, "unauthenticated"));
    assert_eq!(upstream.count(), 0);
}

#[test]
fn session_reads_what_the_sessions_of_its_user_have_used() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let blocks = "routes: [{ name: usage, path: /usage, serve: usage }, { name: all, path: '/**' }]\n";
    let (gateway, person) = setup(&upstream, &provider, blocks);
    let key = key(&gateway, person);
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        assert_eq!(client.get("/x", &key).status, 200);
    }
    let mut browsers = [signed_in(&gateway, "corp"), signed_in(&gateway, "corp")];
    assert_eq!(browsers[0].fetch("GET", "/x").status, 200);
    let answer = browsers[1].fetch("GET", "/usage");
    assert_eq!(answer.status, 200, "{}", text(&answer));
    let shared = [answer.header("cache-control"), answer.header("vary")];
    assert_eq!(shared, [Some("no-store"), Some("Cookie")], "{answer:?}");
    let usage = answer.json();
    assert_matches_document(&usage);
    assert_eq!((&usage["key_id"], &usage["total"]), (&json!(null), &json!(2)), "of both sessions, and not of the key");
    assert_eq!((&usage["user_id"], &usage["org_id"]), (&json!(person.user), &json!(person.org)));
    assert_eq!((&usage["hour"], &usage["day"]), (&json!(null), &json!(null)), "sessions have no counts by the hour");
    assert_eq!(usage["limit"]["remaining"], json!(998));
    assert_eq!(client.get("/usage", &key).json()["total"], json!(4));
    assert_eq!(upstream.count(), 4, "no request for usage reaches the upstream");
    // A visitor without a session, and one whose session has ended, read nothing.
    assert_eq!(GatewayBrowser::new(&gateway).fetch("GET", "/usage").code(), "unauthenticated");
    gateway.remove_user_of(person.org, person.user);
    let ended = browsers[0].fetch("GET", "/usage");
    assert_eq!((ended.status, ended.code().as_str()), (401, "invalid_session"), "{}", text(&ended));
}
