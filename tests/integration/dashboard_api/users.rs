//! Permissions: members manage their own keys, admins those of the organization; API keys and other sites nothing.

use control::management;
use serde_json::json;

use super::fixture::{JSON, OWN, Setup};
use crate::support::Client;
use crate::support::gateway::OPERATOR;
use crate::support::updates::suspension;

#[test]
fn member_sees_and_changes_only_their_own_keys() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let ((_, adas), (_, bobs)) = (ada.key("ada's"), bob.key("bob's"));
    let path = |path: &str, key: &str| path.replace("{key}", key);
    for of_key in ["/keys/{key}", "/keys/{key}/requests", "/activity?keys={key}", "/keys/{key}/explain"] {
        let theirs = bob.get(&path(of_key, &adas));
        assert_eq!((theirs.status, theirs.code().as_str()), (404, "no_such_key"), "{of_key}");
        assert_eq!(bob.get(&path(of_key, &bobs)).status, 200, "{of_key}");
        assert_eq!(ada.get(&path(of_key, &bobs)).status, 200, "{of_key}");
    }
    for change in ["revoke", "rotate"] {
        let theirs = bob.send("POST", &format!("/keys/{adas}/{change}"), None);
        assert_eq!((theirs.status, theirs.code().as_str()), (404, "no_such_key"), "{change}");
    }
    assert_eq!(ada.get(&format!("/keys/{adas}")).json()["status"], "active");
    assert_eq!(bob.get("/keys").json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(ada.get("/keys").json()["items"].as_array().unwrap().len(), 2);
    assert_eq!(bob.get("/users").code(), "not_allowed");
    assert_eq!(ada.get("/users").json()["items"].as_array().unwrap().len(), 2);
    let for_ada = bob.post("/keys", json!({ "name": "x", "user": "ada@example.com" }));
    assert_eq!((for_ada.status, for_ada.code().as_str()), (403, "not_allowed"));
    let for_bob = ada.post("/keys", json!({ "name": "x", "user": "Bob@example.com" })).json();
    assert_eq!(for_bob["user"], bob.user.to_string());
    assert_eq!(ada.send("POST", &format!("/keys/{bobs}/revoke"), None).json()["status"], "revoked");
}

#[test]
fn resources_of_another_organization_are_not_found() {
    let setup = Setup::new();
    let ada = setup.admin();
    let elsewhere = setup.gateway.key_with(&["org:admin"]);
    let id = elsewhere.id;
    let of_key = ["", "/requests", "/explain"].map(|what| format!("/keys/{id}{what}"));
    for path in of_key.into_iter().chain([format!("/activity?keys={id}")]) {
        assert_eq!(ada.get(&path).code(), "no_such_key", "{path}");
    }
    let create = ada.post("/keys", json!({ "name": "x", "user": elsewhere.user.to_string() }));
    assert_eq!(create.code(), "no_such_user");
    let choose = ada.send("PATCH", "/session", Some(json!({ "org": elsewhere.org.to_string() })));
    assert_eq!((choose.status, choose.code().as_str()), (403, "not_allowed"));
}

#[test]
fn session_endpoint_shows_the_user_and_signs_out() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let who = ada.get("/session").json();
    assert_eq!((&who["role"], &who["user"]["email"]), (&json!("admin"), &json!("ada@example.com")));
    assert_eq!((&who["org"]["name"], who["orgs"].as_array().unwrap().len()), (&json!("acme"), 1));
    assert_eq!(bob.get("/session").json()["role"], "member");
    let chosen = bob.send("PATCH", "/session", Some(json!({ "org": setup.org.to_string() }))).json();
    assert_eq!(chosen["org"]["id"], setup.org.to_string());
    let out = bob.send("DELETE", "/session", None);
    assert_eq!((out.status, out.header("content-type")), (204, None));
    assert!(out.header("set-cookie").unwrap().starts_with("__Host-keygate=; "), "{out:?}");
    assert_eq!(bob.get("/session").code(), "invalid_session");
    assert_eq!(ada.get("/session").status, 200);
}

#[test]
fn sessions_are_listed_and_ended_by_their_user_and_by_admins() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let eve = setup.user("eve@example.com", &[]);
    let id = |person: &super::fixture::SessionUser<'_>| {
        person.get("/session").json()["session"]["id"].as_str().unwrap().to_owned()
    };
    let (bobs, eves) = (id(&bob), id(&eve));
    assert_eq!(bob.get("/sessions").json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(ada.get("/sessions").json()["items"].as_array().unwrap().len(), 3);
    assert_eq!(bob.send("DELETE", &format!("/sessions/{eves}"), None).code(), "no_such_session");
    assert_eq!(eve.get("/session").status, 200);
    let ended = ada.send("DELETE", &format!("/sessions/{bobs}"), None).json();
    assert_eq!(ended["email"], "bob@example.com");
    assert_eq!(bob.get("/keys").code(), "invalid_session");
    assert_eq!(ada.send("DELETE", &format!("/sessions/{bobs}"), None).code(), "no_such_session");
}

#[test]
fn removed_user_is_refused_at_once() {
    let setup = Setup::new();
    let bob = setup.member();
    assert_eq!(bob.get("/keys").status, 200);
    setup.gateway.remove_user_of(setup.org, bob.user);
    assert_eq!(bob.get("/keys").code(), "invalid_session");
    assert_eq!(bob.post("/keys", json!({ "name": "x" })).code(), "invalid_session");
}

#[test]
fn api_key_is_not_accepted() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (key, id) = ada.key("laptop");
    let bearer = format!("Bearer {key}");
    for (method, path) in
        [("GET", ada.path("/keys")), ("POST", ada.path("/keys")), ("POST", format!("/keys/{id}/revoke"))]
    {
        let refused = setup.send_request(method, &path, &[("Authorization", &bearer), OWN, JSON], br#"{"name":"x"}"#);
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthenticated"), "{method} {path}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("API keys do not manage keys") && !detail.contains(&key), "{detail}");
        assert_eq!(setup.send_request(method, &path, &[OWN, JSON], b"").code(), "unauthenticated", "{method} {path}");
    }
    assert_eq!(ada.get("/keys").json()["items"].as_array().unwrap().len(), 1);
    let used = Client::connect(setup.address()).get("/", &key);
    assert_eq!(used.status, 200, "the key itself works");
}

#[test]
fn changes_require_the_same_origin() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (_, id) = ada.key("laptop");
    let own_origin = ("Origin", "http://127.0.0.1:8080");
    for fields in [
        &[][..],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site"), own_origin],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
    ] {
        for (method, path) in [("POST", format!("/keys/{id}/revoke")), ("DELETE", "/session".into())] {
            let headers = [&[("Cookie", ada.cookie.as_str())], fields].concat();
            let refused = setup.send_request(method, &path, &headers, b"");
            assert_eq!((refused.status, refused.code().as_str()), (403, "cross_site_request"), "{method} {fields:?}");
        }
    }
    assert_eq!(ada.get(&format!("/keys/{id}")).json()["status"], "active");
    let own = setup.send_request("POST", &format!("/keys/{id}/revoke"), &[("Cookie", &ada.cookie), own_origin], b"");
    assert_eq!(own.status, 200);
}

/// A suspension by the operator is taken back by the operator alone, on the page and by a token of an admin.
#[test]
fn suspension_by_the_operator_stands_against_an_admin() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (key, _) = bob.key("laptop");
    let post = |what: &str| {
        let fields = [("Cookie", ada.cookie.as_str()), OWN, ("Content-Type", "application/x-www-form-urlencoded")];
        let path = format!("/settings/users/{}/{what}", bob.user);
        Client::connect(setup.address()).request("POST", &path, "", &fields, b"").status
    };
    let admits = || Client::connect(setup.address()).get("/", &key).status == 200;
    bob.key("second");
    let (_, revoked) = bob.key("revoked");
    ada.send("POST", &format!("/keys/{revoked}/revoke"), None);
    assert!(ada.page("/settings/users").contains(&format!("/users/{}/suspend\"", bob.user)));
    let asked = ada.page(&format!("/settings/users/{}/suspend", bob.user));
    assert!(asked.contains("Suspend bob@example.com?") && asked.contains("2 active API keys stop at once."), "{asked}");
    assert!(admits(), "the page changes nothing");
    let fields = [("Cookie", bob.cookie.as_str())];
    let path = format!("/settings/users/{}/suspend", ada.user);
    assert_eq!(Client::connect(setup.address()).request("GET", &path, "", &fields, b"").status, 403);
    for first in ["operator", "admin"] {
        if first == "admin" {
            assert_eq!(post("suspend"), 303);
        }
        setup.gateway.suspend_user_of(setup.org, bob.user);
        assert_eq!((post("resume"), admits()), (403, false), "{first}");
        let page = ada.page("/settings/users");
        assert!(page.contains("Only the operator of this service") && !page.contains("/resume\""), "{page}");
        let user = setup.gateway.resume_user_of(setup.org, bob.user);
        assert!(!user.suspended_by_operator && admits(), "{first}");
    }
    assert_eq!((post("suspend"), admits()), (303, false));
    assert_eq!((post("resume"), admits()), (303, true), "an admin takes back what an admin did");
}

/// Sessions of a suspended organization create nothing, and still withdraw.
#[test]
fn sessions_of_a_suspended_organization_create_nothing() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (_, id) = ada.key("laptop");
    let org = setup.org.to_string();
    setup.gateway.perform(async |to, now| management::update_org(to, OPERATOR, &org, suspension(true), now).await);
    for (path, body) in [("/keys", json!({ "name": "x" })), ("/tokens", json!({ "name": "x", "allow": ["keys:read"] }))]
    {
        let refused = ada.post(path, body);
        assert_eq!((refused.status, refused.code().as_str()), (403, "org_suspended"), "{path}");
    }
    assert_eq!(ada.send("POST", &format!("/keys/{id}/revoke"), None).json()["status"], "revoked");
    setup.gateway.perform(async |to, now| management::update_org(to, OPERATOR, &org, suspension(false), now).await);
    assert_eq!(ada.post("/keys", json!({ "name": "x" })).status, 201);
}
