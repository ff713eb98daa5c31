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
    for page in ["/keys", "/keys/new", &format!("/keys/{id}"), &format!("/keys/{id}/revoke"), "/audit", "/sessions"] {
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

/// Elements that the tab key does not reach, or that show no focus outline.
fn unreached(browser: &Browser) -> Vec<String> {
    // Some pages focus a field; the elements before it follow after the last one.
    for _ in 0..MOST {
        browser.keys(&char::from(Key::Tab).to_string());
        let again = browser.script(
            "const at = document.activeElement, outline = getComputedStyle(at);
             if (at === document.body) return false;
             if (at.dataset.reached) return true;
             const isOutlined = outline.outlineStyle !== 'none' && outline.outlineWidth !== '0px';
             at.dataset.reached = isOutlined ? 'seen' : 'unseen';",
        );
        if again == true {
            break;
        }
    }
    let unreached = browser.script(
        "return [...document.querySelectorAll('a[href], button, input, select, summary')]
           .filter((element) => element.checkVisibility() && element.dataset.reached !== 'seen')
           .map((element) => `${element.outerHTML.slice(0, 80)}: ${element.dataset.reached ?? 'unreached'}`)",
    );
    unreached.as_array().unwrap().iter().map(|element| element.as_str().unwrap().to_owned()).collect()
}
