//! Federation rules over the network, on both states.

use domain::management_token::TokenScope;
use serde_json::{Value, json};

use super::fixture::{JSON, Program, Setup, settings};

pub(super) fn rule(name: &str) -> Value {
    json!({
        "name": name, "user": "ci", "issuer": "https://ci.example.com", "audience": "https://api.example.com",
        "claims": { "sub": "repo:acme/*:ref:refs/heads/main" }, "permissions": ["queries:read"], "max": "15m",
    })
}

/// The path of the rules of a new organization with a service.
pub(super) fn rules_of(setup: &Setup, name: &str) -> String {
    let org = setup.org(name);
    let service = json!({
        "email": "ci", "kind": "service", "responsible": format!("ada@{name}.example"), "permissions": ["queries:read"],
    });
    assert_eq!(setup.root().post(&format!("/orgs/{org}/users"), &service).status, 201);
    format!("/orgs/{org}/federation-rules")
}

fn post_once(program: &Program, path: &str, body: &Value) -> crate::support::Response {
    program.call("POST", path, &[JSON, ("Idempotency-Key", "a")], body.to_string().as_bytes())
}

#[test]
fn rule_is_created_once_listed_shown_and_removed() {
    for setup in Setup::both() {
        let (rules, root) = (rules_of(&setup, "acme"), setup.root());
        let created = post_once(&root, &rules, &rule("deploy"));
        assert_eq!(created.status, 201, "{created:?}");
        let shown = created.json();
        assert_eq!((&shown["target"], &shown["service"]), (&json!("acme/deploy"), &json!("ci")));
        let path = format!("{rules}/deploy");
        assert_eq!(created.header("location"), Some(&*format!("/v1{path}")));
        assert_eq!(root.get(&path).json(), shown);
        let again = post_once(&root, &rules, &rule("deploy"));
        assert_eq!((again.status, again.header("idempotent-replayed"), again.json()), (201, Some("true"), shown));
        assert_eq!(post_once(&root, &rules, &rule("other")).code(), "idempotency_key_reused");
        assert_eq!(root.post(&rules, &rule("deploy")).code(), "taken");
        assert_eq!(root.delete(&path).status, 200);
        for gone in [root.get(&path), root.delete(&path)] {
            assert_eq!((gone.status, gone.code().as_str()), (404, "no_such_rule"));
        }
        // It was created once, and is gone.
        assert_eq!(post_once(&root, &rules, &rule("deploy")).code(), "no_such_rule");
        assert_eq!(root.get(&rules).json()["items"], json!([]));
    }
}

#[test]
fn rule_that_the_command_would_refuse_is_refused() {
    let setup = Setup::embedded();
    let (rules, root) = (rules_of(&setup, "acme"), setup.root());
    for (member, value, code) in [
        ("claims", json!({ "sub": "*" }), "invalid_rule"),
        ("claims", json!({ "sub": "repo:*" }), "invalid_rule"),
        ("claims", json!({ "sub": "repo:*/app:ref:refs/heads/main" }), "invalid_rule"),
        ("claims", json!({ "sub": "system:serviceaccount:*" }), "invalid_rule"),
        ("permissions", json!([]), "invalid_rule"),
        ("issuer", json!("http://ci.example.com"), "invalid_rule"),
        ("max", json!("13h"), "invalid_rule"),
        ("permissions", json!(["org:admin"]), "invalid_policy"),
        ("user", json!("ada@acme.example"), "not_a_service"),
        ("user", json!("nobody"), "no_such_user"),
        ("org", json!("acme"), "invalid_body"),
    ] {
        let mut body = rule("deploy");
        body[member] = value;
        assert_eq!(root.post(&rules, &body).code(), code, "{body}");
    }
    assert_eq!(root.get(&rules).json()["items"], json!([]));
}

/// A rule outlives the token, and has the gateway fetch what the rule names: so administrators give no token for it.
#[test]
fn rules_are_for_tokens_of_the_operator_with_the_scope_and_their_own_organization() {
    for setup in Setup::both() {
        let (rules, others) = (rules_of(&setup, "acme"), rules_of(&setup, "globex"));
        let org = rules.split('/').nth(2).unwrap();
        let own = setup.program(Some(org), &[TokenScope::KeysRead, TokenScope::KeysCreate]);
        assert_eq!(own.post(&rules, &rule("deploy")).status, 201);
        let reader = setup.program(Some(org), &[TokenScope::KeysRead]);
        assert_eq!(reader.get(&rules).json()["items"].as_array().unwrap().len(), 1);
        assert_eq!(reader.post(&rules, &rule("other")).code(), "missing_scope");
        assert_eq!(reader.delete(&format!("{rules}/deploy")).code(), "missing_scope");
        for (method, path) in [("GET", &others), ("POST", &others), ("DELETE", &format!("{others}/deploy"))] {
            let body = if method == "POST" { rule("deploy").to_string() } else { String::new() };
            let answer = own.call(method, path, &[JSON], body.as_bytes());
            assert_eq!((answer.status, answer.code().as_str()), (404, "no_such_org"), "{method}");
        }
        // A rule has no entity tag that `If-Match` could name.
        let stale = own.call("DELETE", &format!("{rules}/deploy"), &[("If-Match", "\"AAAAAAAAAAAAAAAAAAAAAA\"")], b"");
        assert_eq!((stale.status, stale.code().as_str()), (412, "changed_meanwhile"));
        let token = setup.program_with(&settings(None, &[TokenScope::KeysRead]));
        let revoke = format!("/tokens/{}", token.id);
        let stale = setup.root().call("DELETE", &revoke, &[("If-Match", "\"AAAAAAAAAAAAAAAAAAAAAA\"")], b"");
        assert_eq!((stale.status, token.get("/orgs/acme/federation-rules").status), (412, 200));
    }
}
