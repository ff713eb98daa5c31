//! The identity at the upstream is that of the decision, and no client forges it.

use super::{IDENTITY, Kind, Setup, blocks, upstream};
use crate::support::head;
use crate::support::upstream::Received;

/// Caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    WithKey,
    /// On a public route, which knows no caller.
    Unknown,
}

/// A name as CGI and its heirs compare it.
fn fold(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }).collect()
}

/// Values of the fields that some server could read as this one.
fn values<'a>(received: &'a Received, name: &str) -> Vec<&'a str> {
    let of_name = received.headers.iter().filter(|(given, _)| fold(given) == fold(name));
    of_name.map(|(_, value)| value.as_str()).collect()
}

/// Asserts that each identity field has exactly the gateway's value, or is not there.
#[track_caller]
fn assert_identity(setup: &Setup, received: &Received, caller: Caller) {
    for name in IDENTITY {
        let found = values(received, name);
        let expected = match (caller, name) {
            (_, "X-Request-Id") => {
                assert_eq!(found.len(), 1, "{name}: {found:?}");
                assert!(uuid::Uuid::parse_str(found[0]).is_ok_and(|id| id.get_version_num() == 7), "{found:?}");
                continue;
            }
            (Caller::WithKey, _) => setup.value(name),
            (Caller::Unknown, "X-Auth-Method") => Some("none".to_owned()),
            (Caller::Unknown, _) => None,
        };
        match expected {
            Some(value) => assert_eq!(found, [value], "{name}"),
            None => assert!(found.iter().all(|value| value.is_empty()), "{name}: {found:?}"),
        }
    }
    assert!(values(received, "authorization").is_empty(), "{:?}", received.headers);
}

/// All spellings of a name with `-`, `_` or `.` in each place, and with `~` in all, in two cases.
fn spellings(name: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for (place, word) in name.split('-').enumerate() {
        let separators: &[&str] = if place == 0 { &[""] } else { &["-", "_", "."] };
        let longer = |begun: &String| separators.iter().map(|with| format!("{begun}{with}{word}")).collect::<Vec<_>>();
        all = all.iter().flat_map(longer).collect();
    }
    all.push(name.replace('-', "~"));
    let lower: Vec<String> = all.iter().map(|name| name.to_ascii_lowercase()).collect();
    all.into_iter().chain(lower).collect()
}

#[test]
fn identity_is_not_forged_by_any_spelling() {
    assert_eq!(IDENTITY.iter().map(|name| spellings(name).len()).sum::<usize>(), (5 * 9 + 3 + 6) * 2);
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        for (caller, target) in [(Caller::WithKey, "/reads/a"), (Caller::Unknown, "/open/a")] {
            assert_eq!(setup.request("GET", target, &[], b"").status, 200, "{kind:?}");
            assert_identity(&setup, &setup.upstream.last(), caller);
            for name in IDENTITY {
                for spelling in spellings(name) {
                    let before = setup.upstream.count();
                    let forged = [(spelling.as_str(), "forged"), (spelling.as_str(), "twice")];
                    let response = setup.request("GET", target, &forged[..1 + before % 2], b"");
                    if setup.upstream.count() > before {
                        println!("{kind:?}: {spelling}");
                        assert_identity(&setup, &setup.upstream.last(), caller);
                        continue;
                    }
                    // These have no setting that removes all of them: the gateway sees them, and refuses.
                    assert!(matches!(kind, Kind::Caddy | Kind::Traefik), "{kind:?}: {spelling}: {response:?}");
                    assert_eq!((response.status, spelling.contains('~')), (400, true), "{kind:?}: {spelling}");
                    assert_eq!(response.json()["code"], "malformed_request");
                    assert_ne!(spelling.to_ascii_lowercase(), name.to_ascii_lowercase(), "{kind:?}");
                }
            }
        }
    }
}

/// Adds the path `/beside/` to a file, for which the question is switched off.
fn with_path_beside(kind: Kind, text: String) -> String {
    let per_route = |filter: &str, name: &str| {
        let kind = format!("envoy.extensions.filters.http.{filter}.v3.{name}");
        let off =
            format!("{{ envoy.filters.http.{filter}: {{ \"@type\": type.googleapis.com/{kind}, disabled: true }} }}");
        let path = "- match: { prefix: /beside/ }";
        let indent = " ".repeat(24);
        let route =
            format!("{path}\n{indent}  route: {{ cluster: protected }}\n{indent}  typed_per_filter_config: {off}");
        ("- match: { prefix: / }\n".to_owned(), format!("{route}\n{indent}- match: {{ prefix: / }}\n"))
    };
    let (begin, beside) = match kind {
        Kind::Nginx | Kind::DebianNginx => (
            "        location / {\n".to_owned(),
            "        location /beside/ { auth_request off; proxy_pass http://protected; }\n        location / {\n"
                .to_owned(),
        ),
        // The other file has no routes.
        Kind::Traefik if !text.contains("  routers:\n") => return text,
        Kind::Traefik => (
            "  routers:\n".to_owned(),
            "  routers:\n    beside: { rule: PathPrefix(`/beside/`), service: protected }\n".to_owned(),
        ),
        Kind::Caddy => {
            ("\tforward_auth 127".to_owned(), "\t@asked not path /beside/*\n\tforward_auth @asked 127".to_owned())
        }
        Kind::EnvoyExtAuthz => per_route("ext_authz", "ExtAuthzPerRoute"),
        Kind::EnvoyExtProc => per_route("ext_proc", "ExtProcPerRoute"),
    };
    assert_eq!(text.matches(&begin).count(), 1, "{kind:?}: {begin}");
    text.replace(&begin, &beside)
}

/// A public route of keygate has no caller, and neither has a path for which the question is switched off: the file
/// removes identity at the server.
#[test]
fn forged_identity_arrives_on_no_public_path() {
    for kind in Kind::all() {
        let upstream = upstream();
        let (_gateway, _, proxy) = Setup::before(kind, upstream.address, |text| with_path_beside(kind, text));
        // The method is that of the answer: no caller, or no question.
        for (path, method) in [("/open/a", &["none"][..]), ("/beside/a", &[])] {
            let lower = IDENTITY.map(str::to_lowercase);
            for names in [IDENTITY, lower.each_ref().map(String::as_str)] {
                let (before, forged) = (upstream.count(), names.map(|name| (name, "forged")));
                assert_eq!(proxy.client().request("GET", path, "", &forged, b"").status, 200, "{kind:?}: {path}");
                assert_eq!(upstream.count(), before + 1, "{kind:?}: {path}");
                let received = upstream.last();
                assert_eq!(values(&received, "X-Auth-Method"), method, "{kind:?}: {path}");
                for name in ["X-User-Id", "X-Org-Id", "X-Key-Id", "X-Permissions"] {
                    let found = values(&received, name);
                    assert!(found.iter().all(|value| value.is_empty()), "{kind:?}: {path}: {name}: {found:?}");
                }
            }
        }
    }
}

/// Traefik before 3.7.13 has no setting that removes other spellings: keygate sees each, and refuses it.
#[test]
fn other_spellings_are_refused_where_traefik_passes_them() {
    let without = |text: String| text.replace("aliasHeadersStrategy: delete", "aliasHeadersStrategy: keep");
    let upstream = upstream();
    let (gateway, key, proxy) = Setup::before(Kind::Traefik, upstream.address, without);
    for spelling in IDENTITY.into_iter().flat_map(spellings).filter(|spelling| fold(spelling) != *spelling) {
        if IDENTITY.iter().any(|name| name.eq_ignore_ascii_case(&spelling)) {
            continue;
        }
        let response = proxy.client().request("GET", "/reads/a", &key.text, &[(&spelling, "forged")], b"");
        assert_eq!((response.status, &*response.code()), (400, "malformed_request"), "{spelling}");
    }
    assert_eq!((upstream.count(), gateway.records().len()), (0, 0));
}

/// Proxies remove the fields that `Connection` names, and must not remove those of the decision.
#[test]
fn identity_and_facts_are_not_removed_by_connection() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        let facts = ["X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-For"];
        for name in IDENTITY.into_iter().chain(facts) {
            for value in [format!("{name}, keep-alive"), format!("close, {}", name.to_lowercase()), name.to_uppercase()]
            {
                let before = setup.upstream.count();
                let named = [("Connection", value.as_str()), (name, "forged")];
                println!("{kind:?}: {value}");
                let mut client = setup.proxy.client();
                client.send(head("GET", "/reads/a", &setup.key.text, &named, 0));
                if kind.is_envoy() && name == "X-Forwarded-For" {
                    // Envoy itself refuses to remove the address, before it asks. With ext_proc it asks about its own
                    // response, and closes the connection when keygate knows no request to it.
                    let refused = client.try_response_to("GET");
                    let is_closed = kind == Kind::EnvoyExtProc && refused.is_err();
                    assert!(is_closed || refused.is_ok_and(|refused| refused.status == 400), "{kind:?}: {value}");
                    assert_eq!(setup.upstream.count(), before, "{kind:?}: {value}");
                    continue;
                }
                let response = client.response();
                assert_eq!(response.status, 200, "{kind:?}: {value}: {response:?}");
                assert_identity(&setup, &setup.upstream.last(), Caller::WithKey);
            }
        }
        super::records::assert_one_for_each_request(kind, &setup);
    }
}

/// An identity of its own, or a better one, does not replace a key.
#[test]
fn forged_identity_without_a_good_key_is_refused() {
    for kind in Kind::all() {
        let setup = Setup::with(kind, &blocks(kind));
        let forged = IDENTITY.map(|name| (name, setup.value(name).unwrap_or_else(|| uuid::Uuid::now_v7().to_string())));
        let forged = forged.each_ref().map(|(name, value)| (*name, value.as_str()));
        for key in ["", "bad"] {
            let response = setup.proxy.client().request("GET", "/reads/a", key, &forged, b"");
            assert_eq!(response.status, 401, "{kind:?}: {response:?}");
        }
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}
