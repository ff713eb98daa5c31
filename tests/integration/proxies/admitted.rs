//! Admitted requests: the identity at the upstream is that of the decision, and so is the request.

use std::net::{IpAddr, Ipv4Addr};

use super::{ABSENT, Decisions, IDENTITY, Kind, Proxy, Setup, described, fold, upstream};
use crate::support::upstream::Received;

/// Values of the fields that some server could read as this one.
fn values<'a>(received: &'a Received, name: &str) -> Vec<&'a str> {
    let of_name = received.headers.iter().filter(|(given, _)| fold(given) == fold(name));
    of_name.map(|(_, value)| value.as_str()).collect()
}

/// Asserts that the identity is that of the peer's decision, each field once, and that no credential is there.
#[track_caller]
pub fn assert_identity(kind: Kind, received: &Received, has_key: bool) {
    for (name, value) in IDENTITY {
        let found = values(received, name);
        if has_key || name != ABSENT {
            assert_eq!(found, [value], "{kind:?}: {name}");
        } else {
            assert!(found.iter().all(|value| value.is_empty()), "{kind:?}: {name}: {found:?}");
        }
    }
    assert!(values(received, "authorization").is_empty(), "{kind:?}: {:?}", received.headers);
}

/// Spellings of a name that servers take for it.
pub fn spellings(name: &str) -> Vec<String> {
    let mut found = vec![name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()];
    for separator in ["_", "."] {
        found.push(name.replace('-', separator));
        found.push(name.replacen('-', separator, 1));
        found.push(name.to_ascii_lowercase().replace('-', separator));
    }
    found
}

#[test]
fn identity_of_the_upstream_is_that_of_the_decision() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for (key, has_key) in [("good", true), ("session", false)] {
            assert_eq!(setup.proxy.client().get("/plain", key).status, 200, "{kind:?}");
            assert_identity(kind, &setup.upstream.last(), has_key);
        }
    }
}

#[test]
fn identity_is_not_forged_by_any_spelling() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for name in IDENTITY.map(|(name, _)| name) {
            for spelling in spellings(name) {
                for key in ["good", "session"] {
                    let before = setup.upstream.count();
                    let forged = [(spelling.as_str(), "forged")];
                    let response = setup.proxy.client().request("GET", "/plain", key, &forged, b"");
                    if setup.upstream.count() > before {
                        assert_identity(kind, &setup.upstream.last(), key == "good");
                    } else {
                        // Caddy has no setting that removes them: keygate sees them, and refuses.
                        assert_eq!((kind, response.status), (Kind::Caddy, 400), "{spelling}");
                        assert_ne!(spelling.to_ascii_lowercase(), name.to_ascii_lowercase(), "{kind:?}");
                    }
                }
            }
        }
    }
}

/// Traefik before 3.7.13 has no setting that removes other spellings: keygate must see each, to refuse it.
#[test]
fn other_spellings_reach_keygate_where_traefik_passes_them() {
    let (decisions, upstream) = (Decisions::start(Kind::Traefik), upstream());
    let without = |text: String| text.replace("aliasHeadersStrategy: delete", "aliasHeadersStrategy: keep");
    let proxy = Proxy::start_changed(Kind::Traefik, decisions.address(), upstream.address, without);
    for name in IDENTITY.map(|(name, _)| name) {
        for spelling in spellings(name).into_iter().filter(|spelling| !spelling.contains('-')) {
            let response = proxy.client().request("GET", "/plain", "good", &[(&spelling, "forged")], b"");
            assert_eq!(response.status, 400, "{spelling}");
        }
    }
    assert_eq!(upstream.count(), 0);
}

/// Proxies remove the fields that `Connection` names, and must not remove those of the decision.
#[test]
fn identity_and_facts_are_not_removed_by_connection() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        let facts = ["X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-For"];
        for name in IDENTITY.map(|(name, _)| name).into_iter().chain(facts) {
            for value in [format!("{name}, keep-alive"), format!("close, {}", name.to_lowercase()), name.to_uppercase()]
            {
                let before = setup.upstream.count();
                let named = [("Connection", value.as_str()), (name, "forged")];
                let response = setup.proxy.client().request("GET", "/plain", "good", &named, b"");
                if response.status == 400 {
                    // Envoy itself refuses to remove the address.
                    assert_eq!(setup.upstream.count(), before, "{kind:?}: {value}");
                    continue;
                }
                assert_eq!(response.status, 200, "{kind:?}: {value}");
                assert_identity(kind, &setup.upstream.last(), true);
                let question = setup.decisions.last_described();
                assert_eq!(
                    (question.method.as_str(), question.target.as_str()),
                    ("GET", "/plain"),
                    "{kind:?}: {value}"
                );
                let addresses = setup.decisions.last().header("x-forwarded-for").map(str::to_owned);
                assert!(addresses.is_some_and(|list| !list.ends_with("forged")), "{kind:?}: {value}");
            }
        }
    }
}

#[test]
fn method_and_target_of_the_upstream_are_those_of_the_decision() {
    let targets = [
        "/",
        "/a?b=c&d",
        "/a%20b",
        "/a%2Fb",
        "/a%2fb",
        "/%61",
        "/a/../b",
        "/a/./b",
        "/a/%2e%2e/b",
        "/a/%2e%2E%2fb",
        "//a",
        "/a//b",
        "/a;b=c/d",
        "/a%5Cb",
        "/a\\b",
        "/a%00b",
        "/a%3Fb",
        "/a?b=/../c",
        "/a?b?c",
        "/a?",
        "/%C3%A4",
        "/a|b",
        "/a{b}",
        "/a'b",
        "/a%zz",
        "http://gateway.test/a?b",
        "http://other.test/a",
        "/a#b",
    ];
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for target in targets {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"] {
                let before = (setup.decisions.count(), setup.upstream.count());
                let body: &[u8] = if matches!(method, "POST" | "PUT" | "PATCH") { b"body" } else { b"" };
                let response = setup.proxy.client().request(method, target, "good", &[], body);
                let after = (setup.decisions.count(), setup.upstream.count());
                if response.status == 200 {
                    assert_eq!(after, (before.0 + 1, before.1 + 1), "{kind:?}: {method} {target}");
                    let received = setup.upstream.last();
                    assert_eq!(described(&received), setup.decisions.last_described(), "{kind:?}: {method} {target}");
                    assert_eq!(received.body, body, "{kind:?}: {method} {target}");
                    if described(&received).target != target && method == "GET" {
                        println!("{kind:?}: {target} arrives as {}", described(&received).target);
                    }
                } else {
                    assert_eq!(after.1, before.1, "{kind:?}: {method} {target}: {response:?}");
                    if method == "GET" {
                        println!("{kind:?}: {target} is {}", response.status);
                    }
                }
            }
        }
    }
}

/// Fields by which a client could describe another request than its own.
#[test]
fn question_is_about_the_request_of_the_client() {
    let forged = [
        ("X-Forwarded-Method", "PUT"),
        ("X-Forwarded-Uri", "/forged"),
        ("x_forwarded_uri", "/forged"),
        ("X-Forwarded-Method", "PATCH"),
        ("X-Forwarded-Uri", "/forged/twice"),
        ("X-Original-Method", "PUT"),
        ("X-Original-URI", "/forged"),
        ("X-Original-URL", "/forged"),
        ("X-Rewrite-URL", "/forged"),
        ("X-Forwarded-Prefix", "/forged"),
        ("X-Envoy-Original-Path", "/forged"),
        ("X-HTTP-Method-Override", "PUT"),
    ];
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        let response = setup.proxy.client().request("DELETE", "/own?a=b", "good", &forged, b"");
        assert_eq!(response.status, 200, "{kind:?}");
        let question = setup.decisions.last_described();
        assert_eq!((question.method.as_str(), question.target.as_str()), ("DELETE", "/own?a=b"), "{kind:?}");
        let received = setup.upstream.last();
        assert_eq!(described(&received), question);
        for name in ["X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Prefix", "X-Original-URL", "X-Rewrite-URL"] {
            assert!(values(&received, name).is_empty(), "{kind:?}: {name}: {:?}", received.headers);
        }
    }
}

/// The last address of `X-Forwarded-For` is that of the connection: the one that counts where no proxy is in front.
#[test]
fn question_has_the_address_of_the_client() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        let forged =
            [("X-Forwarded-For", "203.0.113.7"), ("X-Real-IP", "203.0.113.8"), ("Forwarded", "for=203.0.113.9")];
        assert_eq!(setup.proxy.client().request("GET", "/plain", "good", &forged, b"").status, 200, "{kind:?}");
        let question = setup.decisions.last();
        let addresses = question.header("x-forwarded-for").unwrap();
        let last: IpAddr = addresses.rsplit(',').next().unwrap().trim().parse().unwrap();
        // Envoy writes its own address for a client on loopback.
        assert!(
            last == Ipv4Addr::LOCALHOST || kind.is_envoy() && !last.to_string().starts_with("203.0.113."),
            "{kind:?}: {addresses}"
        );
        let at_the_upstream = values(&setup.upstream.last(), "x-forwarded-for").join(",");
        assert!(at_the_upstream.ends_with(&last.to_string()), "{kind:?}: {at_the_upstream}");
    }
}
