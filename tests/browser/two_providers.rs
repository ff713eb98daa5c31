//! Two certified providers, each for organizations of its own: what one no longer claims ends, and what the same
//! address does at the other goes on.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::gateway::Gateway;
use crate::provider::until_heading;
use crate::real::Real;
use crate::support::free_address;

/// The address that both providers claim.
const ADA: &str = "ada@customer.example";

#[test]
fn what_a_provider_no_longer_claims_ends_and_the_other_providers_person_goes_on() {
    let address = free_address();
    let (north, south) = (provider(address, "north"), provider(address, "south"));
    let gateway = Gateway::with_sessions(
        address,
        &format!("  providers:\n{}{}", block("north", &north, "[Acme, Second]"), block("south", &south, "[Bolt]")),
    );
    for org in ["Acme", "Second", "Bolt"] {
        gateway.keygate(&["org", "create", org]);
    }
    claim(&north, &["Acme", "Second"]);
    claim(&south, &["Bolt"]);

    let (old, other) = (Browser::start(), Browser::start());
    sign_in(&gateway, &old, "north");
    choose(&old, "Second");
    let (of_second, _) = gateway.make_key(&old, "In Second");
    choose(&old, "Acme");
    let (of_acme, _) = gateway.make_key(&old, "In Acme");
    choose(&old, "Second");
    assert_eq!(old.text(".person .role"), "Admin");
    sign_in(&gateway, &other, "south");
    let (of_bolt, _) = gateway.make_key(&other, "In Bolt");
    // The upstream is unreachable: the keys are admitted.
    let statuses = || [&of_acme, &of_second, &of_bolt].map(|key| gateway.list_with(key).status);
    assert_eq!(statuses(), [503, 503, 503]);

    // Second is missing in the claims of a later sign-in, in another browser.
    claim(&north, &["Acme"]);
    let new = Browser::start();
    sign_in(&gateway, &new, "north");
    assert_eq!(statuses(), [503, 403, 503]);
    old.reload();
    assert_eq!((old.heading(), old.text(".orgs .org")), ("API Keys".into(), "Acme".into()));
    assert!(!old.source().contains("In Second") && old.source().contains("In Acme"));

    // The owner ends the old session by one button; the other provider's person is another one.
    new.go(&gateway.page("/sessions"));
    new.press("End all your other sessions");
    assert!(new.text(".notice").contains("All your other sessions are ended"));
    old.reload();
    assert_eq!(old.heading(), "Sign in");
    other.go(&gateway.page("/keys"));
    assert_eq!(other.heading(), "API Keys");

    // No organization is claimed: the sign-in is refused, and withdraws.
    claim(&north, &[]);
    old.press("Continue with The north one");
    until_heading(&old, "You are not a member of an organization here");
    assert_eq!(statuses(), [403, 403, 503]);
    new.reload();
    assert_eq!(new.heading(), "Sign in");
    let record = gateway.keygate(&["audit", "list", "--json"]);
    assert!(record.matches("user.withdraw").count() >= 2, "{record}");

    // A later claim takes it back.
    claim(&north, &["Acme", "Second"]);
    new.press("Continue with The north one");
    until_heading(&new, "Sessions");
    assert_eq!(statuses(), [503, 503, 503]);
    gateway.end(&other);
}

/// A provider with one client, which is the gateway under this name.
fn provider(gateway: SocketAddr, name: &str) -> Real {
    let [back, out] = [format!("callback/{name}"), "signed-out".into()];
    let uri = |path: String| format!("http://{gateway}/settings/{path}");
    let metadata = json!({ "redirect_uris": [uri(back)], "post_logout_redirect_uris": [uri(out)] });
    Real::start_with(metadata, accounts(&[]), json!({}))
}

fn accounts(orgs: &[&str]) -> Value {
    json!({ "ada": { "email": ADA, "email_verified": true, "groups": orgs } })
}

/// Makes a provider claim these organizations from now on.
fn claim(provider: &Real, orgs: &[&str]) {
    provider.set_accounts(&accounts(orgs));
}

fn block(name: &str, provider: &Real, only: &str) -> String {
    let settings = provider.settings();
    let secret = settings.client_secret.as_ref().unwrap().expose();
    let admin = |org: &str| format!("{{ value: {org}, means: ['org:admin'] }}");
    let map = ["Acme", "Second", "Bolt"].map(admin).join(", ");
    format!(
        "    - {{ name: {name}, label: The {name} one, issuer: '{}', client_id: '{}', client_secret: '{secret}',\n\
         \x20       scopes: [openid, email, profile, groups], listed: true,\n\
         \x20       people: {{ organization: {{ claim: groups }}, only: {only},\n\
         \x20       permissions: {{ claim: groups, map: [{map}] }} }} }}\n",
        settings.issuer, settings.client_id
    )
}

/// Signs in by a provider at which the browser has no session yet.
fn sign_in(gateway: &Gateway, browser: &Browser, provider: &str) {
    browser.go(&gateway.page("/keys"));
    assert_eq!(browser.heading(), "Sign in");
    browser.press(&format!("Continue with The {provider} one"));
    browser.fill("input[name=login]", "ada");
    browser.fill("input[name=password]", "whatever");
    browser.click_link_or_submit("button[type=submit]");
    browser.click_link_or_submit("button[type=submit]");
    until_heading(browser, "API Keys");
    assert_eq!(browser.text(".person .email"), ADA);
}

/// Chooses an organization, unless it is chosen.
fn choose(browser: &Browser, org: &str) {
    if browser.text(".orgs .org") != org {
        browser.click(".orgs summary");
        browser.press(org);
    }
    assert_eq!((browser.heading(), browser.text(".orgs .org")), ("API Keys".into(), org.to_owned()));
}
