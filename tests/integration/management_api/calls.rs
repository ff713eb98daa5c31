//! Each resource is created, read, changed and ended over the network, on both states.

use domain::management_token::TokenScope;
use serde_json::json;

use super::fixture::{JSON, Setup};

#[test]
fn organization_is_created_listed_and_patched() {
    for setup in Setup::both() {
        let root = setup.root();
        let created = root.post("/orgs", &json!({ "name": "acme" }));
        assert_eq!(created.status, 201, "{created:?}");
        let org = created.json();
        let path = format!("/orgs/{}", org["id"].as_str().unwrap());
        assert_eq!(created.header("location"), Some(&*format!("/v1{path}")));
        assert_eq!(root.get(&path).json(), org);
        assert_eq!(root.get("/orgs/acme").json(), org, "by its name");
        assert_eq!(root.get("/orgs").json()["items"], json!([org]));
        assert_eq!(root.post("/orgs", &json!({ "name": "acme" })).status, 409);
        let patch = json!({ "suspended": true, "concurrent": 7, "policy": { "max_expiry": "90d" } });
        let patched = root.patch(&path, &patch).json();
        assert_eq!((&patched["suspended"], &patched["concurrent"]), (&json!(true), &json!(7)));
        assert_eq!(patched["policy"]["max_expiry"], "90d");
        let back = root.patch(&path, &json!({ "suspended": false, "concurrent": null, "policy": null })).json();
        assert_eq!(back, org, "null is the configured value");
        assert_eq!(root.patch(&path, &json!({ "name": "other" })).code(), "invalid_body");
        assert_eq!(root.get("/orgs/none").code(), "no_such_org");
    }
}

#[test]
fn user_and_service_are_created_patched_and_removed() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let users = format!("/orgs/{org}/users");
        let service = json!({
            "email": "nightly", "kind": "service", "responsible": "ada@acme.example", "permissions": ["queries:read"]
        });
        let created = root.post(&users, &service);
        assert_eq!(created.status, 201, "{created:?}");
        let path = format!("{users}/{}", created.json()["id"].as_str().unwrap());
        assert_eq!(root.get(&path).json(), created.json());
        assert_eq!(root.get(&format!("{users}/nightly")).json(), created.json(), "by its name");
        let patched = root.patch(&path, &json!({ "permissions": [], "suspended": true })).json();
        assert_eq!(patched["permissions"], json!([]));
        assert!(patched["suspended"].is_string(), "{patched}");
        assert_eq!(root.patch(&path, &json!({ "suspended": false })).json().get("suspended"), None);
        assert_eq!(root.post(&users, &json!({ "email": "x", "kind": "service" })).code(), "invalid_body");
        assert!(root.delete(&path).json()["removed"].is_string());
        assert_eq!(root.get(&path).code(), "no_such_user");
        assert_eq!(root.get(&users).json()["items"].as_array().unwrap().len(), 2, "removed ones are listed");
    }
}

#[test]
fn limits_of_a_key_are_patched_with_its_policy() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let body = json!({ "name": "k", "user": "ada@acme.example", "policy": { "permissions": ["queries:read"] } });
        let created = root.post(&format!("/orgs/{org}/keys"), &body).json();
        let path = format!("/keys/{}", created["id"].as_str().unwrap());
        let patch =
            json!({ "policy": { "permissions": null, "concurrent": 3 }, "limits": { "requests": 5, "per": "1m" } });
        let patched = root.patch(&path, &patch).json();
        assert_eq!((&patched["policy"], &patched["limits"]["requests"]), (&json!({ "concurrent": 3 }), &json!(5)));
        assert_eq!(root.patch(&path, &json!({ "limits": null })).json()["limits"]["own"], false);
    }
}

#[test]
fn lists_are_read_a_page_at_a_time() {
    let setup = Setup::embedded();
    let (org, root) = (setup.org("acme"), setup.root());
    for number in 0..5 {
        let body = json!({ "name": format!("k{number}"), "user": "ada@acme.example" });
        assert_eq!(root.post(&format!("/orgs/{org}/keys"), &body).status, 201);
    }
    let mut names = Vec::new();
    let mut path = format!("/orgs/{org}/keys?limit=2");
    loop {
        let page = root.get(&path).json();
        names.extend(page["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/orgs/{org}/keys?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["k0", "k1", "k2", "k3", "k4"]);
    assert_eq!(root.get(&format!("/orgs/{org}/keys?limit=0")).code(), "invalid_limit");
}

/// Tokens of a suspended organization create nothing; those of all organizations do.
#[test]
fn token_of_a_suspended_organization_creates_nothing() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let scopes = TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::StateExport).collect::<Vec<_>>();
        let program = setup.program(Some("acme"), &scopes);
        assert_eq!(root.patch("/orgs/acme", &json!({ "suspended": true })).status, 200);
        let digest = "e6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";
        let key = json!({ "name": "k", "user": "ada@acme.example" });
        let import = json!({ "name": "k", "user": "ada@acme.example", "sha256": digest });
        let rule = json!({
            "name": "deploy", "user": "ada@acme.example", "issuer": "https://ci.example.com", "audience": "a",
            "claims": { "sub": "repo:acme/app:ref:refs/heads/main" }, "permissions": ["queries:read"],
        });
        for (path, body) in [
            (format!("/orgs/{org}/users"), json!({ "email": "bob@acme.example" })),
            (format!("/orgs/{org}/keys"), key.clone()),
            (format!("/orgs/{org}/keys/import"), import),
            (format!("/orgs/{org}/federation-rules"), rule),
            ("/tokens".to_owned(), json!({ "name": "t", "org": org, "allow": ["keys:read"] })),
        ] {
            let refused = program.post(&path, &body);
            assert_eq!((refused.status, refused.code().as_str()), (403, "org_suspended"), "{path}");
        }
        assert_eq!(root.post(&format!("/orgs/{org}/keys"), &key).status, 201);
        assert_eq!(program.patch("/orgs/acme", &json!({ "suspended": false })).status, 200);
        assert_eq!(program.post(&format!("/orgs/{org}/keys"), &key).status, 201);
    }
}

/// A cursor of the audit belongs to all filters of its list, and a member that is there twice means nothing.
#[test]
fn cursor_of_the_audit_belongs_to_all_its_filters() {
    let setup = Setup::embedded();
    let (org, root) = (setup.org("acme"), setup.root());
    for number in 0..3 {
        root.post(&format!("/orgs/{org}/users"), &json!({ "email": format!("u{number}@acme.example") }));
    }
    let other = setup.root();
    other.post(&format!("/orgs/{org}/users"), &json!({ "email": "u@acme.example" }));
    let first = format!("/audit?limit=1&token={}", root.id);
    let cursor = root.get(&first).json()["nextCursor"].as_str().unwrap().to_owned();
    assert_eq!(root.get(&format!("{first}&cursor={cursor}")).status, 200);
    let user = domain::identity::UserId::generate();
    for filter in [
        String::new(),
        format!("&token={}", other.id),
        format!("&token={}&org={org}", root.id),
        format!("&token={}&user={user}", root.id),
        format!("&token={}&subject={user}", root.id),
        format!("&token={}&kind=change", root.id),
        format!("&token={}&refused=false", root.id),
        format!("&token={}&outcome=completed", root.id),
        format!("&token={}&since=2020-01-01T00:00:00Z", root.id),
        format!("&token={}&until=2120-01-01T00:00:00Z", root.id),
    ] {
        let refused = root.get(&format!("/audit?limit=1&cursor={cursor}{filter}"));
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_cursor"), "{filter}");
    }
}

#[test]
fn member_that_is_there_twice_is_refused() {
    let setup = Setup::embedded();
    let (org, root) = (setup.org("acme"), setup.root());
    let keys = format!("/orgs/{org}/keys");
    let key = root.post(&keys, &json!({ "name": "k", "user": "ada@acme.example" }));
    let of_key = format!("/keys/{}", key.json()["id"].as_str().unwrap());
    for (method, path, body) in [
        ("PATCH", &of_key, r#"{"policy":{"tags":{"a":"1","a":null}}}"#),
        ("PATCH", &of_key, r#"{"policy":{"concurrent":1,"concurrent":2}}"#),
        ("POST", &keys, r#"{"name":"x","user":"ada@acme.example","policy":{"tags":{"a":"1","a":"2"}}}"#),
    ] {
        let refused = root.call(method, path, &[JSON], body.as_bytes());
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_body"), "{body}");
    }
}
