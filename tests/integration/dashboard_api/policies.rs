//! Policies of keys: in the API, and in the forms of the pages.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{AGENT, OWN, SessionUser, Setup};
use crate::support::gateway::OPERATOR;
use crate::support::{Client, Response};
use control::management;
use domain::clock::Micros;
use journal::audit::Outcome;

const READ: &str = "queries:read";
const WRITE: &str = "queries:write";
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// Sends a form of a page.
fn submit(setup: &Setup, user: &SessionUser<'_>, path: &str, form: &str) -> Response {
    let fields = [("Cookie", user.cookie.as_str()), OWN, FORM, ("User-Agent", AGENT)];
    Client::connect(setup.address()).request("POST", &format!("/settings{path}"), "", &fields, form.as_bytes())
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

fn policy(user: &SessionUser<'_>, id: &str) -> Value {
    user.get(&format!("/keys/{id}")).json()["policy"].clone()
}

fn later(days: u64) -> String {
    Micros::wall().after(Duration::from_secs(days * 24 * 3600)).to_string()
}

#[test]
fn key_is_created_with_a_policy_and_changed_by_merge_patches() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.user("bob@example.com", &[READ, WRITE]));
    let narrow =
        json!({ "permissions": [READ], "networks": ["127.0.0.0/8"], "concurrent": 3, "tags": { "team": "x" } });
    let made = bob.post("/keys", json!({ "name": "laptop", "policy": narrow.clone() })).json();
    assert_eq!(made["policy"], narrow);
    let id = made["id"].as_str().unwrap();
    let key = made["key"].as_str().unwrap();
    let set = |user: &SessionUser<'_>, policy: Value| {
        user.send("PATCH", &format!("/keys/{id}"), Some(json!({ "policy": policy })))
    };
    let expires = later(30);
    assert_eq!(set(&bob, json!({ "expires": expires, "concurrent": 2 })).status, 200);
    let mut now = narrow;
    now["expires"] = json!(expires);
    now["concurrent"] = json!(2);
    assert_eq!(policy(&bob, id), now, "what is absent stays");

    for (wider, what) in [
        (json!({ "permissions": null }), "permissions"),
        (json!({ "permissions": [READ, WRITE] }), "a permission"),
        (json!({ "expires": null }), "expiry"),
        (json!({ "networks": [] }), "networks"),
        (json!({ "concurrent": 3 }), "slots"),
    ] {
        let refused = set(&bob, wider);
        assert_eq!((refused.status, refused.code().as_str()), (403, "policy_widened"), "{what}");
    }
    assert_eq!(policy(&bob, id), now, "nothing was changed");
    for invalid in [json!({ "permissions": ["org:admin"] }), json!({ "concurrent": 0 })] {
        let refused = set(&ada, invalid.clone());
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_policy"), "{invalid}");
    }
    for invalid in [json!({ "networks": ["10.0.0.1/8"] }), json!({ "disabled": null }), json!({ "permission": [] })] {
        let refused = set(&ada, invalid.clone());
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_body"), "{invalid}");
    }
    let empty = bob.send("PATCH", &format!("/keys/{id}"), Some(json!({ "owner": "other" })));
    assert_eq!((empty.status, empty.code().as_str()), (400, "invalid_body"));

    let all = json!({ "permissions": null, "expires": null, "networks": null, "concurrent": null, "tags": null });
    let cleared = set(&ada, all).json();
    assert!(cleared.get("policy").is_none(), "an admin may widen it: {cleared}");
    assert_eq!(Client::connect(setup.address()).get("/", key).status, 200);
}

#[test]
fn key_that_the_operator_disabled_is_enabled_by_no_person() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (key, id) = bob.key("laptop");
    let send = |user: &SessionUser<'_>, what: &str| user.send("POST", &format!("/keys/{id}/{what}"), None);
    assert_eq!(send(&bob, "disable").json()["policy"]["disabled"]["by"], "person");
    assert_eq!(send(&bob, "enable").json()["status"], "active");
    let key_id = id.parse().unwrap();
    setup.gateway.perform(async |to, now| management::disable_key(to, OPERATOR, key_id, false, now).await);
    for user in [&ada, &bob] {
        let refused = send(user, "enable");
        assert_eq!((refused.status, refused.code().as_str()), (403, "disabled_by_operator"));
        let page = user.page(&format!("/settings/keys/{id}"));
        assert!(page.contains("Only the operator of this service can enable it") && !page.contains("/enable\""));
    }
    assert_eq!(Client::connect(setup.address()).get("/", &key).status, 401);
}

#[test]
fn form_creates_a_restricted_key_and_keeps_what_was_entered() {
    let setup = Setup::new();
    let bob = setup.user("bob@example.com", &[READ, WRITE]);
    let permissions = format!("shown={READ}&permission={READ}&shown={WRITE}");
    let wrong = format!("name=laptop&{permissions}&expiry=90d&networks=10.0.0.1%2F8%0D%0A&concurrent=x");
    let refused = submit(&setup, &bob, "/keys/new", &wrong);
    let page = text(&refused);
    assert_eq!(refused.status, 422);
    for kept in ["value=\"laptop\"", "10.0.0.1/8</textarea>", "value=\"x\"", "<option value=\"90d\" selected>"] {
        assert!(page.contains(kept), "{kept}: {page}");
    }
    assert!(page.contains("write 10.0.0.0/8 for the network") && page.contains("Enter a whole number of at least 1."));
    assert!(page.contains(&format!("name=\"permission\" value=\"{WRITE}\"> ")), "it is not ticked again: {page}");
    assert_eq!(bob.get("/keys").json()["items"], json!([]), "no key was created");

    let right = format!("name=laptop&{permissions}&expiry=90d&networks=10.0.0.0%2F8%0D%0A%3A%3A1&concurrent=5");
    let led = submit(&setup, &bob, "/keys/new", &right);
    let id = led.header("location").unwrap().split('/').nth(3).unwrap().to_owned();
    let made = policy(&bob, &id);
    assert_eq!(made["permissions"], json!([READ]));
    assert_eq!((&made["networks"], &made["concurrent"]), (&json!(["10.0.0.0/8", "::1/128"]), &json!(5)));
    let expires: Micros = made["expires"].as_str().unwrap().parse().unwrap();
    let day = Duration::from_secs(24 * 3600);
    assert!(expires > Micros::wall().after(89 * day) && expires <= Micros::wall().after(90 * day));
    let name_alone = submit(&setup, &bob, "/keys/new", "name=plain");
    let id = name_alone.header("location").unwrap().split('/').nth(3).unwrap().to_owned();
    assert!(policy(&bob, &id).is_null(), "a name is enough");
}

/// An admin chooses among the permissions of all owners. Those that the owner does not have are named, and no key is
/// made with less than was ticked.
#[test]
fn admin_restricts_a_key_for_another_owner() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.user("bob@example.com", &[READ]));
    let page = ada.page("/settings/keys/new");
    assert!(page.contains(&format!("name=\"shown\" value=\"{READ}\"")), "{page}");
    let form = |owner: &str, ticked: &str| {
        format!("name=x&owner={owner}&shown={READ}&shown={WRITE}&shown=org:admin&shown=a{ticked}")
    };
    let beyond = format!("&permission={READ}&permission={WRITE}&permission=org:admin");
    for owner in [bob.user.to_string(), "BOB@example.com".to_owned()] {
        let refused = submit(&setup, &ada, "/keys/new", &form(&owner, &beyond));
        let page = text(&refused);
        assert_eq!(refused.status, 422, "{page}");
        assert!(page.contains(&format!("bob@example.com does not have {WRITE}, org:admin.")), "{page}");
        assert!(page.contains(&format!("name=\"permission\" value=\"{WRITE}\" checked")), "kept: {page}");
    }
    assert_eq!(bob.get("/keys").json()["items"], json!([]), "no key was made");
    let led = submit(&setup, &ada, "/keys/new", &form(&bob.user.to_string(), &format!("&permission={READ}")));
    let id = led.header("location").unwrap_or_else(|| panic!("{}", text(&led))).split('/').nth(3).unwrap().to_owned();
    assert_eq!(policy(&bob, &id)["permissions"], json!([READ]));
}

/// A field that a form does not have changes nothing.
#[test]
fn form_without_a_field_leaves_it() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (_, id) = ada.key("laptop");
    let set = json!({ "policy": { "networks": ["127.0.0.1/32"], "concurrent": 3 } });
    assert_eq!(ada.send("PATCH", &format!("/keys/{id}"), Some(set)).status, 200);
    let before = policy(&ada, &id);
    assert_eq!(submit(&setup, &ada, &format!("/keys/{id}/policy"), "expiry=keep").status, 303);
    assert_eq!(policy(&ada, &id), before);
}

/// A name that is as long as a secret is a name; a word that no key is named by reaches no address.
#[test]
fn key_is_found_by_a_long_name() {
    let setup = Setup::new();
    let ada = setup.admin();
    let name = "payments-worker-prod-eu-west-1-blue";
    let (key, id) = ada.key(name);
    let search =
        |text: &str| submit(&setup, &ada, "/keys", &format!("q={text}")).header("location").unwrap().to_owned();
    for found in [name, &name[..33], &name.to_uppercase(), &key] {
        let location = search(found);
        assert!(ada.page(&location).contains(&id), "{found} {location}");
    }
    let unknown = "another-system-0123456789abcdefghijk";
    for secret in [unknown, &key] {
        assert!(!search(secret).contains(secret), "{secret}");
    }
}

#[test]
fn key_is_renamed_and_tagged_on_its_page_and_found_by_its_tag() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, id) = bob.key("laptop");
    let path = format!("/keys/{id}/policy");
    let form = bob.page(&format!("/settings{path}"));
    assert!(form.contains("name=\"before-name\" value=\"laptop\""), "{form}");
    let name = |user: &SessionUser<'_>| user.get(&format!("/keys/{id}")).json()["name"].clone();
    let tags = |user: &SessionUser<'_>| policy(user, &id)["tags"].clone();
    let sent = "before=%7B%7D&before-name=laptop&expiry=keep&name=billing+job&tags=team%3Dbilling%0D%0A+stage+%3D+prod";
    assert_eq!(submit(&setup, &bob, &path, sent).status, 303);
    assert_eq!((name(&bob), tags(&bob)), (json!("billing job"), json!({ "team": "billing", "stage": "prod" })));
    // A form from before the change, in which a tag is removed and another added, and the name is as it was.
    let sent = "before=%7B%22tags%22%3A%7B%22team%22%3A%22billing%22%7D%7D&before-name=laptop&expiry=keep&name=laptop\
                &tags=cost%3D7";
    assert_eq!(submit(&setup, &ada, &path, sent).status, 303);
    assert_eq!((name(&bob), tags(&bob)), (json!("billing job"), json!({ "cost": "7", "stage": "prod" })));
    for (wrong, error) in [
        ("name=&tags=", "Enter a name of 1 to 100 characters"),
        ("name=a&tags=team", "Enter each tag as NAME=VALUE"),
        ("name=a&tags=%3Dbilling", "a tag is NAME=VALUE"),
    ] {
        let refused = submit(&setup, &bob, &path, &format!("before=%7B%7D&before-name=x&expiry=keep&{wrong}"));
        let page = text(&refused);
        assert!(refused.status == 422 && page.to_lowercase().contains(&error.to_lowercase()), "{wrong}: {page}");
    }
    assert_eq!(name(&bob), "billing job");
    let found = |text: &str| {
        let items = ada.get(&format!("/keys?search={text}")).json()["items"].clone();
        items.as_array().unwrap().iter().map(|key| key["name"].clone()).collect::<Vec<_>>()
    };
    bob.key("other");
    assert_eq!(
        (found("cost%3D7"), found("Stage%3DPROD"), found("team%3D").len()),
        (found("billing+job"), found("billing+job"), 0)
    );
    assert_eq!(found("billing+job"), ["billing job"]);
    let made = setup.changes().into_iter().filter(|record| record.outcome == Outcome::Completed);
    let actions: Vec<String> = made.filter(|record| record.key_id.is_some()).map(|record| record.action).collect();
    assert_eq!(actions, ["key.create", "key.update", "key.set", "key.create"], "a name and tags are one change");
}

/// Two people change different fields of a policy, both by forms from before.
#[test]
fn forms_change_the_fields_that_their_readers_changed() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.user("bob@example.com", &[READ, WRITE]));
    let (_, id) = bob.key("laptop");
    let path = format!("/keys/{id}/policy");
    assert!(bob.page(&format!("/settings{path}")).contains("name=\"before\" value=\"{}\""));
    let permissions = format!("before=%7B%7D&shown={READ}&permission={READ}&shown={WRITE}");
    let changed = submit(&setup, &bob, &path, &format!("{permissions}&expiry=keep&networks=&concurrent="));
    assert_eq!(changed.header("location"), Some(&*format!("/settings/keys/{id}?done=set")), "{}", text(&changed));
    let all = format!("{permissions}&permission={WRITE}");
    let changed = submit(&setup, &ada, &path, &format!("{all}&expiry=keep&networks=127.0.0.1&concurrent="));
    assert_eq!(changed.status, 303, "{}", text(&changed));
    let both = json!({ "permissions": [READ], "networks": ["127.0.0.1/32"] });
    assert_eq!(policy(&bob, &id), both);

    let before = "before=%7B%22networks%22%3A%5B%22127.0.0.1%2F32%22%5D%7D";
    let wider = submit(&setup, &bob, &path, &format!("{before}&expiry=keep&networks=&concurrent="));
    assert_eq!(wider.status, 422);
    assert!(text(&wider).contains("You may narrow key"), "{}", text(&wider));
    assert_eq!(policy(&bob, &id), both);
    let key = bob.page(&format!("/settings/keys/{id}"));
    assert!(key.contains("127.0.0.1/32") && !key.contains(&format!("<code class=\"tag mono\">{WRITE}")), "{key}");
    let verdict = &bob.get(&format!("/keys/{id}/explain")).json()["verdict"];
    assert!(!verdict.as_str().unwrap().is_empty());
}

#[test]
fn selected_keys_are_changed_together_and_each_is_in_the_audit() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let keys: Vec<(String, String)> = (0..3).map(|number| bob.key(&format!("key {number}"))).collect();
    let query = |ids: &[&str]| ids.iter().map(|id| format!("key={id}")).collect::<Vec<_>>().join("&");
    let ids: Vec<&str> = keys.iter().map(|(_, id)| id.as_str()).collect();
    let page = bob.page(&format!("/settings/keys/selected?action=disable&{}", query(&ids)));
    assert!(page.contains("Disable 3 keys?") && (0..3).all(|number| page.contains(&format!("key {number}"))), "{page}");
    let before = setup.changes().len();
    let done = submit(&setup, &bob, "/keys/selected", &format!("action=disable&{}&key={}", query(&ids), ids[0]));
    assert_eq!(done.header("location"), Some("/settings/keys?done=disabled-selected"), "{}", text(&done));
    let changes = setup.changes();
    let changed: Vec<String> = changes[before..].iter().map(|record| record.key_id.unwrap().to_string()).collect();
    assert_eq!(changed, ids, "a record for each, and one only");
    assert!(changes[before..].iter().all(|record| record.action == "key.disable"));
    let mut client = Client::connect(setup.address());
    assert!(keys.iter().all(|(key, _)| client.get("/", key).status == 401));

    // One of them is revoked after the page was shown.
    ada.send("POST", &format!("/keys/{}/revoke", ids[1]), None);
    let partly = submit(&setup, &ada, "/keys/selected", &format!("action=disable&{}", query(&ids)));
    assert_eq!(partly.status, 200);
    let page = text(&partly);
    assert!(page.contains("1 key not disabled") && page.contains("2 keys disabled"), "{page}");
    assert!(page.contains(&format!("Key {} is revoked, for good; create another.", ids[1])), "{page}");
    let failed = submit(&setup, &ada, "/keys/selected", &format!("action=disable&key={}", ids[1]));
    assert_eq!(failed.status, 409);

    let (_, of_ada) = ada.key("another");
    let hidden = submit(&setup, &bob, "/keys/selected", &format!("action=revoke&{}", query(&[ids[2], &of_ada])));
    assert_eq!(hidden.status, 404);
    assert_eq!(bob.get(&format!("/keys/{}", ids[2])).json()["status"], "disabled", "nothing was changed");
    let many = vec![ids[2]; 26];
    for ids in [&many[..], &[]] {
        let refused = submit(&setup, &bob, "/keys/selected", &format!("action=revoke&{}", query(ids)));
        assert_eq!(refused.status, 422, "{}", ids.len());
    }
}

/// One click is not enough for a change by which a program would fail for good.
#[test]
fn revocation_of_selected_keys_in_use_is_confirmed_by_their_number() {
    let setup = Setup::new();
    let bob = setup.member();
    let ((first, id), (_, other)) = (bob.key("first"), bob.key("second"));
    let mut client = Client::connect(setup.address());
    let form = format!("action=revoke&key={id}&key={other}");
    assert!(!bob.page(&format!("/settings/keys/selected?{form}")).contains("name=\"count\""));
    assert_eq!(client.get("/", &first).status, 200);
    assert!(bob.page(&format!("/settings/keys/selected?{form}")).contains("name=\"count\""));
    for wrong in ["", "&count=3"] {
        let refused = submit(&setup, &bob, "/keys/selected", &format!("{form}{wrong}"));
        assert_eq!(refused.status, 422);
        assert!(text(&refused).contains("Keys in use are among these. Type 2 to confirm."));
    }
    assert_eq!(client.get("/", &first).status, 200);
    let done = submit(&setup, &bob, "/keys/selected", &format!("{form}&count=2"));
    assert_eq!(done.header("location"), Some("/settings/keys?done=revoked-selected"));
    assert_eq!(client.get("/", &first).status, 401);
}

#[test]
fn list_is_filtered_by_state_and_shows_the_expiry() {
    let setup = Setup::new();
    let bob = setup.member();
    let with = |name: &str, policy: Value| {
        let made = bob.post("/keys", json!({ "name": name, "policy": policy })).json();
        made["id"].as_str().unwrap().to_owned()
    };
    let (soon, late) = (with("soon", json!({ "expires": later(6) })), with("late", json!({ "expires": later(8) })));
    let over = with("over", json!({ "expires": "2020-01-01T00:00:00.000000Z" }));
    let (disabled, revoked) = (bob.key("disabled").1, bob.key("revoked").1);
    bob.send("POST", &format!("/keys/{disabled}/disable"), None);
    bob.send("POST", &format!("/keys/{revoked}/revoke"), None);
    let all = [&soon, &late, &over, &disabled, &revoked];
    for (state, expected) in [
        ("active", vec![&soon, &late]),
        ("expiring", vec![&soon]),
        ("expired", vec![&over]),
        ("disabled", vec![&disabled]),
        ("revoked", vec![&revoked]),
        ("unused", vec![]),
    ] {
        let page = bob.page(&format!("/settings/keys?state={state}"));
        assert!(page.contains(&format!("<option value=\"{state}\" selected>")), "{state}");
        let listed = all.into_iter().filter(|id| page.contains(&format!("href=\"/settings/keys/{id}\"")));
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{state}");
    }
    let page = bob.page("/settings/keys");
    assert!(page.contains("class=\"soon\">Expires <time") && page.contains("Expired <time"), "{page}");
    assert!(bob.page(&format!("/settings/keys/{soon}")).contains("Expires within 7 days"));
    assert!(!bob.page(&format!("/settings/keys/{late}")).contains("Expires within 7 days"));
}
