//! Many tabs of a browser that sign in at once, as a browser restores them.

use fantoccini::wd::WindowHandle;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, MEMBER};
use crate::provider::{block, registered, until_heading};
use crate::support::free_address;

const TABS: usize = 12;

#[test]
fn twelve_tabs_of_each_of_two_browsers_are_signed_in() {
    let address = free_address();
    let provider = registered(address);
    let gateway = Gateway::with_sessions(address, &block(&provider));
    let browsers = [Browser::start(), Browser::start()];
    for browser in &browsers {
        // Each tab is at the provider before the first one has signed in.
        let tabs: Vec<_> = (0..TABS).map(|tab| at_provider(&gateway, browser, tab)).collect();
        for (number, tab) in tabs.iter().enumerate().rev() {
            browser.switch_to(tab);
            browser.fill("input[name=login]", "ada");
            browser.fill("input[name=password]", "whatever");
            browser.click_link_or_submit("button[type=submit]");
            // The provider asks once for a browser's consent.
            if number == TABS - 1 {
                browser.click_link_or_submit("button[type=submit]");
            }
            until_heading(browser, "API Keys");
            assert_eq!(browser.address(), gateway.page(&page(number)), "it leads to the page of its tab");
            assert_eq!(browser.text(".person .email"), ADMIN);
        }
    }
    for browser in &browsers {
        browser.go(&gateway.page("/keys"));
        assert_eq!(browser.heading(), "API Keys");
    }
    by_one_link(&gateway);
    gateway.end(&browsers[0]);
}

fn page(tab: usize) -> String {
    format!("/keys?tab={tab}")
}

/// Opens a page in a tab of its own, and goes on to the provider's.
fn at_provider(gateway: &Gateway, browser: &Browser, tab: usize) -> WindowHandle {
    let opened = browser.open_tab();
    browser.go(&gateway.page(&page(tab)));
    until_heading(browser, "Sign in");
    // The provider has no session yet: it asks, and nothing is done without a click.
    browser.press("Continue with The real one");
    browser.text("input[name=login]");
    opened
}

/// One link in many tabs of one browser: the first one signs in, the others lead on.
fn by_one_link(gateway: &Gateway) {
    let (browser, link) = (Browser::start(), gateway.link(MEMBER));
    let tabs: Vec<_> = (0..TABS)
        .map(|_| {
            let opened = browser.open_tab();
            browser.go(&link);
            opened
        })
        .collect();
    for tab in &tabs {
        browser.switch_to(tab);
        browser.click_link_or_submit("main button");
        assert_eq!((browser.heading(), browser.text(".person .email")), ("API Keys".into(), MEMBER.into()));
    }
}
