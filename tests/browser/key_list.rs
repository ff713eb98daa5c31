//! The list of keys: its height, its order, the menus of its rows, and the selection, with and without a script.

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, MEMBER};
use crate::keyboard::focus;
use crate::page_checks::PageChecks;

/// Keys of a full page.
const PAGE: usize = 25;

/// Creates keys until the list has a second page.
fn fill_a_page(gateway: &Gateway) {
    for number in 0..PAGE {
        let name = format!("Service {number:02} of a department with a rather long name");
        gateway.keygate(&["key", "create", "--org", "demo", "--user", MEMBER, &name]);
    }
}

fn names(browser: &Browser) -> Vec<String> {
    browser.texts(".keys tbody .name")
}

/// The number of selected keys as the bar says it: to a person who sees it, and to a screen reader.
fn selected(browser: &Browser) -> String {
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({}));
    let name = |node: &Value| node["name"]["value"].as_str().unwrap_or_default().to_owned();
    let texts = tree["nodes"].as_array().unwrap().iter().filter(|node| node["role"]["value"] == "StaticText");
    let texts: Vec<String> = texts.map(name).collect();
    let bar = texts.iter().position(|text| text == " selected").expect("the bar says how many keys are selected");
    format!("{}{}", texts[bar - 1], texts[bar])
}

#[test]
fn full_page_is_a_table_down_to_600_pixels_and_cards_of_two_lines_below() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    fill_a_page(&gateway);
    let mut checks = PageChecks::new(&browser);
    checks.open("full list", &gateway.page("/keys"), 200);
    for (width, most) in [(1280, 2_200), (768, 2_350), (600, 2_350), (390, 2_700)] {
        browser.view(width, "light");
        assert_eq!(browser.script("return document.querySelectorAll('.keys tbody tr').length"), PAGE);
        let height = browser.script("return document.documentElement.scrollHeight").as_u64().unwrap();
        assert!(height <= most, "{height} pixels at {width}");
        let display = browser.script("return getComputedStyle(document.querySelector('.keys tbody tr')).display");
        assert_eq!(display, if width < 600 { "grid" } else { "table-row" }, "{width}");
        let wide = browser.script("return document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= width, "{wide} pixels wide at {width}");
    }
    checks.open("sorted list", &gateway.page("/keys?sort=name"), 200);
    checks.open("selected list", &gateway.page("/keys?selected=all"), 200);
    checks.end(3);
    gateway.end(&browser);
}

#[test]
fn name_is_cut_only_where_its_column_is_full() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    for name in ["Nightly warehouse snapshots", &"long ".repeat(19)] {
        gateway.keygate(&["key", "create", "--org", "demo", "--user", MEMBER, name]);
    }
    browser.go(&gateway.page("/keys"));
    browser.view(1280, "light");
    let cut = browser.script(
        "return [...document.querySelectorAll('.keys .name')].map((name) => name.scrollWidth > name.clientWidth)",
    );
    assert_eq!(cut.as_array().unwrap()[..2], [json!(true), json!(false)], "{cut}");
    gateway.end(&browser);
}

#[test]
fn menu_of_a_row_is_used_by_keys_alone() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let (_, id) = gateway.make_key(&browser, "By keyboard");
    let press = |key: Key| browser.keys(&char::from(key).to_string());
    let open = || browser.script("return document.querySelectorAll('.menu[open]').length");

    browser.go(&gateway.page("/keys"));
    focus(&browser, ".menu summary");
    press(Key::Enter);
    assert_eq!(open(), 1);
    press(Key::Escape);
    assert_eq!(open(), 0, "Escape closes it");
    assert_eq!(browser.script("return document.activeElement.matches('.menu summary')"), true);
    press(Key::Enter);
    let items = browser.texts(".menu[open] li");
    assert_eq!(items, ["Rotate", "Change", "Disable", "Revoke"].map(|item| format!("{item}\nBy keyboard")));
    focus(&browser, ".menu[open] button");
    browser.leave_by_keys(Key::Enter);
    assert_eq!(state(&gateway, &id), "disabled");

    browser.go(&gateway.page("/keys"));
    focus(&browser, ".menu summary");
    press(Key::Enter);
    focus(&browser, ".menu[open] button");
    browser.leave_by_keys(Key::Enter);
    assert_eq!(state(&gateway, &id), "active", "the menu of a disabled key enables it");
    for (place, form) in [(1, "rotate"), (2, "policy"), (4, "revoke")] {
        browser.go(&gateway.page("/keys"));
        focus(&browser, ".menu summary");
        press(Key::Enter);
        focus(&browser, &format!(".menu[open] li:nth-child({place}) a"));
        browser.leave_by_keys(Key::Enter);
        assert_eq!(browser.address(), gateway.page(&format!("/keys/{id}/{form}")));
    }
    gateway.end(&browser);
}

#[test]
fn list_is_sorted_selected_and_changed_without_a_script() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.view(1280, "light");
    gateway.sign_in(&browser, ADMIN);
    for name in ["beta", "Alpha", "gamma"] {
        gateway.keygate(&["key", "create", "--org", "demo", "--user", MEMBER, name]);
    }
    let demo = gateway.demo_key();
    gateway.list_with(&demo);
    browser.go(&gateway.page("/keys"));
    let newest = names(&browser);
    let count = newest.len();
    assert_eq!(newest[..3], ["gamma", "Alpha", "beta"]);
    assert_eq!(browser.text("#count"), format!("{count} keys, newest first"));
    browser.follow("Name");
    let mut by_name = newest.clone();
    by_name.sort_by_key(|name| name.to_lowercase());
    assert_eq!(names(&browser), by_name);
    assert_eq!(browser.texts("[aria-sort=ascending]"), ["Name"]);
    browser.follow("Name");
    by_name.reverse();
    assert_eq!(names(&browser), by_name);
    browser.follow("Last used");
    assert!(browser.texts(".keys .used")[0].contains("127.0.0.1"), "the key that was used is the first one");
    browser.fill("#q", "a");
    browser.press("Filter");
    assert_eq!(browser.texts("[aria-sort=descending]"), ["Last used"], "a filter keeps the order");

    browser.go(&gateway.page("/keys?sort=name"));
    assert_eq!(selected(&browser), "0 selected");
    browser.follow("All on this page");
    assert_eq!((selected(&browser), names(&browser)[0].as_str()), (format!("{count} selected"), "Alpha"));
    browser.click("[name=key]");
    assert_eq!(selected(&browser), format!("{} selected", count - 1));
    browser.follow("None");
    assert_eq!(selected(&browser), "0 selected");

    browser.click(".menu summary");
    browser.click_link_or_submit(".menu[open] button");
    assert_eq!(browser.heading(), "Alpha");
    assert!(gateway.keygate(&["key", "list", "--org", "demo", "--state", "disabled"]).contains("Alpha"));
    gateway.end(&browser);
}

#[test]
fn bar_of_selected_keys_stays_in_sight_and_selects_all() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    fill_a_page(&gateway);
    browser.go(&gateway.page("/keys"));
    browser.click("[name=key]");
    for width in [1280, 390] {
        browser.view(width, "light");
        let bottom = browser.script(
            "scrollTo(0, 0);
             return [document.querySelector('.bulk').getBoundingClientRect().bottom, innerHeight]",
        );
        assert!(bottom[0].as_f64() <= bottom[1].as_f64(), "at {width}, the bar is below the window: {bottom}");
    }
    let address = browser.address();
    browser.click("[data-select]");
    assert_eq!((selected(&browser), browser.address()), (format!("{PAGE} selected"), address));
    browser.click("[name=key]");
    assert_eq!(browser.text("[data-select]"), "All on this page");
    browser.click_link_or_submit("[name=action][value=disable]");
    assert_eq!(browser.heading(), format!("Disable {} keys?", PAGE - 1));
    gateway.end(&browser);
}

fn state(gateway: &Gateway, id: &str) -> String {
    let shown: Value = serde_json::from_str(&gateway.keygate(&["key", "show", id, "--json"])).unwrap();
    shown["status"].as_str().unwrap().to_owned()
}
