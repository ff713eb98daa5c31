//! Signing in and out at the certified provider, with its own pages.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway};
use crate::page_checks::PageChecks;
use crate::real::Real;
use crate::support::free_address;

#[test]
fn user_signs_in_and_out_at_the_provider() {
    let address = free_address();
    let provider = registered(address);
    let gateway = Gateway::with_sessions(address, &block(&provider));
    gateway.keygate(&["org", "create", "Second"]);
    gateway.keygate(&["user", "create", "--org", "Second", ADMIN]);
    let browser = Browser::start();

    browser.go(&gateway.page("/keys/new"));
    // The provider is asked first, without a click, and has no session of the user.
    until_heading(&browser, "Sign in");
    assert!(browser.address().ends_with("tried=1"), "{}", browser.address());
    browser.press("Continue with The real one");
    browser.fill("input[name=login]", "ada");
    browser.fill("input[name=password]", "whatever");
    browser.click_link_or_submit("button[type=submit]");
    browser.click_link_or_submit("button[type=submit]");
    browser.text("#name");
    assert_eq!(browser.address(), gateway.page("/keys/new"), "the sign-in leads to the requested page");
    assert_eq!(browser.text(".person .email"), ADMIN);
    organizations_are_switched(&browser);

    browser.devtools("Network.deleteCookies", json!({ "name": "__Host-keygate", "url": gateway.origin }));
    browser.go(&gateway.page("/keys"));
    until_heading(&browser, "API Keys");
    assert_eq!(browser.text(".person .email"), ADMIN, "the session at the provider is enough");

    browser.press("Sign out");
    browser.click_link_or_submit("button[name=logout]");
    assert_eq!((browser.heading(), browser.address()), ("You are signed out".into(), gateway.page("/signed-out")));
    browser.go(&gateway.page("/keys"));
    assert_eq!(browser.heading(), "Sign in", "who has signed out is not signed in without a click");

    let secrets = browser.secrets();
    assert!(secrets.iter().any(|secret| secret.starts_with("ey")), "the ID token was sent as a hint");
    // State, code, session, cookie of the pending sign-in, ID token; and the provider's own.
    assert!(secrets.len() >= 5, "{}", secrets.len());
    gateway.end(&browser);
}

/// A provider at which the gateway of this address is a client.
pub fn registered(address: SocketAddr) -> Real {
    let [back, out] = ["callback/real", "signed-out"].map(|path| format!("http://{address}/settings/{path}"));
    let metadata = json!({ "redirect_uris": [back], "post_logout_redirect_uris": [out] });
    let accounts = json!({ "ada": { "email": ADMIN, "email_verified": true } });
    Real::start_with(metadata, accounts, json!({}))
}

/// Waits for the page with this heading, to which others lead by themselves.
pub fn until_heading(browser: &Browser, heading: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while browser.script("return document.querySelector('h1')?.textContent ?? ''") != heading {
        assert!(Instant::now() < deadline, "{heading:?} does not follow at {}", browser.address());
    }
}

/// Checks that the role is the one in the chosen organization.
fn organizations_are_switched(browser: &Browser) {
    let mut checks = PageChecks::new(browser);
    for (org, role) in [("Second", "Member"), ("demo", "Admin")] {
        browser.click(".orgs summary");
        browser.press(org);
        assert_eq!(browser.heading(), "API Keys");
        assert_eq!((browser.text(".orgs .org"), browser.text(".person .role")), (org.to_owned(), role.to_owned()));
        checks.check(org, 200);
    }
    checks.end(2);
}

pub fn block(provider: &Real) -> String {
    let settings = provider.settings();
    let secret = settings.client_secret.as_ref().unwrap().expose();
    format!(
        "  providers:\n    - {{ name: real, label: The real one, issuer: '{}', client_id: '{}', client_secret: \
         '{secret}' }}\n",
        settings.issuer, settings.client_id
    )
}
