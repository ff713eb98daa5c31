//! Administrators who manage the people of their organization, with a keyboard's forms alone: no script.

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::Gateway;
use crate::page_checks::PageChecks;
use crate::support::free_address;

const ADA: &str = "ada@acme.example";

/// A gateway where administrators manage people, and the administrator signed in.
fn managed(browser: &Browser) -> Gateway {
    let gateway = Gateway::with_sessions(free_address(), "  people: { managed_by: admins }\n");
    let permissions = ["--permission", "org:admin", "--permission", "queries:read"];
    gateway.keygate(&[&["user", "create", "--org", "demo", ADA][..], &permissions].concat());
    gateway.sign_in(browser, ADA);
    gateway
}

#[test]
fn invited_person_signs_in_with_the_link_that_an_admin_sends() {
    let browser = Browser::start();
    let gateway = managed(&browser);
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.go(&gateway.page("/users"));
    browser.follow("Add person");
    browser.fill("#email", "eve@acme.example");
    browser.click("[name=permission][value='queries:read']");
    browser.press("Add person");
    assert!(browser.text(".notice").contains("The person is added"));
    browser.press("Create sign-in link");
    let link = browser.text("#sign-in-link");
    browser.click("[name=permission][value='org:admin']");
    browser.press("Change permissions");
    assert!(browser.text(".notice").contains("The permissions are changed"));
    browser.press("Sign out");
    browser.go(&link);
    browser.click_link_or_submit("main button");
    assert_eq!(browser.heading(), "API Keys", "Eve is signed in");
    browser.go(&gateway.page("/users"));
    browser.follow(ADA);
    browser.click("[name=sure]");
    browser.press("Remove person");
    assert!(browser.text(".notice").contains("The person is removed"));
    gateway.end(&browser);
}

#[test]
fn pages_for_people_pass_all_checks() {
    let browser = Browser::start();
    let gateway = managed(&browser);
    let mut checks = PageChecks::new(&browser);
    checks.open("form for a person", &gateway.page("/users/new"), 200);
    browser.fill("#email", "nobody");
    browser.press("Add person");
    checks.check("form for a person with an error", 422);
    browser.fill("#email", "eve@acme.example");
    browser.press("Add person");
    checks.check("person", 200);
    browser.press("Create sign-in link");
    checks.check("person with a sign-in link", 200);
    checks.open("managed users", &gateway.page("/users"), 200);
    checks.end(5);
    gateway.end(&browser);
}
