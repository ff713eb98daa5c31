//! Keys: shown once, refused at once after revocation, and every change in the audit.

use control::management::{self, NewKeyRequest, PolicyUpdate, SecretSource};
use domain::identity::AuthMethod;
use journal::audit::Outcome;
use serde_json::{Value, json};

use super::fixture::{AGENT, SessionUser, Setup};
use crate::support::Client;
use crate::support::gateway::OPERATOR;

#[test]
fn key_says_who_created_rotated_and_revoked_it() {
    let setup = Setup::new();
    let (bob, ada) = (setup.member(), setup.admin());
    let user = |user: &SessionUser<'_>, email: &str| json!({ "kind": "user", "id": user.user, "email": email });
    let (by_bob, by_ada) = (user(&bob, "bob@example.com"), user(&ada, "ada@example.com"));
    let operator = json!({ "kind": "operator" });
    let made = bob.post("/keys", json!({ "name": "laptop" })).json();
    let id = made["id"].as_str().unwrap();
    let actors = |key: &Value| ["created_by", "rotated_by", "revoked_by"].map(|event| key[event].clone());
    assert_eq!(actors(&made), [by_bob.clone(), Value::Null, Value::Null]);
    let rotated = ada.send("POST", &format!("/keys/{id}/rotate"), None).json();
    assert_eq!(actors(&rotated), [by_bob.clone(), by_ada.clone(), Value::Null]);
    setup.gateway.revoke_key(id.parse().unwrap());
    let again = bob.send("POST", &format!("/keys/{id}/revoke"), None).json();
    let listed = |user: &SessionUser<'_>| {
        let page = user.get("/keys").json();
        page["items"].as_array().unwrap().iter().find(|key| key["id"] == id).unwrap().clone()
    };
    let explained = bob.get(&format!("/keys/{id}/explain")).json()["key"].clone();
    let shown = bob.get(&format!("/keys/{id}")).json();
    for key in [again, shown, explained, listed(&bob), listed(&ada)] {
        assert_eq!(actors(&key), [by_bob.clone(), by_ada.clone(), operator.clone()], "{key}");
    }
    let page = bob.page(&format!("/settings/keys/{id}"));
    for by in ["bob<wbr>@example.com", "ada<wbr>@example.com", "the operator"] {
        assert!(page.contains(&format!("by <span class=\"owner\">{by}")), "{by}: {page}");
    }
    assert!(!page.contains("unix:"), "the organization is not told who the operator is: {page}");

    // A key of the operator, for a user.
    let request =
        NewKeyRequest { user: "bob@example.com", name: "server", policy: PolicyUpdate::default(), plan: None };
    let source = SecretSource::Generated;
    let new =
        setup.gateway.perform(async |to, now| management::create_key(to, OPERATOR, "acme", request, source, now).await);
    let named = serde_json::to_value(&new.key).unwrap();
    assert!(named["created_by"]["name"].as_str().unwrap().starts_with("unix:"), "{named}");
    let shown = bob.get(&format!("/keys/{}", new.key.id)).json();
    assert_eq!(actors(&shown), [operator, Value::Null, Value::Null]);
}

#[test]
fn last_attempt_is_told_beside_the_last_use() {
    let setup = Setup::new();
    let bob = setup.member();
    let (key, id) = bob.key("laptop");
    let activity = || bob.get(&format!("/activity?keys={id}")).json()["keys"][&id].clone();
    assert!(activity()["last_attempt"].is_null());
    let mut client = Client::connect(setup.address());
    assert_eq!(client.get("/x", &key).status, 200);
    drop(setup.gateway.records());
    let used = activity();
    assert_eq!((&used["last_attempt"], &used["last"]["outcome"]), (&used["last"], &json!("completed")));
    assert!(!bob.page("/settings/keys").contains("Last attempt"), "the last use is the last attempt");
    bob.send("POST", &format!("/keys/{id}/revoke"), None);
    assert_eq!(client.get("/y", &key).status, 401);
    drop(setup.gateway.records());
    let refused = activity();
    assert_eq!(refused["last"], used["last"], "a refused attempt is no use");
    let attempt = &refused["last_attempt"];
    let seen = (&attempt["outcome"], &attempt["status"], &attempt["ip"], &attempt["action"]);
    assert_eq!(seen, (&json!("revoked"), &json!(401), &json!("127.0.0.1"), &json!("GET /y")));
    for path in ["/settings/keys", &format!("/settings/keys/{id}")] {
        let text = bob.page(path);
        assert!(text.contains("Last attempt") && text.contains("<span class=\"mono\">127.0.0.1</span>"), "{text}");
    }
}

#[test]
fn pages_name_the_recording_gateway_and_refuse_invalid_cursors() {
    let setup = Setup::new();
    let bob = setup.member();
    let (_, id) = bob.key("laptop");
    let gateway = bob.get(&format!("/keys/{id}/requests")).json()["gateway"].as_str().unwrap().to_owned();
    for path in ["/settings/keys", &format!("/settings/keys/{id}")] {
        let text = bob.page(path);
        assert!(text.contains(&format!("recorded by the gateway <span class=\"mono\">{gateway}</span>")), "{text}");
    }
    let (path, fields) = (format!("/settings/keys/{id}"), [("Cookie", bob.cookie.as_str())]);
    let garbage = format!("{path}?cursor=garbage");
    assert_eq!(Client::connect(setup.address()).request("GET", &garbage, "", &fields, b"").status, 400);
    let audit = setup.gateway.dir.path().join("audit");
    std::fs::rename(&audit, setup.gateway.dir.path().join("away")).unwrap();
    let text = bob.page(&path);
    std::fs::rename(setup.gateway.dir.path().join("away"), &audit).unwrap();
    // The page is shown without the records.
    assert!(text.contains("cannot be read right now") && text.contains(&id));
}

#[test]
fn changes_are_in_the_audit_with_user_and_client() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, id) = bob.key("laptop");
    let before = setup.changes().len() - 1;
    ada.send("POST", &format!("/keys/{id}/rotate"), None);
    ada.send("POST", &format!("/keys/{id}/revoke"), None);
    ada.send("PATCH", "/session", Some(json!({ "org": setup.org.to_string() })));
    ada.send("DELETE", "/session", None);
    let changes = setup.changes();
    let seen: Vec<_> =
        changes[before..].iter().map(|record| (record.action.as_str(), record.user_id, record.subject)).collect();
    let (ada, bob) = (Some(ada.user), Some(bob.user));
    let expected = [
        ("key.create", bob, bob),
        ("key.rotate", ada, bob),
        ("key.revoke", ada, bob),
        ("session.choose_org", ada, ada),
        ("session.end", ada, ada),
    ];
    assert_eq!(seen, expected);
    for record in &changes[before..] {
        assert_eq!(record.actor, record.user_id.map(|user| user.to_string()), "{record:?}");
    }
    for record in &changes[before..] {
        assert_eq!((record.auth_method, record.outcome), (AuthMethod::Session, Outcome::Completed), "{record:?}");
        assert_eq!((record.ip, record.org_id), (Some([127, 0, 0, 1].into()), Some(setup.org)), "{record:?}");
        assert_eq!(record.user_agent.as_deref(), Some(AGENT), "{record:?}");
    }
    assert_eq!(changes[before].key_id.unwrap().to_string(), id);
}
