//! Documents: planned by a dry run of the operations, and applied.

use domain::key::KeyDigest;
use domain::management_token::TokenScope;
use serde_json::{Value, json};

use super::fixture::{JSON, Program, Setup};
use crate::support::Response;

fn apply(program: &Program, query: &str, document: &Value) -> Response {
    program.call("PUT", &format!("/apply{query}"), &[JSON], document.to_string().as_bytes())
}

/// The steps of an application, each in one line.
fn steps(response: &Response) -> Vec<String> {
    assert_eq!(response.status, 200, "{response:?}");
    let steps = response.json()["steps"].as_array().unwrap().clone();
    steps
        .iter()
        .map(|step| serde_json::from_value::<control::management::PlanStep>(step.clone()).unwrap().to_string())
        .collect()
}

/// The lines of an export but the first and the last, which have its time and its checksum.
fn exported(root: &Program) -> Vec<String> {
    let body = String::from_utf8(root.get("/state").body).unwrap();
    let lines: Vec<String> = body.lines().map(str::to_owned).collect();
    lines[1..lines.len() - 1].to_vec()
}

fn changes(root: &Program) -> usize {
    let records = root.get("/audit?kind=change&limit=200").json()["items"].as_array().unwrap().clone();
    records.iter().filter(|record| record["action"] != "state.export").count()
}

/// A document about records that there are and others that there are not, of every kind.
fn document(setup: &Setup, root: &Program) -> Value {
    let org = setup.org("acme");
    let users = format!("/orgs/{org}/users");
    root.post(&users, &json!({ "email": "eve@acme.example" }));
    root.post(
        &users,
        &json!({ "email": "nightly", "kind": "service", "responsible": "ada@acme.example",
                               "permissions": ["queries:read"] }),
    );
    root.patch(&format!("/orgs/{org}"), &json!({ "policy": { "default_expiry": "30d", "max_expiry": "90d" } }));
    let key = |name: &str| {
        let body = json!({ "name": name, "user": "ada@acme.example" });
        root.post(&format!("/orgs/{org}/keys"), &body).json()["id"].clone()
    };
    let digest = |text: &str| KeyDigest::of(text.as_bytes()).to_hex();
    json!({ "organizations": [
        { "name": "acme", "concurrent": 7, "policy": { "max_expiry": "60d" },
          "users": [{ "email": "eve@acme.example", "removed": true },
                    { "email": "grace@acme.example", "permissions": ["queries:read"], "suspended": true },
                    { "service": "nightly", "responsible": "grace@acme.example" },
                    { "service": "weekly", "responsible": "grace@acme.example" }],
          "federation_rules": [{ "name": "deploy", "user": "nightly", "issuer": "https://ci.example.com",
                                 "audience": "api", "claims": { "sub": "repo:acme/*:ref:refs/heads/main" },
                                 "permissions": ["queries:read"] }],
          "keys": [{ "id": key("one"), "limits": { "requests": 5, "per": "1m" }, "tags": { "team": "billing" } },
                   { "id": key("two"), "revoked": true },
                   { "id": key("three"), "disabled": true, "expires": null },
                   { "sha256": digest("old"), "name": "old", "user": "weekly" },
                   { "sha256": digest("new"), "name": "new", "user": "ada@acme.example",
                     "permissions": ["queries:write"] }] },
        { "name": "globex", "suspended": true, "users": [{ "email": "bob@globex.example" }] },
    ]})
}

#[test]
fn dry_run_shows_what_is_applied_then_and_changes_nothing() {
    for setup in Setup::both() {
        let root = setup.root();
        let document = document(&setup, &root);
        let before = (exported(&root), changes(&root));
        let planned = steps(&apply(&root, "?dry_run=true", &document));
        assert_eq!((exported(&root), changes(&root)), before, "{planned:#?}");
        let of = |sign: &str| planned.iter().filter(|step| step.starts_with(sign)).count();
        assert_eq!([of("+"), of("~"), of("-"), of("!")], [7, 4, 2, 0], "{planned:#?}");
        let shown = [
            "~ organization acme: concurrent configured -> 7; max_expiry 90d -> 60d",
            "~ user acme/nightly: responsible ada@acme.example -> grace@acme.example",
            "+ key acme/old: user weekly; expires 30d after its creation",
        ];
        shown.iter().for_each(|step| assert!(planned.iter().any(|planned| planned == step), "{step}: {planned:#?}"));

        let applied = apply(&root, "", &document);
        assert_eq!((steps(&applied), applied.json().get("failed")), (planned, None));
        assert_eq!(steps(&apply(&root, "?dry_run=true", &document)), Vec::<String>::new(), "it is what it says");
        let before = changes(&root);
        assert_eq!(steps(&apply(&root, "", &document)), Vec::<String>::new());
        assert_eq!(changes(&root), before, "no record of what is as it was");
    }
}

#[test]
fn records_of_other_parts_are_taken_as_applied_and_not_shown() {
    let setup = Setup::embedded();
    let root = setup.root();
    let users = json!([{ "email": "ada@acme.example", "permissions": ["a"] }]);
    let digest = KeyDigest::of(b"old").to_hex();
    let key = json!({ "sha256": digest, "name": "k", "user": "ada@acme.example", "permissions": ["a"] });
    let given = json!({ "organizations": [{ "name": "acme", "users": users }] });
    let part = json!({ "organizations": [{ "name": "acme", "keys": [key] }], "given": given });
    let planned = steps(&apply(&root, "?dry_run=true", &part));
    assert_eq!(planned, ["+ key acme/k: user ada@acme.example; permissions a"]);
    assert_eq!(root.get("/orgs").json()["items"], json!([]));
    assert_eq!(apply(&root, "", &part).code(), "invalid_body", "given is for dry runs");
}

#[test]
fn application_ends_at_the_first_record_that_is_refused() {
    let setup = Setup::embedded();
    let root = setup.root();
    let user = |email: &str| json!({ "email": email });
    let service = json!({ "service": "weekly", "responsible": "nobody@acme.example" });
    let document = json!({ "organizations": [
        { "name": "acme", "users": [service, user("ada@acme.example")] }, { "name": "globex" },
    ]});
    let planned = steps(&apply(&root, "?dry_run=true", &document));
    assert_eq!(planned[2], "! user acme/weekly: there is no user nobody@acme.example in organization acme");
    let applied = apply(&root, "", &document);
    assert_eq!(steps(&applied), planned[..2]);
    assert_eq!(applied.json()["failed"]["code"], "no_such_user");
    assert_eq!(root.get("/orgs").json()["items"].as_array().unwrap().len(), 1);
    // The scopes are those of the operations.
    let reader = setup.program(None, &[TokenScope::OrgsRead, TokenScope::UsersRead]);
    let planned = steps(&apply(&reader, "?dry_run=true", &document));
    assert!(planned[0].contains("does not have the scope `users:write`"), "{planned:#?}");
    assert_eq!(apply(&reader, "", &document).json()["failed"]["code"], "missing_scope");
}

#[test]
fn invalid_documents_are_refused_whole() {
    let setup = Setup::embedded();
    let root = setup.root();
    let many: Vec<Value> = (0..201).map(|number| json!({ "name": format!("org-{number}") })).collect();
    for (document, part) in [
        (json!({ "organizations": [{ "name": "acme", "users": [{ "email": "ada" }] }] }), "0.users.0.email: "),
        (json!({ "organizations": [{ "name": "acme", "owner": "ada" }] }), "unknown field `owner`"),
        (
            json!({ "organizations": [{ "name": "acme", "users": [["ada@acme.example"]] }] }),
            "a record is a JSON object",
        ),
        (json!({ "organizations": many }), "more than 200 records"),
        (json!({}), "organizations"),
    ] {
        for query in ["", "?dry_run=true"] {
            let refused = apply(&root, query, &document);
            assert_eq!(refused.code(), "invalid_body", "{part}");
            assert!(refused.json()["detail"].as_str().unwrap().contains(part), "{part}: {refused:?}");
        }
    }
    assert_eq!(root.get("/orgs").json()["items"], json!([]));
}
