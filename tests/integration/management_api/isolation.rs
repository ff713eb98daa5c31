//! A token of one organization reveals nothing of another, and does nothing outside its scopes.

use domain::management_token::TokenScope;
use serde_json::json;

use super::fixture::{JSON, Setup};

/// Calls that read or change, with the scope that each needs: method, path, body.
fn calls(org: &str, user: &str, key: &str) -> Vec<(TokenScope, &'static str, String, &'static str)> {
    let users = format!("/orgs/{org}/users");
    let of_user = format!("{users}/{user}");
    let of_key = |rest: &str| format!("/keys/{key}{rest}");
    vec![
        (TokenScope::OrgsRead, "GET", format!("/orgs/{org}"), ""),
        (TokenScope::OrgsWrite, "PATCH", format!("/orgs/{org}"), r#"{"suspended":true}"#),
        (TokenScope::UsersRead, "GET", users.clone(), ""),
        (TokenScope::UsersWrite, "POST", users, r#"{"email":"eve@example.com"}"#),
        (TokenScope::UsersRead, "GET", of_user.clone(), ""),
        (TokenScope::UsersWrite, "PATCH", of_user.clone(), r#"{"suspended":true}"#),
        (TokenScope::UsersWrite, "DELETE", of_user, ""),
        (TokenScope::KeysRead, "GET", format!("/orgs/{org}/keys"), ""),
        (TokenScope::KeysRead, "GET", format!("/orgs/{org}/keys.csv"), ""),
        (TokenScope::AuditRead, "GET", format!("/orgs/{org}/changes.csv?action=key.create"), ""),
        (TokenScope::AuditRead, "GET", format!("/orgs/{org}/changes.ndjson"), ""),
        (TokenScope::KeysCreate, "POST", format!("/orgs/{org}/keys"), r#"{"name":"x","user":"ada@acme.example"}"#),
        (TokenScope::KeysRead, "GET", of_key(""), ""),
        (TokenScope::KeysSet, "PATCH", of_key(""), r#"{"policy":{"concurrent":1}}"#),
        (TokenScope::KeysSet, "PATCH", of_key(""), r#"{"limits":{"requests":1}}"#),
        (TokenScope::KeysRotate, "POST", of_key("/rotate"), ""),
        (TokenScope::KeysSet, "POST", of_key("/disable"), ""),
        (TokenScope::KeysSet, "POST", of_key("/enable"), ""),
        (TokenScope::UsageRead, "GET", of_key("/requests"), ""),
        (TokenScope::KeysRead, "GET", of_key("/explain"), ""),
        (TokenScope::KeysRevoke, "POST", of_key("/revoke"), ""),
        (TokenScope::AuditRead, "GET", format!("/audit?org={org}"), ""),
    ]
}

#[test]
fn token_of_another_organization_finds_nothing_and_changes_nothing() {
    for setup in Setup::both() {
        let (acme, other, root) = (setup.org("acme"), setup.org("other"), setup.root());
        let body = json!({ "name": "k", "user": "ada@acme.example" });
        let key = root.post(&format!("/orgs/{acme}/keys"), &body).json()["id"].as_str().unwrap().to_owned();
        let user = root.get(&format!("/orgs/{acme}/users")).json()["items"][0]["id"].as_str().unwrap().to_owned();
        let scopes: Vec<_> = TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::StateExport).collect();
        let stranger = setup.program(Some(&other), &scopes);
        let before = root.get(&format!("/orgs/{acme}/keys")).json();
        for org in [&*acme, "acme"] {
            for (_, method, path, body) in calls(org, &user, &key) {
                let answer = stranger.call(method, &path, &[JSON], body.as_bytes());
                assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
                // As of an organization or a key that never existed.
                let absent = path.replace(org, "absent").replace(&key, "aaaaaaaaa");
                let of_absent = stranger.call(method, &absent, &[JSON], body.as_bytes());
                assert_eq!(of_absent.code(), answer.code(), "{method} {path}");
            }
        }
        let own = stranger.get("/orgs").json();
        assert_eq!((own["items"].as_array().unwrap().len(), &own["items"][0]["name"]), (1, &json!("other")));
        assert_eq!(root.get(&format!("/orgs/{acme}/keys")).json(), before, "nothing was changed");
    }
}

#[test]
fn call_needs_its_scope_and_no_other() {
    let setup = Setup::embedded();
    let (acme, root) = (setup.org("acme"), setup.root());
    let body = json!({ "name": "k", "user": "ada@acme.example" });
    let key = root.post(&format!("/orgs/{acme}/keys"), &body).json()["id"].as_str().unwrap().to_owned();
    for (scope, method, path, body) in calls(&acme, "ada@acme.example", &key) {
        if path.contains("/users/") && method != "GET" {
            continue;
        }
        let others: Vec<_> = TokenScope::ALL.into_iter().filter(|other| *other != scope).collect();
        let without = setup.program(None, &others).call(method, &path, &[JSON], body.as_bytes());
        assert_eq!((without.status, without.code().as_str()), (403, "missing_scope"), "{method} {path}");
        let with = setup.program(None, &[scope]).call(method, &path, &[JSON], body.as_bytes());
        assert!(with.status < 300, "{method} {path}: {with:?}");
    }
}
