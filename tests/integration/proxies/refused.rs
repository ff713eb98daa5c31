//! Refused requests: the client gets the status of the refusal, and the upstream gets nothing.

use super::{Kind, Setup};

/// Statuses of keygate's refusals.
const STATUSES: [u16; 9] = [400, 401, 403, 404, 414, 417, 429, 431, 503];

/// Returns whether the client gets nothing but a status: over HTTP, Envoy takes a 5xx for the failure of the peer, and
/// answers by itself.
fn is_bare(kind: Kind, status: u16) -> bool {
    kind == Kind::EnvoyHttp && status >= 500
}

#[test]
fn refusal_reaches_the_client_with_its_status() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for status in STATUSES {
            for method in ["GET", "POST"] {
                let body: &[u8] = if method == "POST" { b"body" } else { b"" };
                let response = setup.proxy.client().request(method, &format!("/refused/{status}"), "good", &[], body);
                assert_eq!(response.status, status, "{kind:?}: {response:?}");
                if is_bare(kind, status) {
                    continue;
                }
                assert_eq!(response.header("content-type"), Some("application/problem+json"), "{kind:?}: {status}");
                assert_eq!(response.json()["status"], status, "{kind:?}");
                // nginx drops the body of the refusal, and makes one of what is in its fields.
                assert!(kind.is_nginx() || response.json()["code"] == "of_the_peer", "{kind:?}: {response:?}");
            }
        }
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}

#[test]
fn refusal_has_the_fields_that_clients_act_on() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        let fields = |path: &str, name: &str| {
            let response = setup.proxy.client().get(path, "good");
            let found: Vec<_> = response.headers.iter().filter(|(given, _)| given == name).collect();
            assert_eq!(found.len(), 1, "{kind:?}: {path}: {name}: {response:?}");
            found[0].1.clone()
        };
        assert_eq!(fields("/refused/429", "retry-after"), "7");
        assert_eq!(fields("/refused/429", "ratelimit"), "\"key\";r=0;t=7");
        assert_eq!(fields("/refused/429", "ratelimit-policy"), "\"key\";q=10;w=60");
        if !is_bare(kind, 503) {
            assert_eq!(fields("/refused/503", "retry-after"), "7");
        }
        for path in ["/refused/401", "/refused/403"] {
            assert_eq!(fields(path, "www-authenticate"), "Bearer realm=\"keygate\"");
        }
        for status in [401, 403, 404, 429] {
            assert!(!fields(&format!("/refused/{status}"), "x-request-id").is_empty());
        }
    }
}

/// No credential, and an unknown one, in every way that proxies read a request.
#[test]
fn request_without_a_good_key_is_refused() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for key in ["", "bad"] {
            assert_eq!(setup.proxy.client().get("/plain", key).status, 401, "{kind:?}");
        }
        // An identity of its own does not help.
        let forged = [("X-User-Id", "forged"), ("X-Auth-Method", "api-key")];
        assert_eq!(setup.proxy.client().request("GET", "/plain", "bad", &forged, b"").status, 401, "{kind:?}");
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}

/// The refusals of the upstream itself are its own.
#[test]
fn statuses_of_the_upstream_stay() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for status in [401, 403, 404, 429, 500, 503] {
            let response = setup.proxy.client().get(&format!("/own/{status}"), "good");
            assert_eq!((response.status, response.body.as_slice()), (status, &b"ok"[..]), "{kind:?}");
        }
    }
}
