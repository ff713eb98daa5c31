//! People managed by the administrators of an organization: where they may, and by which rules.

use control::management::{self, UserGrants};
use serde_json::{Value, json};

use super::fixture::{OWN, SessionUser, Setup};
use crate::support::gateway::OPERATOR;
use crate::support::{Client, Response};

/// A gateway where administrators manage people.
fn managed() -> Setup {
    Setup::with_limit("{ requests: 1000000, per: 1m }, people: { managed_by: admins }")
}

fn create(by: &SessionUser<'_>, email: &str, permissions: &[&str]) -> Response {
    by.post("/users", json!({ "email": email, "permissions": permissions }))
}

fn path(of: &SessionUser<'_>, user: &str) -> String {
    format!("/orgs/{}/users/{user}", of.org)
}

fn permit(by: &SessionUser<'_>, user: &str, permissions: &[&str]) -> Response {
    by.send("PATCH", &path(by, user), Some(json!({ "permissions": permissions })))
}

fn remove(by: &SessionUser<'_>, user: &str) -> Response {
    by.send("DELETE", &path(by, user), None)
}

fn link(by: &SessionUser<'_>, user: &str) -> Response {
    by.send("POST", &format!("{}/sign-in-links", path(by, user)), None)
}

/// Redeems a sign-in link; returns the status.
fn redeem(setup: &Setup, link: &Value) -> u16 {
    let path = link["url"].as_str().unwrap().strip_prefix("http://127.0.0.1:8080").unwrap();
    Client::connect(setup.address()).request("POST", path, "", &[OWN], b"").status
}

fn refusals(answers: [Response; 4]) -> [String; 4] {
    answers.map(|answer| format!("{} {}", answer.status, answer.code()))
}

#[test]
fn admins_manage_people_only_where_they_are_configured_to() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let bobs = bob.user.to_string();
    let all = |by: &SessionUser<'_>| {
        refusals([create(by, "eve@example.com", &[]), permit(by, &bobs, &[]), link(by, &bobs), remove(by, &bobs)])
    };
    assert_eq!(all(&ada), ["403 people_of_provider"; 4].map(str::to_owned));
    assert_eq!(all(&bob), ["403 not_allowed"; 4].map(str::to_owned));
    let managed = managed();
    let (ada, bob) = (managed.admin(), managed.member());
    let other = managed.user_of(managed.other_org("globex"), "gus@example.com", &["org:admin"]);
    let bobs = bob.user.to_string();
    let of_others = |by: &SessionUser<'_>| {
        let at = |rest: &str| format!("/orgs/{}/users{rest}", managed.org);
        refusals([
            by.send("POST", &at(""), Some(json!({ "email": "eve@example.com" }))),
            by.send("PATCH", &at(&format!("/{bobs}")), Some(json!({ "permissions": [] }))),
            by.send("POST", &at(&format!("/{bobs}/sign-in-links")), None),
            by.send("DELETE", &at(&format!("/{bobs}")), None),
        ])
    };
    assert_eq!(of_others(&bob), ["403 not_allowed"; 4].map(str::to_owned));
    assert_eq!(of_others(&other), ["403 not_allowed"; 4].map(str::to_owned));
    assert_eq!(ada.get("/users").json()["items"].as_array().unwrap().len(), 2);
}

#[test]
fn person_is_added_invited_permitted_and_removed_by_an_admin() {
    let setup = managed();
    let ada = setup.user("ada@example.com", &["org:admin", "queries:read"]);
    let created = create(&ada, "eve@example.com", &["queries:read"]);
    assert_eq!((created.status, &created.json()["permissions"]), (201, &json!(["queries:read"])));
    let eve = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(create(&ada, "eve@example.com", &[]).code(), "taken");
    let invitation = link(&ada, &eve).json();
    assert_eq!((redeem(&setup, &invitation), redeem(&setup, &invitation)), (303, 403), "once");
    assert_eq!(permit(&ada, &eve, &["org:admin"]).json()["permissions"], json!(["org:admin"]));
    assert!(remove(&ada, &eve).json()["removed"].is_string());
    assert_eq!(link(&ada, &eve).code(), "no_such_user");
    let changes = setup.changes();
    let by_ada = changes.iter().filter(|change| change.actor.as_deref() == Some(&*ada.user.to_string()));
    let by_ada: Vec<&str> =
        by_ada.map(|change| &*change.action).filter(|action| !action.starts_with("session.s")).collect();
    assert_eq!(by_ada, ["user.create", "user.create", "session.link", "user.permit", "user.remove"]);
}

#[test]
fn admin_gives_nothing_that_they_lack() {
    let setup = managed();
    let ada = setup.user("ada@example.com", &["org:admin", "queries:read"]);
    let bob = setup.user("bob@example.com", &["queries:write"]);
    let bobs = bob.user.to_string();
    for refused in [
        create(&ada, "eve@example.com", &["queries:write"]),
        permit(&ada, &ada.user.to_string(), &["org:admin", "queries:write"]),
        permit(&ada, &bobs, &["queries:write", "billing:pay"]),
        // Signed in as Bob, Ada would give what he has.
        link(&ada, &bobs),
    ] {
        assert_eq!((refused.status, refused.code().as_str()), (403, "grant_exceeds"), "{refused:?}");
    }
    assert_eq!(permit(&ada, &bobs, &["queries:write", "queries:read"]).status, 200, "what he has may stay");
    assert_eq!(permit(&ada, &bobs, &["queries:read"]).status, 200);
    assert_eq!(permit(&ada, &bobs, &["queries:write"]).code(), "grant_exceeds", "it was taken away");
    let sold = ada.post("/users", json!({ "email": "eve@example.com", "plan": "free" }));
    assert_eq!(sold.code(), "not_allowed", "plans are the operator's");
}

#[test]
fn link_of_an_admin_ends_with_the_rights_that_it_was_made_by() {
    let setup = managed();
    let (ada, amy) = (setup.admin(), setup.user("amy@example.com", &["org:admin"]));
    let bobs = setup.member().user.to_string();
    let made_before = link(&amy, &bobs).json();
    setup.gateway.permit_user_of(setup.org, &bobs, &["queries:write"]);
    assert_eq!(redeem(&setup, &made_before), 403, "Bob has more than Amy now");
    setup.gateway.permit_user_of(setup.org, &bobs, &[]);
    let of_amy = link(&amy, &bobs).json();
    assert_eq!(remove(&ada, &amy.user.to_string()).status, 200);
    assert_eq!(redeem(&setup, &of_amy), 403, "Amy is gone");
    assert_eq!(redeem(&setup, &link(&ada, &bobs).json()), 303);
}

#[test]
fn last_admin_and_services_stay() {
    let setup = managed();
    let ada = setup.admin();
    let own = ada.user.to_string();
    for refused in [permit(&ada, &own, &[]), remove(&ada, &own)] {
        assert_eq!((refused.status, refused.code().as_str()), (409, "last_admin"), "{refused:?}");
    }
    let org = setup.org.to_string();
    let service = setup.gateway.perform(async |to, now| {
        management::create_service(to, OPERATOR, &org, "nightly", "ada@example.com", UserGrants::default(), now).await
    });
    let service = service.id.to_string();
    for refused in [permit(&ada, &service, &[]), link(&ada, &service), remove(&ada, &service)] {
        assert_eq!((refused.status, refused.code().as_str()), (409, "not_a_person"), "{refused:?}");
    }
    let amy = setup.user("amy@example.com", &["org:admin"]);
    assert_eq!(remove(&ada, &own).status, 200, "another admin is left");
    assert_eq!(amy.get("/users").status, 200);
    assert_eq!(ada.get("/users").code(), "invalid_session");
}

#[test]
fn admin_lowers_the_limits_of_a_key_and_does_not_raise_them() {
    let setup = Setup::with("{ requests: 1000000, per: 1m }", "limits: { key: { requests: 1000, per: 1h } }\n");
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, key) = bob.key("bob's");
    let limit = |by: &SessionUser<'_>, limits: Value| {
        let answer = by.send("PATCH", &format!("/keys/{key}"), Some(json!({ "limits": limits })));
        if answer.status == 200 { "ok".to_owned() } else { answer.code() }
    };
    let lower = json!({ "requests": 100, "per": "1h", "burst": 50 });
    assert_eq!(limit(&bob, lower.clone()), "not_allowed", "an owner sets no limits");
    assert_eq!(limit(&ada, lower.clone()), "ok");
    assert_eq!(limit(&ada, lower), "ok", "as low as before");
    for raised in [
        json!({ "requests": 101 }),
        json!({ "burst": 51 }),
        json!({ "per": "30m" }),
        json!({ "requests": 2, "per": "1m" }),
        Value::Null,
    ] {
        assert_eq!(limit(&ada, raised.clone()), "limits_raised", "{raised}");
    }
    assert_eq!(limit(&ada, json!({ "requests": 1, "per": "1m" })), "ok", "60 an hour");
    let shown = ada.get(&format!("/keys/{key}")).json()["limits"].clone();
    assert_eq!((&shown["requests"], &shown["burst"]), (&json!(1), &json!(50)), "{shown}");
    assert_eq!(setup.changes().iter().filter(|change| change.action == "key.limits").count(), 3);
}

/// On its page a form without other changes lowers the limit, and one of a member changes none.
#[test]
fn page_of_a_key_lowers_its_limit() {
    let setup = Setup::with("{ requests: 1000000, per: 1m }", "limits: { key: { requests: 1000, per: 1h } }\n");
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, key) = bob.key("bob's");
    let path = format!("/settings/keys/{key}/policy");
    let submit = |by: &SessionUser<'_>, body: &str| {
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let fields = [("Cookie", by.cookie.as_str()), OWN, form];
        Client::connect(setup.address()).request("POST", &path, "", &fields, body.as_bytes()).status
    };
    assert!(ada.page(&path).contains("name=\"before-requests\" value=\"1000\""));
    assert!(!bob.page(&path).contains("before-requests"));
    assert_eq!(submit(&ada, "before-requests=1000&requests=1001"), 422);
    assert_eq!(submit(&ada, "before-requests=1000&requests=many"), 422);
    assert_eq!(submit(&ada, "before-requests=1000&requests=100"), 303);
    let limits = ada.get(&format!("/keys/{key}")).json()["limits"].clone();
    assert_eq!((&limits["requests"], &limits["burst"], &limits["per"]), (&json!(100), &json!(100), &json!("1h")));
    assert_eq!(submit(&bob, "before-requests=100&requests=1"), 403);
}

/// The forms of the page work without a script, and show the errors of what was entered.
#[test]
fn page_adds_invites_permits_and_removes_people() {
    let setup = managed();
    let ada = setup.user("ada@example.com", &["org:admin", "queries:read"]);
    let post = |path: &str, body: &str| {
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let fields = [("Cookie", ada.cookie.as_str()), OWN, form];
        Client::connect(setup.address()).request(
            "POST",
            &format!("/settings/users/{path}"),
            "",
            &fields,
            body.as_bytes(),
        )
    };
    assert!(ada.page("/settings/users").contains("/settings/users/new\""));
    assert!(ada.page("/settings/users/new").contains("value=\"queries:read\""));
    let wrong = post("new", "email=eve&permission=queries%3Aread");
    assert_eq!(wrong.status, 422);
    assert!(String::from_utf8_lossy(&wrong.body).contains("aria-invalid=\"true\""), "{wrong:?}");
    let added = post("new", "email=eve%40example.com&permission=queries%3Aread");
    assert_eq!(added.status, 303, "{added:?}");
    let page = added.header("location").unwrap().split('?').next().unwrap().to_owned();
    let eve = page.rsplit('/').next().unwrap();
    assert!(ada.page("/settings/users").contains(&format!("/users/{eve}\"")));
    let shown = post(&format!("{eve}/link"), "");
    let text = String::from_utf8(shown.body.clone()).unwrap();
    assert!(shown.header("cache-control").unwrap().contains("no-store"), "{shown:?}");
    assert!(text.contains("http://127.0.0.1:8080/settings/link/"), "{text}");
    assert!(!ada.page(&page).contains("/settings/link/"), "shown once");
    assert_eq!(post(&format!("{eve}/permissions"), "permission=org%3Aadmin").status, 303);
    assert_eq!(ada.get(&format!("/orgs/{}/users/{eve}", setup.org)).json()["permissions"], json!(["org:admin"]));
    assert_eq!(post(&format!("{eve}/permissions"), "permission=billing%3Apay").status, 403);
    assert_eq!(post(&format!("{eve}/remove"), "").status, 422, "the box is not ticked");
    assert_eq!(post(&format!("{eve}/remove"), "sure=yes").status, 303);
    assert_eq!(ada.get(&format!("/orgs/{}/users/{eve}", setup.org)).code(), "no_such_user");
    let foreign = [("Cookie", ada.cookie.as_str()), ("Origin", "https://evil.example")];
    let refused = Client::connect(setup.address()).request("POST", "/settings/users/new", "", &foreign, b"");
    assert_eq!(refused.status, 403);
    let unmanaged = Setup::new();
    assert!(!unmanaged.admin().page("/settings/users").contains("/settings/users/new\""));
}
