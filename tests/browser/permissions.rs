//! Permissions: members see and change their own keys and sessions, admins those of the organization.

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, MEMBER};

#[test]
fn members_see_their_own_keys_and_admins_all() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let (admins, admins_id) = gateway.make_key(&browser, "Of the admin");

    gateway.sign_in(&browser, MEMBER);
    let (members, members_id) = gateway.make_key(&browser, "Of the member");
    browser.go(&gateway.page("/keys"));
    assert_eq!(names(&browser), ["Of the member", "demo"], "the demo created a key of the member, too");
    assert!(browser.texts("td .owner").iter().all(|owner| owner.replace('\n', "") == MEMBER));
    another_s_key_is_not_there(&gateway, &browser, &admins_id);
    assert_eq!(gateway.list_with(&admins).status, 200, "the admin's key still works");

    browser.go(&gateway.page("/keys/new"));
    assert!(!browser.is_shown("#owner"), "a member creates keys for themselves");
    let (status, page) = browser.send_form("/settings/keys/new", &format!("name=Planted&owner={ADMIN}"));
    assert_eq!(status, 403, "{page}");

    gateway.sign_in(&browser, ADMIN);
    let mut all = names(&browser);
    all.sort();
    assert_eq!(
        all,
        ["Of the admin", "Of the member", "demo", "demo"],
        "an admin sees all keys, and no other was created"
    );
    assert_eq!(gateway.list_with(&members).status, 200);
    browser.go(&gateway.page(&format!("/keys/{members_id}")));
    browser.follow("Revoke");
    browser.fill("#name", "Of the member");
    browser.press("Revoke this key");
    assert_eq!(gateway.list_with(&members).status, 401);
    an_admin_makes_a_key_for_a_member(&gateway, &browser);
    gateway.end(&browser);
}

#[test]
fn session_ended_by_an_admin_is_refused_at_once() {
    let (gateway, member, admin) = (Gateway::demo(), Browser::start(), Browser::start());
    gateway.sign_in(&member, MEMBER);
    member.go(&gateway.page("/sessions"));
    assert_eq!(member.texts("table .who").len(), 0, "a member sees no list of users");
    assert_eq!(member.texts("tbody tr").len(), 1);
    gateway.sign_in(&admin, ADMIN);
    admin.go(&gateway.page("/sessions"));
    assert_eq!(admin.texts("tbody tr").len(), 2);
    admin.click_link_or_submit("tbody tr:nth-child(2) button");
    assert!(admin.text(".notice").contains("The session is ended"));
    assert_eq!(member.fetch("/api/queries", &serde_json::json!({})).0, 401, "the API refuses it");
    member.reload();
    assert_eq!(member.heading(), "Sign in", "the pages refuse it, too");
    gateway.end(&member);
}

/// Checks that the pages of another user's key are the same as those of a key that does not exist, and that its forms
/// change nothing.
fn another_s_key_is_not_there(gateway: &Gateway, browser: &Browser, id: &str) {
    let none: String = id.chars().rev().collect();
    for form in ["", "/revoke", "/rotate", "/policy"] {
        let [theirs, no_ones] = [id, &none].map(|id| {
            browser.go(&gateway.page(&format!("/keys/{id}{form}")));
            (browser.status(), browser.heading(), browser.text(".message .lead").replace(id, "ID"))
        });
        assert_eq!(theirs, no_ones);
        assert_eq!((theirs.0, theirs.1.as_str()), (404, "Not found"));
    }
    let selected = format!("action=revoke&key={id}&count=1");
    let (status, page) = browser.send_form("/settings/keys/selected", &selected);
    assert_eq!(status, 404, "{page}");
    let policy = "expiry=30d&networks=192.0.2.1";
    for (path, form) in
        [("revoke", "name=Of+the+admin"), ("rotate", "overlap=0s"), ("policy", policy), ("disable", ""), ("enable", "")]
    {
        let (status, page) = browser.send_form(&format!("/settings/keys/{id}/{path}"), form);
        assert_eq!(status, 404, "{path}: {page}");
    }
}

fn an_admin_makes_a_key_for_a_member(gateway: &Gateway, browser: &Browser) {
    browser.go(&gateway.page("/keys/new"));
    browser.fill("#name", "For the member");
    let script =
        format!("return [...document.querySelectorAll('#owner option')].find(o => o.text === '{MEMBER}').value");
    browser.choose("#owner", browser.script(&script).as_str().unwrap());
    browser.press("Create API Key");
    let (key, id) = gateway.new_key(browser);
    assert_eq!(gateway.list_with(&key).status, 200);
    browser.go(&gateway.page(&format!("/keys/{id}")));
    assert_eq!(browser.text("dl .owner"), MEMBER);
}

fn names(browser: &Browser) -> Vec<String> {
    browser.texts(".keys .name")
}
