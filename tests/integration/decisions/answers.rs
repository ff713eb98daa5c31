//! Answers to questions over HTTP.

use serde_json::{Value, json};

use super::{Asked, CLIENT, PROTOCOLS, Protocol, gateway};
use crate::support::{Client, Upstream};
use journal::audit::Outcome;

const ROUTES: &str = "routes:\n  - { name: reads, path: '/reads/**', permission: 'queries:read' }\n  \
                      - { name: writes, path: /writes, permission: 'queries:write' }\n  \
                      - { name: open, path: /open, access: public }\n";
const IDENTITY: [&str; 6] = ["x-request-id", "x-auth-method", "x-user-id", "x-org-id", "x-key-id", "x-permissions"];

#[test]
fn admitted_request_is_told_with_its_identity_and_recorded_once_with_its_client() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]);
    for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
        let answer = protocol.ask(*address, Asked::get("/reads/a?b=c", &key.text));
        assert_eq!(answer.status, if *protocol == Protocol::Nginx { 204 } else { 200 }, "{answer:?}");
        assert_eq!(answer.header("x-user-id"), Some(&*key.user.to_string()));
        assert_eq!(answer.header("x-org-id"), Some(&*key.org.to_string()));
        assert_eq!(answer.header("x-key-id"), Some(key.id.as_str()));
        assert_eq!(
            (answer.header("x-auth-method"), answer.header("x-permissions")),
            (Some("api-key"), Some("queries:read"))
        );
        assert!(answer.header("ratelimit").is_some() && answer.body.is_empty(), "{answer:?}");
        let records = gateway.records();
        let record = &records[0];
        assert_eq!(record.id.to_string(), answer.header("x-request-id").unwrap());
        assert_eq!((record.outcome, record.status, &*record.path), (Outcome::Decided, None, "/reads/a"));
        assert_eq!(record.ip.unwrap().to_string(), CLIENT, "{protocol:?}");
    }
    assert_eq!(gateway.records().len(), PROTOCOLS.len());
    assert_eq!(gateway.uses(&key), Some(PROTOCOLS.len() as u64));
    assert_eq!(upstream.count(), 0, "another proxy forwards");
    assert_eq!(gateway.explain_in_flight(&key), 0);
}

#[test]
fn refusal_has_the_status_of_the_proxy_mode_and_no_identity() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]);
    let revoked = gateway.another_key(&key);
    gateway.revoke(&revoked);
    for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
        for (target, key, status, code) in [
            ("/reads/a", "", 401, "unauthenticated"),
            ("/reads/a", &*revoked.text, 401, "invalid_token"),
            ("/writes", &key.text, 403, "insufficient_scope"),
            ("/reads/../writes", &key.text, 404, "ambiguous_path"),
            ("/none", &key.text, 404, "not_found"),
        ] {
            let answer = protocol.ask(*address, Asked::get(target, key));
            assert_eq!((protocol.status(&answer), &*Protocol::code(&answer)), (status, code), "{protocol:?} {target}");
            let is_nginx = *protocol == Protocol::Nginx;
            if is_nginx {
                assert_eq!(answer.status, if status == 401 { 401 } else { 403 });
            }
            // nginx drops the body.
            assert_eq!(answer.header("x-keygate-code"), is_nginx.then_some(code), "{protocol:?} {target}");
            let identity = IDENTITY.iter().skip(1).filter(|name| answer.header(name).is_some());
            assert_eq!(identity.count(), 0, "{answer:?}");
        }
        let limited = protocol.ask(*address, Asked { method: "POST", ..Asked::get("/writes", "") });
        assert!(limited.header("www-authenticate").is_some());
    }
}

#[test]
fn public_route_is_admitted_without_an_identity() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
        let answer = protocol.ask(*address, Asked::get("/open", ""));
        assert!(answer.status < 300, "{answer:?}");
        assert_eq!(answer.header("x-auth-method"), Some("none"));
        let absent = answer.header("x-user-id");
        match protocol {
            // Copied over the client's own.
            Protocol::ForwardAuth => assert_eq!(absent, Some("")),
            Protocol::Nginx => assert_eq!(absent, None),
        }
    }
    assert_eq!(gateway.records().len(), 0, "no use of a key");
}

/// Place of a listener, and a target and fields that lack a fact.
type Case<'a> = (usize, &'a str, Vec<(&'a str, &'a str)>);

#[test]
fn missing_or_doubled_fact_is_refused_and_counted() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]).text;
    let uri = ("X-Forwarded-Uri", "/reads/a");
    let method = ("X-Forwarded-Method", "GET");
    let host = ("X-Forwarded-Host", "h");
    let client = ("X-Forwarded-For", CLIENT);
    let none = ("X-Forwarded-For", "unknown");
    let cut = ("X-Forwarded-For", "192.0.2.9, , 127.0.0.1");
    let cases: [Case<'_>; 16] = [
        (1, "/reads/a", vec![client]),
        (1, "/reads/a", vec![client, uri, method, host]),
        (1, "/v1/nginx/GET", vec![client]),
        (1, "/v1/nginx/GET/reads/a", vec![]),
        (1, "/v1/nginx//reads/a", vec![client, ("X-Original-Method", "GET"), uri, method]),
        (2, "/reads/a", vec![client, method, host]),
        (2, "/reads/a", vec![client, uri, host]),
        (2, "/reads/a", vec![uri, method, host]),
        (2, "/reads/a", vec![client, uri, uri, method, host]),
        (1, "/v1/nginx/GET/reads/a", vec![none]),
        (1, "/v1/nginx/GET/reads/a", vec![("X-Forwarded-For", "")]),
        (2, "/reads/a", vec![("X-Forwarded-For", "unix:"), uri, method, host]),
        (2, "/reads/a", vec![cut, uri, method, host]),
        (1, "/v1/nginx/GET/reads/a", vec![client, client]),
        (2, "/reads/a", vec![none, uri, method, host]),
        (2, "/reads/a", vec![client, client, uri, method, host]),
    ];
    for (listener, target, fields) in &cases {
        let answer = Client::connect(gateway.addresses()[*listener]).request("GET", target, &key, fields, b"");
        assert_eq!(Protocol::code(&answer), "malformed_decision", "{target} {fields:?}: {answer:?}");
        let told = PROTOCOLS[listener - 1].status(&answer);
        assert_eq!(told, 400, "{answer:?}");
    }
    #[allow(clippy::cast_precision_loss, reason = "a few")]
    let expected = cases.len() as f64;
    assert_eq!(gateway.metric("keygate_malformed_decisions_total"), expected);
}

/// nginx writes the target of the client into that of its question: then the head itself is refused.
#[test]
fn target_that_cannot_be_read_is_refused_as_the_proxy_understands_it() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]).text;
    let long = format!("/reads/{}", "a".repeat(20_000));
    for (target, status, code) in [("/reads/\"", 400, "malformed_request"), (&long, 414, "target_too_long")] {
        for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
            let answer = protocol.ask(*address, Asked::get(target, &key));
            assert_eq!(protocol.status(&answer), status, "{protocol:?}: {answer:?}");
            if *protocol == Protocol::Nginx {
                assert_eq!((answer.status, answer.header("x-keygate-code")), (403, Some(code)));
            } else {
                assert_eq!(Protocol::code(&answer), code, "{protocol:?}");
            }
            if status == 400 && *protocol != Protocol::Nginx {
                assert_eq!(answer.json()["detail"], "Byte 8 of the target is `\"`: percent-encode it as %22.");
            }
        }
    }
    assert_eq!(gateway.metric("keygate_malformed_decisions_total"), 0.0, "the proxies are not wrong");
}

#[test]
fn identity_in_another_spelling_is_refused_where_it_cannot_be_removed() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]).text;
    let address = gateway.addresses()[2];
    for name in ["X_Org_Id", "x.user.id", "X-User_Id", "X~Key~Id", "x_permissions"] {
        let asked = Asked { fields: &[(name, "forged")], ..Asked::get("/reads/a", &key) };
        let answer = Protocol::ForwardAuth.ask(address, asked);
        assert_eq!((answer.status, &*Protocol::code(&answer)), (400, "malformed_request"), "{name}");
    }
    let asked = Asked { fields: &[("X-Org-Id", "forged"), ("X_Trace", "a")], ..Asked::get("/reads/a", &key) };
    let answer = Protocol::ForwardAuth.ask(address, asked);
    assert_eq!(answer.status, 200, "the proxy overwrites it");
    assert_ne!(answer.header("x-org-id"), Some("forged"));
}

#[test]
fn client_is_the_one_that_the_proxy_names() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]);
    let policy: Value = json!({ "networks": ["192.0.2.0/24"] });
    gateway.set_policy(key.id, serde_json::from_value(policy).unwrap());
    for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
        assert!(protocol.ask(*address, Asked::get("/reads/a", &key.text)).status < 300, "{protocol:?}");
        // The client's own claim stands before the address that the proxy has added.
        let mut fields = vec![("X-Forwarded-For", "192.0.2.9, 198.51.100.7")];
        let target = match protocol {
            Protocol::Nginx => "/v1/nginx/GET/reads/a",
            Protocol::ForwardAuth => {
                let facts = [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/reads/a"), ("X-Forwarded-Host", "h")];
                fields.extend(facts);
                "/"
            }
        };
        let refused = Client::connect(*address).request("GET", target, &key.text, &fields, b"");
        assert_eq!(refused.status, 401, "{protocol:?}: {refused:?}");
    }
}

#[test]
fn connection_of_a_proxy_stays_open_although_its_clients_are_refused() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", ROUTES);
    let key = gateway.key_with(&["queries:read"]);
    let mut connection = Client::connect(gateway.addresses()[Protocol::ForwardAuth.place()]);
    for _ in 0..250 {
        let answer = Protocol::ForwardAuth.ask_over(&mut connection, Asked::get("/writes", &key.text));
        assert_eq!((answer.status, answer.header("connection")), (403, None));
    }
    assert_eq!(Protocol::ForwardAuth.ask_over(&mut connection, Asked::get("/reads/a", &key.text)).status, 200);
}
