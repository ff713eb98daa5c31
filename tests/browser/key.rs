//! Life cycle of a key, in the browser and with curl.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, MEMBER, paste};
use crate::support::lenient;

#[test]
fn key_is_created_used_monitored_and_revoked() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    browser.go(gateway.printed_link());
    assert_eq!(browser.heading(), "Sign in to demo");
    browser.press("Sign in as admin@demo.example to demo");
    assert_eq!((browser.heading(), browser.address()), ("API Keys".into(), gateway.page("/keys")));

    let (key, id) = gateway.make_key(&browser, "Nightly report");
    assert!(browser.text("main").contains("It will not be shown again"));
    assert!(copied(&gateway, &browser) == key, "the button puts the key on the clipboard");
    let line = browser.text("#curl");
    let used = paste(&line);
    assert_eq!(used.status, 200, "{used:?}");
    assert!(used.text.contains("\"items\""), "{used:?}");
    last_use_is_shown(&gateway, &browser, Instant::now());
    let options = json!({ "headers": { "Authorization": format!("Bearer {key}") } });
    let (_, answer) = browser.fetch("/api/queries?note=`a`|{}^", &options);
    assert!(answer.contains("unknown parameter `note`"), "Chromium's characters reach the upstream: {answer}");

    for page in [format!("/keys/{id}"), "/keys".into(), format!("/keys/{id}/rotate"), format!("/keys/{id}/revoke")] {
        browser.go(&gateway.page(&page));
        browser.reload();
        assert!(!browser.source().contains(&key), "{page} shows the key again");
    }
    assert_eq!(browser.heading(), "Revoke Nightly report?");
    browser.fill("#name", "Nightly reports");
    browser.press("Revoke this key");
    assert_eq!((browser.status(), browser.heading()), (422, "Revoke Nightly report?".into()));
    assert!(browser.text("#name-error").contains("This is not the key's name"));
    assert_eq!(paste(&line).status, 200, "a wrong name revokes nothing");
    browser.fill("#name", "Nightly report");
    browser.press("Revoke this key");
    assert_eq!(paste(&line).status, 401, "it is revoked at once");
    assert!(browser.text(".notice").contains("The key is revoked"));
    assert_eq!(browser.text(".badge"), "Revoked");
    gateway.end(&browser);
}

#[test]
fn unused_key_is_revoked_from_its_row_without_typing_its_name() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    browser.go(gateway.printed_link());
    browser.click_link_or_submit("main button");
    let (key, _) = gateway.make_key(&browser, "Forgotten");
    let page = browser.text("main");
    for line in ["one key for each application and environment", "version control", "vault", "Last Used"] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(browser.text("#exports").starts_with(&format!("export KEYGATE_API_KEY='{key}'\nexport KEYGATE_API_URL=")));
    browser.go(&gateway.page("/keys"));
    browser.click(".menu summary");
    browser.follow("Revoke Forgotten");
    assert_eq!(browser.heading(), "Revoke Forgotten?");
    assert!(!browser.is_shown("#name"), "the name is asked for only when the key is in use");
    browser.press("Revoke this key");
    assert!(browser.text(".notice").contains("The key is revoked"));
    assert_eq!(gateway.list_with(&key).status, 401);
    browser.go(&gateway.page("/keys"));
    assert!(!browser.source().contains("Revoke<span class=\"visually-hidden\"> Forgotten"), "it is offered no more");
    gateway.end(&browser);
}

#[test]
fn rotated_key_keeps_its_old_secret_for_the_overlap_only() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    browser.go(gateway.printed_link());
    browser.click_link_or_submit("main button");
    let (first, id) = gateway.make_key(&browser, "Billing");
    let second = rotate(&gateway, &browser, &id, "1h");
    assert!(browser.text("main").contains("The old secret works until"));
    assert!(first != second, "the secret is another one");
    assert_eq!([&first, &second].map(|key| gateway.list_with(key).status), [200, 200]);

    browser.go(&gateway.page(&format!("/keys/{id}/rotate")));
    browser.choose("#overlap", "0s");
    browser.fill("#name", "Billing");
    browser.press("Rotate");
    let (third, _) = gateway.new_key(&browser);
    assert!(browser.text("main").contains("The old secret no longer works"));
    assert_eq!([&first, &second, &third].map(|key| gateway.list_with(key).status), [401, 401, 200]);
    gateway.end(&browser);
}

/// The attack: a reload of the page that shows a new secret. Without a redirect the browser sends the form again, which
/// ends the secret that programs use in spite of the overlap.
#[test]
fn reload_after_a_creation_or_a_rotation_repeats_nothing() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let (first, id) = gateway.make_key(&browser, "Billing");
    assert_eq!(browser.address(), gateway.page(&format!("/keys/{id}/new")));
    key_is_shown_no_more(&gateway, &browser, &id, &first);
    browser.go(&gateway.page("/keys"));
    let names = browser.texts("tbody th a");
    assert_eq!(names.iter().filter(|name| *name == "Billing").count(), 1, "{names:?}");

    assert_eq!(gateway.list_with(&first).status, 200);
    browser.go(&gateway.page(&format!("/keys/{id}/rotate")));
    assert_eq!(browser.script("return document.getElementById('overlap').value"), json!("24h"), "the key is in use");
    browser.press("Rotate");
    let (second, _) = gateway.new_key(&browser);
    assert!(browser.text("main").contains("The old secret works until"));
    let rotated = gateway.keygate(&["key", "show", &id, "--json"]);
    key_is_shown_no_more(&gateway, &browser, &id, &second);
    assert_eq!([&first, &second].map(|key| gateway.list_with(key).status), [200, 200], "nothing was rotated again");
    let rotations = |shown: &str| serde_json::from_str::<serde_json::Value>(shown).unwrap()["rotated"].clone();
    assert_eq!(rotations(&rotated), rotations(&gateway.keygate(&["key", "show", &id, "--json"])));
    gateway.end(&browser);
}

#[test]
fn double_click_sends_a_form_once() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let (_, id) = gateway.make_key(&browser, "Billing");
    browser.go(&gateway.page(&format!("/keys/{id}/rotate")));
    browser.script("const form = document.querySelector('main form'); form.requestSubmit(); form.requestSubmit();");
    let (second, _) = gateway.new_key(&browser);
    assert_eq!(gateway.list_with(&second).status, 200, "the new key is shown, and not that it was rotated meanwhile");
    gateway.end(&browser);
}

#[test]
fn rotation_by_a_form_from_before_another_rotation_changes_nothing() {
    let (gateway, member, admin) = (Gateway::demo(), Browser::start(), Browser::start());
    gateway.sign_in(&member, MEMBER);
    let (first, id) = gateway.make_key(&member, "Billing");
    member.go(&gateway.page(&format!("/keys/{id}/rotate")));
    gateway.sign_in(&admin, ADMIN);
    let second = rotate(&gateway, &admin, &id, "7d");
    member.choose("#overlap", "0s");
    member.press("Rotate");
    assert_eq!((member.status(), member.heading()), (409, "The key was rotated meanwhile".into()));
    let page = member.text("main");
    assert!(page.contains(&format!("was rotated meanwhile by {ADMIN} at 20")), "{page}");
    assert_eq!([&first, &second].map(|key| gateway.list_with(key).status), [200, 200], "both secrets go on");
    gateway.end(&member);
}

#[test]
fn rotation_that_ends_requests_of_a_key_in_use_is_confirmed_by_its_name() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let (first, id) = gateway.make_key(&browser, "Billing");
    let form = gateway.page(&format!("/keys/{id}/rotate"));
    browser.go(&form);
    assert_eq!(browser.script("return document.getElementById('overlap').value"), json!("0s"), "it was never used");
    assert_eq!(gateway.list_with(&first).status, 200);
    // The form was shown before the key came into use.
    browser.press("Rotate");
    assert_eq!((browser.status(), browser.heading()), (422, "Rotate Billing".into()));
    assert!(browser.text("#name-error").contains("The key is in use. Type its name to confirm."));
    assert_eq!(gateway.list_with(&first).status, 200, "nothing was rotated");
    browser.choose("#overlap", "1h");
    browser.press("Rotate");
    let (second, _) = gateway.new_key(&browser);

    // With the first secret still valid, also a rotation with an overlap ends requests.
    browser.go(&form);
    assert!(browser.text("form.card").contains("it stops at once, whatever you choose below"));
    browser.choose("#overlap", "7d");
    browser.fill("#name", "Bills");
    browser.press("Rotate");
    assert_eq!(browser.status(), 422);
    assert!(browser.text("#name-error").contains("This is not the key's name"));
    assert_eq!([&first, &second].map(|key| gateway.list_with(key).status), [200, 200]);
    browser.fill("#name", "Billing");
    browser.press("Rotate");
    let (third, _) = gateway.new_key(&browser);
    assert_eq!([&first, &second, &third].map(|key| gateway.list_with(key).status), [401, 200, 200]);
    gateway.end(&browser);
}

/// Reloads the page that shows a key: the browser is led to the page of the key, which does not show it.
fn key_is_shown_no_more(gateway: &Gateway, browser: &Browser, id: &str, key: &str) {
    browser.reload();
    assert_eq!(browser.address(), gateway.page(&format!("/keys/{id}?done=shown")));
    assert!(browser.text(".notice").contains("shown on one page, once"));
    assert!(!browser.source().contains(key));
    browser.go(&gateway.page(&format!("/keys/{id}/new")));
    assert!(!browser.source().contains(key), "no page shows it again");
}

fn rotate(gateway: &Gateway, browser: &Browser, id: &str, overlap: &str) -> String {
    browser.go(&gateway.page(&format!("/keys/{id}")));
    browser.follow("Rotate");
    browser.choose("#overlap", overlap);
    browser.press("Rotate");
    let (key, same) = gateway.new_key(browser);
    assert_eq!(same, id, "a rotated key keeps its id");
    key
}

/// The clipboard after the copy button of the key was pressed.
fn copied(gateway: &Gateway, browser: &Browser) -> String {
    let permissions = json!(["clipboardReadWrite", "clipboardSanitizedWrite"]);
    browser.devtools("Browser.grantPermissions", json!({ "origin": gateway.origin, "permissions": permissions }));
    browser.devtools("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
    browser.click("button[data-copy=api-key]");
    let deadline = Instant::now() + Duration::from_secs(60);
    while browser.text("button[data-copy=api-key]") != "Copied" {
        assert!(Instant::now() < deadline, "the button does not confirm the copy");
    }
    let read = "navigator.clipboard.readText().then(done, (error) => done(String(error)));";
    browser.script_until_done(read).as_str().unwrap().to_owned()
}

/// Checks that every page that is opened a second after the use, or later, shows the use.
fn last_use_is_shown(gateway: &Gateway, browser: &Browser, used: Instant) {
    loop {
        let after = used.elapsed();
        browser.go(&gateway.page("/keys"));
        let shown = browser.texts("td.used");
        let newest = &shown[0];
        if ["127.0.0.1", "curl/"].iter().all(|part| newest.contains(part)) {
            let is_now = newest.starts_with("now") || newest.contains("second");
            assert!(is_now, "{newest}");
            return;
        }
        assert!(after < lenient(Duration::from_secs(1)), "{after:?} after the use, the table shows {newest:?}");
    }
}
