//! Refused requests: the client gets the status, the fields and the body of the refusal, and the upstream gets nothing.

use super::{Kind, Setup, blocks};
use crate::support::Response;
use crate::support::redis::Redis;

/// Asserts that a response is this refusal, with all that the proxy lets through.
#[track_caller]
fn assert_refused(kind: Kind, response: &Response, status: u16, code: &str) {
    assert_eq!(response.status, status, "{kind:?}: {response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{kind:?}: {response:?}");
    let problem = response.json();
    assert_eq!((&problem["status"], &problem["code"]), (&status.into(), &code.into()), "{kind:?}: {problem}");
    let id = fields(response, "x-request-id");
    assert_eq!(id, [problem["request_id"].as_str().unwrap()], "{kind:?}");
    if !kind.is_nginx() {
        // nginx drops the body, and makes one of what is in the fields.
        assert_eq!(response.code(), code, "{kind:?}");
    }
    let challenges = fields(response, "www-authenticate").len();
    assert_eq!(challenges, usize::from(matches!(code, "unauthenticated" | "invalid_token" | "insufficient_scope")));
    for name in ["x-user-id", "x-org-id", "x-key-id", "x-permissions", "x-auth-method"] {
        assert!(response.header(name).is_none(), "{kind:?}: {response:?}");
    }
}

fn fields<'a>(response: &'a Response, name: &str) -> Vec<&'a str> {
    let fields = response.headers.iter().filter(|(given, _)| given == name);
    fields.map(|(_, value)| value.as_str()).collect()
}

#[test]
fn refusal_reaches_the_client_with_its_status_its_fields_and_its_code() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        let revoked = setup.gateway.another_key(&setup.key);
        setup.gateway.revoke(&revoked);
        let key = &*setup.key.text;
        for (target, key, status, code) in [
            ("/reads/a", "", 401, "unauthenticated"),
            ("/reads/a", "sk_live_unknown", 401, "invalid_token"),
            ("/reads/a", &revoked.text, 401, "invalid_token"),
            ("/writes/a", key, 403, "insufficient_scope"),
            ("/none", key, 404, "not_found"),
        ] {
            for (method, body) in [("GET", &b""[..]), ("POST", b"body"), ("DELETE", b"")] {
                let response = setup.proxy.client().request(method, target, key, &[], body);
                assert_refused(kind, &response, status, code);
            }
            let response = setup.proxy.client().request("HEAD", target, key, &[], b"");
            assert_eq!(response.status, status, "{kind:?}: {response:?}");
        }
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}

#[test]
fn limited_client_learns_when_to_come_back() {
    for kind in Kind::all() {
        let blocks = blocks(kind).replace("key: { requests: 1000000, per: 1h }", "key: { requests: 2, per: 1h }");
        let setup = Setup::with(kind, &blocks);
        for _ in 0..2 {
            assert_eq!(setup.request("GET", "/reads/a", &[], b"").status, 200, "{kind:?}");
        }
        for (method, body) in [("GET", &b""[..]), ("POST", b"body")] {
            let response = setup.request(method, "/reads/a", &[], body);
            assert_refused(kind, &response, 429, "rate_limited");
            let retry_after: u64 = fields(&response, "retry-after")[0].parse().unwrap();
            assert!((1..=1800).contains(&retry_after), "{kind:?}: {retry_after}");
            assert!(fields(&response, "ratelimit")[0].contains("\"key\";r=0;t="), "{kind:?}: {response:?}");
            assert!(fields(&response, "ratelimit-policy")[0].contains("\"key\";q=2;w=3600"), "{kind:?}: {response:?}");
        }
        assert_eq!(setup.upstream.count(), 2, "{kind:?}");
    }
}

/// keygate's own failure is a 503.
#[test]
fn failure_of_the_gateway_is_a_503_that_says_so() {
    for kind in Kind::all() {
        let redis = Redis::start();
        let state = format!("state: {{ redis: {{ url: '{}', deadline: 1s }} }}\n", redis.url());
        let setup = Setup::with(kind, &format!("{}{state}", blocks(kind)));
        redis.kill();
        let response = setup.request("GET", "/reads/a", &[], b"");
        assert_refused(kind, &response, 503, "state_unavailable");
        assert_eq!(fields(&response, "retry-after"), ["1"], "{kind:?}");
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}

/// The refusals of the upstream itself are its own.
#[test]
fn statuses_of_the_upstream_stay() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        for status in [401, 403, 404, 429, 500, 503] {
            let response = setup.request("GET", &format!("/reads/own/{status}"), &[], b"");
            assert_eq!((response.status, response.body.as_slice()), (status, &b"ok"[..]), "{kind:?}");
        }
    }
}
