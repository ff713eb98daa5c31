//! Use of the pages with the keyboard alone.

use fantoccini::key::Key;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway};

/// More than the elements of any page that can have the focus.
const MOST: usize = 200;

#[test]
fn pages_can_be_used_with_the_keyboard_alone() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    browser.go(&gateway.page("/keys/new"));
    browser.keys("By keyboard");
    browser.leave_by_keys(Key::Enter);
    let (key, id) = gateway.new_key(&browser);
    assert_eq!(gateway.list_with(&key).status, 200);
    a_restricted_key_is_created(&gateway, &browser);
    let [policy, revoke] = ["policy", "revoke"].map(|form| format!("/keys/{id}/{form}"));
    let selected = format!("/keys/selected?action=revoke&key={id}");
    let key_page = format!("/keys/{id}");
    let token = a_token_is_created(&gateway, &browser);
    let token_form = format!("/tokens/{token}/revoke");
    for page in [
        "/keys",
        "/keys/new",
        &key_page,
        &policy,
        &revoke,
        &selected,
        "/audit",
        "/sessions",
        "/tokens",
        "/tokens/new",
        &token_form,
    ] {
        browser.go(&gateway.page(page));
        assert_eq!(unreached(&browser), Vec::<String>::new(), "{page}");
    }

    browser.go(&gateway.page("/keys"));
    browser.keys(&char::from(Key::Tab).to_string());
    assert_eq!(browser.script("return document.activeElement.textContent"), "Skip to content");
    assert!(browser.is_shown(".skip"), "the link is visible when it has the focus");
    browser.keys(&char::from(Key::Enter).to_string());
    assert_eq!(browser.script("return document.activeElement.id"), "main");
    gateway.end(&browser);
}

/// Unfolds the rest of the form, unticks the first permission, and chooses an expiry, all by keys.
fn a_restricted_key_is_created(gateway: &Gateway, browser: &Browser) {
    let focus = |css: &str| focus(browser, css);
    browser.go(&gateway.page("/keys/new"));
    browser.keys("Restricted");
    focus(".rest summary");
    browser.keys(&char::from(Key::Enter).to_string());
    focus("[name=permission]");
    browser.keys(" ");
    focus("#expiry");
    browser.keys(&char::from(Key::Down).to_string().repeat(2));
    focus("#concurrent");
    browser.keys("7");
    browser.leave_by_keys(Key::Enter);
    let (_, id) = gateway.new_key(browser);
    let shown = gateway.keygate(&["key", "show", &id, "--json"]);
    let policy = &serde_json::from_str::<serde_json::Value>(&shown).unwrap()["policy"];
    assert_eq!(policy["concurrent"], 7, "{policy}");
    assert!(policy["expires"].is_string() && policy["permissions"].is_array(), "{policy}");

    browser.go(&gateway.page("/keys"));
    focus("[name=key]");
    browser.keys(" ");
    focus("[name=action][value=disable]");
    browser.leave_by_keys(Key::Enter);
    assert_eq!(browser.heading(), "Disable 1 key?");
    focus("main button");
    browser.leave_by_keys(Key::Enter);
    assert!(browser.text(".notice").contains("The selected keys are disabled"));
}

/// Creates a management token by keys; returns its id.
fn a_token_is_created(gateway: &Gateway, browser: &Browser) -> String {
    browser.go(&gateway.page("/tokens/new"));
    browser.keys("By keyboard");
    focus(browser, "[name=scope][value='keys:create']");
    browser.keys(" ");
    focus(browser, "#expiry");
    browser.keys(&char::from(Key::Up).to_string());
    focus(browser, "main button");
    browser.leave_by_keys(Key::Enter);
    let id = gateway.new_token(browser);
    let listed = gateway.keygate(&["token", "list", "--json"]);
    let token = &serde_json::from_str::<serde_json::Value>(&listed).unwrap()["items"][0];
    assert_eq!((&token["id"], &token["allow"]), (&id.as_str().into(), &serde_json::json!(["keys:create"])));
    id
}

/// Presses the tab key until an element has the focus.
pub fn focus(browser: &Browser, css: &str) {
    for _ in 0..MOST {
        if browser.script(&format!("return document.activeElement.matches({css:?})")) == true {
            return;
        }
        browser.keys(&char::from(Key::Tab).to_string());
    }
    panic!("the tab key does not reach {css}");
}

/// Elements that the tab key does not reach, or that show no focus outline.
fn unreached(browser: &Browser) -> Vec<String> {
    // Some pages focus a field; the elements before it follow after the last one.
    for _ in 0..MOST {
        browser.keys(&char::from(Key::Tab).to_string());
        let again = browser.script(
            "const at = document.activeElement, outline = getComputedStyle(at);
             if (at === document.body) return false;
             // A field for a date has several parts.
             const isPart = at === window.before;
             window.before = at;
             if (at.dataset.reached) return !isPart;
             const isOutlined = outline.outlineStyle !== 'none' && outline.outlineWidth !== '0px';
             at.dataset.reached = isOutlined ? 'seen' : 'unseen';",
        );
        if again == true {
            break;
        }
    }
    let unreached = browser.script(
        "return [...document.querySelectorAll('a[href], button, input:not([type=hidden]), textarea, select, summary')]
           .filter((element) => element.checkVisibility() && element.dataset.reached !== 'seen')
           .map((element) => `${element.outerHTML.slice(0, 80)}: ${element.dataset.reached ?? 'unreached'}`)",
    );
    unreached.as_array().unwrap().iter().map(|element| element.as_str().unwrap().to_owned()).collect()
}
