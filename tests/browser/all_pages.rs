//! Every page, checked by `page_checks`.

use std::io::Write as _;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, MEMBER, paste};
use crate::page_checks::PageChecks;
use crate::support::{Upstream, free_address};

#[test]
fn pages_with_a_session_pass_all_checks() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let mut checks = PageChecks::new(&browser);
    checks.open("new key's form", &gateway.page("/keys/new"), 200);
    browser.press("Create API Key");
    checks.check("new key's form with an error", 422);
    let (key, id) = gateway.make_key(&browser, "Nightly report");
    checks.check("new key", 200);
    checks.open("unused key", &gateway.page(&format!("/keys/{id}")), 200);
    assert_eq!(gateway.list_with(&key).status, 200);
    let reader = gateway.demo_key();
    let post = format!("curl -s -i -H 'Authorization: Bearer {reader}' -d '{{}}' {}/api/queries", gateway.origin);
    assert_eq!(paste(&post).status, 403);
    let reader_id = &reader["sk_live_".len()..][..9];

    checks.open("used key", &gateway.page(&format!("/keys/{id}")), 200);
    checks.open("refused key", &gateway.page(&format!("/keys/{reader_id}")), 200);
    checks.open("no uses", &gateway.page(&format!("/keys/{id}?show=refused")), 200);
    checks.open("used key in a week", &gateway.page(&format!("/keys/{id}?range=7d")), 200);
    checks.open("overview", &gateway.page("/overview"), 200);
    checks.open("overview of a quarter", &gateway.page("/overview?range=90d"), 200);
    checks.open("keys", &gateway.page("/keys"), 200);
    browser.view(1280, "light");
    assert_eq!(browser.script(ROW_HEIGHTS), serde_json::json!([]), "a row of the list has more than two lines");
    policies(&gateway, &browser, &mut checks, &id, reader_id);
    checks.open("no key found", &gateway.page("/keys?q=nothing+has+this+name"), 200);
    rotated_and_revoked(&gateway, &browser, &mut checks, &id);
    checks.open("changes", &gateway.page("/audit"), 200);
    checks.open("users", &gateway.page("/users"), 200);
    let suspend = browser.script("return document.querySelector('main a.danger').href");
    checks.open("question before a suspension", suspend.as_str().unwrap(), 200);
    checks.open("filtered changes", &gateway.page("/audit?action=key.create&from=2026-01-01"), 200);
    checks.open("wrong filter of changes", &gateway.page("/audit?key=x"), 422);
    checks.open("sessions", &gateway.page("/sessions"), 200);
    tokens(&gateway, &browser, &mut checks);
    checks.open("no such page", &gateway.page("/nothing"), 404);
    checks.open("no such key", &gateway.page("/keys/aaaaaaaaa"), 404);
    gateway.sign_in(&browser, MEMBER);
    checks.open("a member's changes", &gateway.page("/audit"), 200);
    checks.open("a member's sessions", &gateway.page("/sessions"), 200);
    checks.open("tokens are for admins", &gateway.page("/tokens"), 403);
    checks.end(46);
    gateway.end(&browser);
}

/// The rows of the list of keys that are higher than two lines, in a wide window.
const ROW_HEIGHTS: &str = "return [...document.querySelectorAll('.keys tbody tr')]
    .filter((row) => row.offsetHeight > 64).map((row) => `${row.offsetHeight}: ${row.textContent}`)";

fn policies(gateway: &Gateway, browser: &Browser, checks: &mut PageChecks<'_>, id: &str, other: &str) {
    browser.go(&gateway.page("/keys/new"));
    browser.fill("#name", "Restricted");
    browser.click(".rest summary");
    browser.fill("#networks", "10.0.0.1/8");
    browser.press("Create API Key");
    checks.check("restricted key with an error", 422);
    checks.open("policy", &gateway.page(&format!("/keys/{id}/policy")), 200);
    browser.fill("#networks", "nowhere");
    browser.press("Save");
    checks.check("policy with an error", 422);
    browser.fill("#networks", "127.0.0.0/8");
    browser.choose("#expiry", "30d");
    browser.press("Save");
    checks.check("key with a policy", 200);
    browser.press("Disable");
    checks.check("disabled key", 200);
    checks.open("disabled keys", &gateway.page("/keys?state=disabled"), 200);
    browser.go(&gateway.page(&format!("/keys/{id}")));
    browser.press("Enable");
    checks.open("selected keys", &gateway.page(&format!("/keys/selected?action=revoke&key={id}&key={other}")), 200);
    browser.press("Revoke 2 keys");
    checks.check("selected keys with an error", 422);
    checks.open("no selected key", &gateway.page("/keys/selected?action=revoke"), 422);
    let (_, revoked) = gateway.make_key(browser, "Revoked meanwhile");
    browser.go(&gateway.page(&format!("/keys/selected?action=disable&key={revoked}&key={other}")));
    gateway.keygate(&["key", "revoke", &revoked]);
    browser.press("Disable 2 keys");
    checks.check("key that was not disabled", 200);
}

fn tokens(gateway: &Gateway, browser: &Browser, checks: &mut PageChecks<'_>) {
    checks.open("no tokens", &gateway.page("/tokens"), 200);
    checks.open("new token's form", &gateway.page("/tokens/new"), 200);
    browser.fill("#networks", "10.0.0.1/8");
    browser.press("Create token");
    checks.check("new token's form with an error", 422);
    let id = gateway.make_token(browser, "Nightly report");
    checks.check("new token", 200);
    checks.open("tokens", &gateway.page("/tokens"), 200);
    checks.open("revocation of a token", &gateway.page(&format!("/tokens/{id}/revoke")), 200);
    browser.press("Revoke this token");
    checks.check("revoked token", 200);
}

fn rotated_and_revoked(gateway: &Gateway, browser: &Browser, checks: &mut PageChecks<'_>, id: &str) {
    checks.open("rotation", &gateway.page(&format!("/keys/{id}/rotate")), 200);
    browser.choose("#overlap", "0s");
    browser.press("Rotate");
    checks.check("rotation with an error", 422);
    browser.choose("#overlap", "1h");
    browser.press("Rotate");
    gateway.new_key(browser);
    checks.check("rotated key", 200);
    checks.open("revocation", &gateway.page(&format!("/keys/{id}/revoke")), 200);
    browser.fill("#name", "another name");
    browser.press("Revoke this key");
    checks.check("revocation with an error", 422);
    browser.fill("#name", "Nightly report");
    browser.press("Revoke this key");
    checks.check("revoked key", 200);
}

#[test]
fn pages_without_a_session_pass_all_checks() {
    let away = free_address();
    let provider = format!(
        "  providers:\n    - {{ name: away, label: Acme Login, issuer: 'http://{away}', client_id: keygate }}\n"
    );
    let (gateway, browser) = (Gateway::with_sessions(free_address(), &provider), Browser::start());
    let mut checks = PageChecks::new(&browser);
    checks.open("sign-in", &gateway.page("/keys"), 200);
    browser.press("Continue with Acme Login");
    checks.check("provider away", 503);
    browser.follow("Sign in");
    let link = gateway.link(ADMIN);
    checks.open("link", &link, 200);
    browser.click_link_or_submit("main button");
    checks.check("no keys", 200);
    browser.press("Sign out");
    checks.check("signed out", 200);
    checks.open("link that was used", &link, 403);
    checks.open("no answer of a provider's", &gateway.page("/callback/away?state=none&code=none"), 400);

    let (form, target) = ("<title>Elsewhere</title><form method=post", gateway.page("/sign-out"));
    let page = format!("<link rel=icon href=data:,>{form} action={target}><button>Go</button></form>");
    let site = Upstream::answering(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        stream.write_all(format!("{head}{page}").as_bytes()).ok();
    });
    browser.go(&format!("http://{}", site.address));
    browser.click_link_or_submit("button");
    checks.check("form of another site", 403);
    checks.end(8);
    gateway.end(&browser);
}
