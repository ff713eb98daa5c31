//! Plans in the API: given in bodies and patches by those who act for the operator, and shown to all.

use domain::management_token::TokenScope;
use serde_json::json;

use super::caller::Caller;
use super::fixture::{Program, Setup};
use crate::support::Client;

const PLANS: &str = "plans: { free: { requests: 10, per: 1h }, pro: { requests: 50, per: 1h, concurrent: 2 } }\n";

#[test]
fn plan_is_given_in_bodies_and_patches() {
    let setup = Setup::with(PLANS);
    let root = setup.root();
    let org = root.post("/orgs", &json!({ "name": "acme", "plan": "free" })).json();
    assert_eq!(org["plan"], "free");
    let path = format!("/orgs/{}", org["id"].as_str().unwrap());
    let user = root.post(&format!("{path}/users"), &json!({ "email": "ada@acme.example", "plan": "pro" })).json();
    assert_eq!(user["plan"], "pro");
    let key = root.post(&format!("{path}/keys"), &json!({ "name": "k", "user": "ada@acme.example" })).json();
    assert_eq!((key.get("plan"), &key["limits"]["plan"]["of"]), (None, &json!("user")));
    let response = Client::connect(setup.gateway.address).get("/x", key["key"].as_str().unwrap());
    let policy = response.header("ratelimit-policy").unwrap();
    assert!(policy.contains("\"key\";q=50;w=3600") && policy.contains("\"key-concurrent\";q=2"), "{policy}");

    let of_key = format!("/keys/{}", key["id"].as_str().unwrap());
    let patched = root.patch(&of_key, &json!({ "plan": "free", "policy": { "tags": { "a": "b" } } })).json();
    assert_eq!((&patched["plan"], &patched["limits"]["requests"]), (&json!("free"), &json!(10)));
    let patched = root.patch(&of_key, &json!({ "plan": null })).json();
    assert_eq!((patched.get("plan"), &patched["policy"]["tags"]["a"]), (None, &json!("b")), "what is absent stays");
    assert_eq!(
        root.patch(&format!("{path}/users/ada@acme.example"), &json!({ "plan": null })).json().get("plan"),
        None
    );
    assert_eq!(root.get(&format!("{of_key}/explain")).json()["key"]["limits"]["plan"]["of"], "org");
    assert_eq!(root.patch(&path, &json!({ "plan": null })).json().get("plan"), None);
    assert_eq!(root.get(&of_key).json()["limits"].get("plan"), None);
    for (path, body) in [(&path, json!({ "plan": "gone" })), (&of_key, json!({ "plan": "gone" }))] {
        assert_eq!(root.patch(path, &body).code(), "invalid_limits");
    }
    assert_eq!(root.patch(&of_key, &json!({ "plan": "no name" })).code(), "invalid_body");
    assert_eq!(root.post("/orgs", &json!({ "name": "other", "plan": "gone" })).code(), "invalid_limits");
}

/// An administrator sees the plans and changes none: as a person, and by a token.
#[test]
fn administrator_sees_plans_and_gives_none() {
    let setup = Setup::with(PLANS);
    let (org, root) = (setup.org("acme"), setup.root());
    root.patch(&format!("/orgs/{org}"), &json!({ "plan": "pro" }));
    let key = root.post(&format!("/orgs/{org}/keys"), &json!({ "name": "k", "user": "ada@acme.example" })).json();
    let of_key = format!("/keys/{}", key["id"].as_str().unwrap());
    let [_, _, mut admin] = Caller::all(&setup, &org);
    let (users, keys) = (format!("/orgs/{org}/users/ada@acme.example"), format!("/orgs/{org}/keys"));
    let plan = json!({ "plan": "free" }).to_string();
    let new = json!({ "name": "n", "user": "ada@acme.example", "plan": "free" }).to_string();
    for (method, path, body) in [("PATCH", &of_key, &plan), ("PATCH", &users, &plan), ("POST", &keys, &new)] {
        let refused = admin.call(method, path, &[], body);
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("not_allowed")), "{method} {path}");
    }
    assert_eq!(admin.call("GET", &of_key, &[], "").json()["limits"]["plan"]["name"], "pro");
    assert_eq!(admin.call("GET", &format!("/orgs/{org}"), &[], "").json()["plan"], "pro");
    let narrow = json!({ "policy": { "concurrent": 1 } }).to_string();
    assert_eq!(admin.call("PATCH", &of_key, &[], &narrow).status, 200, "its policy is the administrator's");

    let made = json!({ "name": "ci", "allow": ["keys:set", "keys:create"] }).to_string();
    let made = admin.call("POST", "/tokens", &[], &made).json();
    let program = Program { secret: made["token"].as_str().unwrap().to_owned(), ..root.clone() };
    assert_eq!(program.patch(&of_key, &json!({ "plan": "free" })).code(), "not_allowed");
    let new = json!({ "name": "n", "user": "ada@acme.example", "plan": "free" });
    assert_eq!(program.post(&keys, &new).code(), "not_allowed");
    let reader = setup.program(Some(&org), &[TokenScope::KeysSet]);
    assert_eq!(reader.patch(&of_key, &json!({ "plan": "free" })).status, 200, "a token of the operator");
}
