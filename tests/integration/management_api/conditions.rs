//! Entity tags and idempotency keys, on both states.

use std::thread;

use serde_json::json;

use super::fixture::{JSON, Program, Setup};
use crate::support::Response;

/// Sends a `POST` with an idempotency key.
fn post_once(program: &Program, path: &str, key: &str, body: &serde_json::Value) -> Response {
    program.call("POST", path, &[JSON, ("Idempotency-Key", key)], body.to_string().as_bytes())
}

/// A response without the fields that differ in each.
fn content(response: &Response) -> (u16, serde_json::Value, Option<String>) {
    (response.status, response.json(), response.header("location").map(str::to_owned))
}

#[test]
fn call_that_is_sent_again_changes_nothing_and_gets_the_same_result_without_the_secret() {
    for setup in Setup::both() {
        let root = setup.root();
        let org = post_once(&root, "/orgs", "a", &json!({ "name": "acme" }));
        let again = post_once(&root, "/orgs", "a", &json!({ "name": "acme" }));
        assert_eq!((org.status, content(&again)), (201, content(&org)));
        assert_eq!((org.header("idempotent-replayed"), again.header("idempotent-replayed")), (None, Some("true")));
        let users = format!("/orgs/{}/users", org.json()["id"].as_str().unwrap());
        let body = json!({ "email": "ada@acme.example" });
        // The same key counts for each path by itself, quoted or not.
        let user = post_once(&root, &users, "a", &body);
        assert_eq!((user.status, content(&post_once(&root, &users, "\"a\"", &body))), (201, content(&user)));
        let keys = users.replace("users", "keys");
        let body = json!({ "name": "k", "user": "ada@acme.example" });
        let key = post_once(&root, &keys, "k", &body);
        let again = post_once(&root, &keys, "k", &body);
        let mut without_secret = key.json();
        without_secret["key"] = json!(null);
        assert_eq!((again.status, again.json()), (201, without_secret));
        assert_eq!(again.header("etag"), key.header("etag"));
        assert_eq!(root.get(&keys).json()["items"].as_array().unwrap().len(), 1);
        let rotate = format!("/keys/{}/rotate", key.json()["id"].as_str().unwrap());
        let rotated = post_once(&root, &rotate, "k", &json!({}));
        let again = post_once(&root, &rotate, "k", &json!({}));
        assert_eq!((again.status, &again.json()["key"]), (200, &json!(null)));
        assert_eq!(again.json()["rotated"], rotated.json()["rotated"]);
        let token = json!({ "name": "t", "allow": ["keys:read"] });
        let created = post_once(&root, "/tokens", "t", &token);
        let again = post_once(&root, "/tokens", "t", &token);
        assert_eq!((again.status, &again.json()["token"]), (201, &json!(null)));
        assert_eq!(again.json()["id"], created.json()["id"]);
    }
}

#[test]
fn idempotency_key_is_for_one_body_and_one_token() {
    for setup in Setup::both() {
        let (root, other) = (setup.root(), setup.root());
        assert_eq!(post_once(&root, "/orgs", "a", &json!({ "name": "acme" })).status, 201);
        let reused = post_once(&root, "/orgs", "a", &json!({ "name": "other" }));
        assert_eq!((reused.status, reused.code().as_str()), (422, "idempotency_key_reused"));
        assert_eq!(post_once(&other, "/orgs", "a", &json!({ "name": "acme" })).code(), "taken", "a call of its own");
        // One that failed is not remembered.
        assert_eq!(post_once(&other, "/orgs", "a", &json!({ "name": "third" })).status, 201);
        assert_eq!(
            root.call("PATCH", "/orgs/acme", &[JSON, ("Idempotency-Key", "a")], b"{}").code(),
            "invalid_idempotency_key"
        );
        assert_eq!(post_once(&root, "/orgs", "", &json!({ "name": "x" })).code(), "invalid_idempotency_key");
    }
}

#[test]
fn equal_calls_at_two_gateways_make_one_key() {
    let setup = Setup::on_redis();
    let other = setup.another();
    let org = setup.org("acme");
    let programs: Vec<Program> = (0..2).map(|_| setup.root()).collect();
    let program = &programs[0];
    let path = format!("/orgs/{org}/keys");
    let body = json!({ "name": "k", "user": "ada@acme.example" });
    let ids: Vec<String> = thread::scope(|scope| {
        let send = |number: usize| {
            let address = if number.is_multiple_of(2) { setup.api() } else { other.addresses()[1] };
            let program = program.at(address);
            let (path, body) = (&path, &body);
            move || {
                (0..20)
                    .filter_map(|_| {
                        let answer = post_once(&program, path, "one", body);
                        let waits = ["call_in_progress", "rate_limited"];
                        assert!(answer.status == 201 || waits.contains(&&*answer.code()), "{answer:?}");
                        (answer.status == 201).then(|| answer.json()["id"].as_str().unwrap().to_owned())
                    })
                    .collect::<Vec<_>>()
            }
        };
        let sending: Vec<_> = (0..50).map(|number| scope.spawn(send(number))).collect();
        sending.into_iter().flat_map(|sending| sending.join().unwrap()).collect()
    });
    assert!(!ids.is_empty() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(setup.root().get(&path).json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn record_is_changed_only_while_it_has_the_tag_of_if_match() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let body = json!({ "name": "k", "user": "ada@acme.example" });
        let key = root.post(&format!("/orgs/{org}/keys"), &body);
        let of_key = format!("/keys/{}", key.json()["id"].as_str().unwrap());
        let user = format!("/orgs/{org}/users/ada@acme.example");
        for (path, patch) in [
            (format!("/orgs/{org}"), json!({ "concurrent": 7 })),
            (user, json!({ "permissions": [] })),
            (of_key.clone(), json!({ "policy": { "concurrent": 3 }, "limits": { "requests": 5 } })),
        ] {
            let tag = root.get(&path).header("etag").unwrap().to_owned();
            let known = root.call("GET", &path, &[("If-None-Match", &tag)], b"");
            assert_eq!((known.status, known.header("etag"), known.body.len()), (304, Some(&*tag), 0));
            let send = |tag: &str| root.call("PATCH", &path, &[JSON, ("If-Match", tag)], patch.to_string().as_bytes());
            let patched = send(&tag);
            assert_eq!(patched.status, 200, "{patched:?}");
            let new = patched.header("etag").unwrap().to_owned();
            assert_eq!(root.get(&path).header("etag"), Some(&*new), "the answer has the tag of the record");
            assert_ne!(new, tag);
            let stale = send(&tag);
            assert_eq!((stale.status, stale.code().as_str()), (412, "changed_meanwhile"), "{path}");
            assert_eq!(send("*").status, 200);
            assert_eq!(send("W/\"x\"").status, 412);
            assert_eq!(send("\"a\", \"b\"").code(), "invalid_if_match");
        }
        let tag = root.get(&of_key).header("etag").unwrap().to_owned();
        let revoke = |tag: &str| root.call("POST", &format!("{of_key}/revoke"), &[("If-Match", tag)], b"");
        assert_eq!(revoke(key.header("etag").unwrap()).status, 412);
        assert_eq!(revoke(&tag).json()["status"], "revoked");
    }
}

/// Members that are derived from other records are in the tag of an answer, and not in that of the record.
#[test]
fn answer_is_known_only_while_all_of_it_is_what_it_was() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let users = format!("/orgs/{org}/users");
        let service = json!({ "email": "nightly", "kind": "service", "responsible": "ada@acme.example" });
        root.post(&users, &service);
        let body = json!({ "name": "k", "user": "ada@acme.example" });
        let key = root.post(&format!("/orgs/{org}/keys"), &body);
        let of_key = format!("/keys/{}", key.json()["id"].as_str().unwrap());
        let ada = format!("{users}/ada@acme.example");
        let nightly = format!("{users}/nightly");
        for (path, of, change, back) in [
            (&of_key, &ada, json!({ "suspended": true }), json!({ "suspended": false })),
            (&of_key, &format!("/orgs/{org}"), json!({ "suspended": true }), json!({ "suspended": false })),
            (&nightly, &ada, json!({ "suspended": true }), json!({ "suspended": false })),
        ] {
            let before = root.get(path);
            let tag = before.header("etag").unwrap();
            let known = |tag: &str| root.call("GET", path, &[("If-None-Match", tag)], b"").status;
            assert_eq!(known(tag), 304, "{path}");
            assert_eq!(root.patch(of, &change).status, 200);
            let after = root.get(path);
            assert_ne!(before.json(), after.json(), "{path}");
            assert_eq!((known(tag), known(after.header("etag").unwrap())), (200, 304), "{path}");
            // The record is as it was: a change that depends on it alone is made.
            let send = |tag: &str| {
                let patch = if path == &of_key { json!({ "policy": {} }) } else { json!({ "suspended": false }) };
                root.call("PATCH", path, &[JSON, ("If-Match", tag)], patch.to_string().as_bytes()).status
            };
            assert_eq!(send(tag), 200, "{path}");
            assert_eq!(root.patch(of, &back).status, 200);
            assert_eq!(known(tag), 304, "{path}: the answer of before is back");
        }
    }
}

/// Permissions are added to those that the user has at that moment; what is not named stays.
#[test]
fn permissions_are_added_and_taken_away_at_once() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let ada = format!("/orgs/{org}/users/ada@acme.example");
        let changed =
            root.patch(&ada, &json!({ "add_permissions": ["a"], "remove_permissions": ["queries:read", "z"] }));
        assert_eq!(changed.json()["permissions"], json!(["a", "queries:write"]), "{changed:?}");
        let adding: Vec<_> = (0..8).map(|number| format!("p{number}")).collect();
        thread::scope(|scope| {
            for permission in &adding {
                let (root, ada) = (&root, &ada);
                scope.spawn(move || {
                    let added = || root.patch(ada, &json!({ "add_permissions": [permission] }));
                    let ended = std::iter::repeat_with(added).find(|answer| answer.status != 412).unwrap();
                    assert_eq!(ended.status, 200, "{ended:?}");
                });
            }
        });
        let held = root.get(&ada).json()["permissions"].clone();
        assert!(adding.iter().all(|permission| held.as_array().unwrap().contains(&json!(permission))), "{held}");
        assert_eq!(held.as_array().unwrap().len(), 10, "{held}");
    }
}
