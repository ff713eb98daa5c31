//! Life cycle of a key, in the browser and with curl.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{Gateway, paste};
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

    let third = rotate(&gateway, &browser, &id, "0s");
    assert!(browser.text("main").contains("The old secret no longer works"));
    assert_eq!([&first, &second, &third].map(|key| gateway.list_with(key).status), [401, 401, 200]);
    gateway.end(&browser);
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
