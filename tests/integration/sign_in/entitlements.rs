//! Organizations and permissions of users: from the directory, or from the provider's claims.

use domain::identity::OrgId;
use serde_json::{Value, json};

use super::fixture::{self, PERSON, certified, hostile, is_admitted, is_signed_in, member, signed_in, users};
use super::gateway_browser::{GatewayBrowser, text};
use crate::oidc::hostile::Hostile;
use crate::support::{Gateway, Upstream};

/// Organizations and permissions by the claim `groups`.
const BY_GROUPS: &str = "organization: { claim: groups, map: [{ value: acme-people, means: acme }] }, \
     permissions: { claim: groups, map: [{ value: bosses, means: ['org:admin', 'queries:read'] }, \
     { value: readers, means: ['queries:read'] }] }";

fn org(gateway: &Gateway, name: &str) -> OrgId {
    gateway.create_org(name).id
}

fn permissions(gateway: &Gateway, org: OrgId, email: &str) -> Vec<String> {
    let found = users(gateway, org).into_iter().find(|user| user.email == email && user.removed.is_none());
    found.map(|user| user.permissions.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

/// Switches to an organization by the button on the page.
fn switch(visitor: &mut GatewayBrowser, org: OrgId) {
    let page = text(&visitor.open("/settings/keys"));
    assert!(page.contains(&format!("name=\"org\" value=\"{org}\"")), "{page}");
    let answer = visitor.submit("/settings/org", &[("org", &org.to_string())]);
    assert_eq!(answer.status, 303, "{}", text(&answer));
}

#[test]
fn user_of_two_organizations_acts_in_the_chosen_one() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "")]);
    let acme = member(&gateway, "acme", PERSON, &["queries:read"]);
    let bolt = member(&gateway, "bolt", PERSON, &["queries:write"]);
    let other = member(&gateway, "other", "other@example.com", &[]);
    let mut visitor = signed_in(&gateway, "corp");
    for chosen in [bolt, acme, bolt] {
        switch(&mut visitor, chosen.org);
        assert_eq!(visitor.fetch("GET", "/x").status, 200);
        let received = upstream.last();
        assert_eq!(received.header("x-org-id"), Some(&*chosen.org.to_string()));
        assert_eq!(received.header("x-user-id"), Some(&*chosen.user.to_string()));
    }
    // Other organizations than the user's are refused.
    for foreign in [other.org.to_string(), "nonsense".into(), String::new()] {
        let answer = visitor.submit("/settings/org", &[("org", &foreign)]);
        assert_eq!(answer.status, 403, "{}", text(&answer));
    }
    visitor.fetch("GET", "/x");
    assert_eq!(upstream.last().header("x-org-id"), Some(&*bolt.org.to_string()));
}

#[test]
fn provider_may_grant_organizations_and_permissions() {
    let account =
        |groups: Value| json!({"ada": {"email": "ada@example.com", "email_verified": true, "groups": groups}});
    let (real, upstream) = (fixture::real(account(json!(["acme-people", "bosses"]))), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[certified(&real, BY_GROUPS)]);
    let [acme, other] = [org(&gateway, "acme"), org(&gateway, "other")];
    let mut ada = GatewayBrowser::new(&gateway);
    assert_eq!(ada.sign_in_as("real", "ada").status, 303);
    assert_eq!(permissions(&gateway, acme, "ada@example.com"), ["org:admin", "queries:read"]);
    assert!(
        permissions(&gateway, other, "ada@example.com").is_empty(),
        "the user was added to an organization that the claims do not name"
    );
    ada.fetch("GET", "/x");
    assert_eq!(upstream.last().header("x-permissions"), Some("org:admin,queries:read"));
    assert_eq!(upstream.last().header("x-org-id"), Some(&*acme.to_string()));

    // The claims of the next sign-in apply from then on, also to sessions that are open already.
    real.set_accounts(&account(json!(["acme-people", "readers", "other"])));
    assert_eq!(ada.sign_in_as("real", "ada").status, 303);
    assert_eq!(permissions(&gateway, acme, "ada@example.com"), ["queries:read"]);
    assert_eq!(permissions(&gateway, other, "ada@example.com"), ["queries:read"]);
    let actions: Vec<_> = fixture::changes(&gateway).into_iter().map(|change| change.action).collect();
    let count = |action: &str| actions.iter().filter(|did| *did == action).count();
    assert_eq!((count("user.create"), count("user.permit"), count("session.start")), (2, 1, 2), "{actions:?}");

    // Without any organization.
    real.set_accounts(&account(json!(["readers"])));
    fixture::assert_refused(&ada.sign_in_as("real", "ada"), 403);
}

#[test]
fn provider_grants_only_its_organizations() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    provider.behave(|now| now.claims = Box::new(|claims| claims["groups"] = json!(["acme", "bolt"])));
    let people = "organization: { claim: groups }, permissions: { claim: groups, map: [] }, only: [acme]";
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, people)]);
    let [acme, bolt] = [member(&gateway, "acme", PERSON, &[]), member(&gateway, "bolt", PERSON, &[])];
    signed_in(&gateway, "corp");
    let [session] = fixture::sessions(&gateway).try_into().unwrap();
    assert_eq!(session.orgs, [acme.org]);
    assert!(permissions(&gateway, bolt.org, PERSON).is_empty(), "the provider changed a user of another organization");
}

#[test]
fn address_of_another_claim_is_not_verified() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    // At some providers, users choose the value of this claim themselves.
    provider.behave(|now| now.claims = Box::new(|claims| claims["upn"] = json!("boss@example.com")));
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "email: upn")]);
    member(&gateway, "acme", "boss@example.com", &["org:admin"]);
    let mut visitor = GatewayBrowser::new(&gateway);
    fixture::assert_refused(&visitor.sign_in("corp"), 403);
    provider.behave(|now| now.claims = Box::new(|claims| claims["upn"] = json!(PERSON)));
    member(&gateway, "bolt", PERSON, &[]);
    assert_eq!(visitor.sign_in("corp").status, 303, "the claim has the verified address");
}

#[test]
fn address_that_looks_like_another_is_not_that_one() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "")]);
    member(&gateway, "acme", "mark@example.com", &["org:admin"]);
    let mut visitor = GatewayBrowser::new(&gateway);
    for (email, status) in
        [("mar\u{212a}@example.com", 400), ("mark@example.com.evil.test", 403), ("Mark@Example.COM", 303)]
    {
        provider.behave(|now| now.claims = Box::new(move |claims| claims["email"] = json!(email)));
        assert_eq!(visitor.sign_in("corp").status, status, "{email}");
    }
}

#[test]
fn removed_user_is_refused_in_the_next_request_and_keeps_the_other_organization() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "")]);
    let [acme, bolt] = [member(&gateway, "acme", PERSON, &[]), member(&gateway, "bolt", PERSON, &[])];
    let mut visitor = signed_in(&gateway, "corp");
    switch(&mut visitor, bolt.org);
    assert!(is_admitted(&mut visitor));
    gateway.remove_user_of(bolt.org, bolt.user);
    assert!(!is_admitted(&mut visitor) && !is_signed_in(&mut visitor));
    assert_eq!(visitor.sign_in("corp").status, 303);
    assert!(is_admitted(&mut visitor));
    assert_eq!(upstream.last().header("x-org-id"), Some(&*acme.org.to_string()));
    gateway.remove_user_of(acme.org, acme.user);
    assert!(!is_admitted(&mut visitor) && !is_signed_in(&mut visitor));
    fixture::assert_refused(&visitor.sign_in("corp"), 403);
}
