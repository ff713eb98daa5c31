//! Pages without JavaScript: everything works except the copy button.

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{Gateway, paste};

#[test]
fn pages_work_without_javascript() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.go(gateway.printed_link());
    browser.click_link_or_submit("main button");
    let (_, id) = gateway.make_key(&browser, "Without a script");
    assert!(!browser.is_shown("button[data-copy]"), "the copy button is hidden");
    let line = browser.text("#curl");
    assert_eq!(paste(&line).status, 200);

    browser.follow("I have saved it");
    let created = browser.text("time");
    assert!(created == "just now" || created.contains("ago"), "times are shown as texts: {created}");
    browser.choose("#show", "refused");
    browser.press("Filter");
    assert_eq!(browser.text(".requests .empty"), "No request matches.");
    browser.follow("Clear");
    assert_eq!(browser.texts(".use tbody tr").len(), 1);

    browser.follow("Revoke");
    browser.fill("#name", "Without a script");
    browser.press("Revoke this key");
    assert!(browser.address().contains(&id));
    assert_eq!(paste(&line).status, 401);
    let token = gateway.make_token(&browser, "Without a script");
    browser.follow("I have saved it");
    browser.click_link_or_submit(".tokens .do a");
    assert!(browser.address().contains(&token));
    browser.press("Revoke this token");
    assert!(browser.text(".notice").contains("The token is revoked"));
    browser.press("Sign out");
    assert_eq!(browser.heading(), "You are signed out");
    browser.go(&gateway.page("/keys"));
    assert_eq!(browser.heading(), "Sign in");
    gateway.end(&browser);
}
