//! Withdrawal: what a provider no longer vouches for ends at the person's next sign-in, also at one that is refused.

use control::management::User;
use domain::identity::{OrgId, UserId};
use serde_json::{Value, json};

use super::fixture::{self, Member, PERSON, hostile, is_admitted, is_signed_in, link_of, member, signed_in};
use super::gateway_browser::{GatewayBrowser, text};
use crate::oidc::hostile::Hostile;
use crate::support::{Client, Gateway, Upstream};

/// Organizations by their names in the claim `groups`, permissions by the claim `roles`.
const BY_CLAIMS: &str = "organization: { claim: groups }, permissions: { claim: roles }";

/// A gateway with two organizations, and providers that claim what [`Setup::claim`] says.
struct Setup {
    gateway: Gateway,
    upstream: Upstream,
    corp: Hostile,
    acme: OrgId,
    bolt: OrgId,
}

impl Setup {
    fn new(people: &str) -> Self {
        Self::with(people, |_| Vec::new())
    }

    /// With more providers than `corp`.
    fn with(people: &str, more: impl FnOnce(&Hostile) -> Vec<String>) -> Self {
        let (corp, upstream) = (Hostile::start(), Upstream::start());
        let mut providers = vec![hostile("corp", &corp, people)];
        providers.extend(more(&corp));
        let gateway = fixture::gateway(&upstream, &providers);
        let [acme, bolt] = ["acme", "bolt"].map(|name| gateway.create_org(name).id);
        Self { gateway, upstream, corp, acme, bolt }
    }

    fn user(&self, org: OrgId) -> User {
        let mut users = fixture::users(&self.gateway, org).into_iter();
        users.find(|user| user.email == PERSON && user.removed.is_none()).expect("there is a user")
    }

    fn key(&self, org: OrgId) -> String {
        key(&self.gateway, org, self.user(org).id)
    }

    fn status(&self, key: &str) -> u16 {
        Client::connect(self.gateway.address).get("/x", key).status
    }

    fn actions(&self) -> Vec<(String, Option<OrgId>)> {
        fixture::changes(&self.gateway).into_iter().map(|change| (change.action, change.org_id)).collect()
    }
}

fn key(gateway: &Gateway, org: OrgId, user: UserId) -> String {
    gateway.create_key(org, user, "k").text
}

/// Makes a provider claim these organizations from now on, and `org:admin`.
fn claim(provider: &Hostile, orgs: &[&str]) {
    claim_with(provider, orgs, json!({}));
}

/// The same with more claims, which replace others.
fn claim_with(provider: &Hostile, orgs: &[&str], more: Value) {
    let orgs = json!(orgs);
    provider.behave(|now| {
        now.claims = Box::new(move |claims| {
            claims["groups"] = orgs.clone();
            claims["roles"] = json!(["org:admin"]);
            for (name, value) in more.as_object().unwrap() {
                claims[name] = value.clone();
            }
        });
    });
}

/// Chooses an organization.
fn choose(visitor: &mut GatewayBrowser, org: OrgId) {
    assert_eq!(visitor.submit("/settings/org", &[("org", &org.to_string())]).status, 303);
}

#[test]
fn organization_that_is_no_longer_claimed_is_withdrawn_with_keys_and_sessions() {
    let setup = Setup::new(BY_CLAIMS);
    claim(&setup.corp, &["acme", "bolt"]);
    let mut old = signed_in(&setup.gateway, "corp");
    let mut at_acme = signed_in(&setup.gateway, "corp");
    choose(&mut old, setup.bolt);
    let [of_acme, of_bolt] = [setup.acme, setup.bolt].map(|org| setup.key(org));
    assert!(is_admitted(&mut old) && setup.status(&of_bolt) == 200);
    let own = [("Sec-Fetch-Site", "same-origin"), ("Content-Type", "application/json")];
    assert_eq!(old.send("POST", "/settings/api/v1/orgs/bolt/keys", &own, r#"{"name":"k"}"#).status, 201);

    claim(&setup.corp, &["acme"]);
    signed_in(&setup.gateway, "corp");
    let user = setup.user(setup.bolt);
    assert!(user.withdrawn.is_some() && user.removed.is_none(), "{user:?}");
    assert_eq!((user.provider.as_deref(), user.permissions.len()), (Some("corp"), 1), "the record stays");
    let refused = Client::connect(setup.gateway.address).get("/x", &of_bolt);
    assert_eq!((refused.status, refused.code().as_str()), (403, "insufficient_scope"));
    assert_eq!(setup.status(&of_acme), 200);
    // The old session goes on in the other organization, and in no other.
    assert_eq!(old.fetch("GET", "/x").status, 200);
    assert_eq!(setup.upstream.last().header("x-org-id"), Some(&*setup.acme.to_string()));
    for visitor in [&mut old, &mut at_acme] {
        assert_eq!(visitor.submit("/settings/org", &[("org", &setup.bolt.to_string())]).status, 403);
        assert!(is_signed_in(visitor));
    }
    let withdrawn = setup.actions().into_iter().filter(|(action, _)| action == "user.withdraw");
    assert_eq!(withdrawn.collect::<Vec<_>>(), [("user.withdraw".to_owned(), Some(setup.bolt))]);
    // Nothing more to withdraw.
    signed_in(&setup.gateway, "corp");
    assert_eq!(setup.actions().iter().filter(|(action, _)| action == "user.withdraw").count(), 1);

    claim(&setup.corp, &["acme", "bolt"]);
    let mut new = signed_in(&setup.gateway, "corp");
    assert_eq!((setup.user(setup.bolt).withdrawn, setup.status(&of_bolt)), (None, 200), "a later claim takes it back");
    choose(&mut new, setup.bolt);
    assert!(is_admitted(&mut new));
    assert_eq!(
        old.submit("/settings/org", &[("org", &setup.bolt.to_string())]).status,
        403,
        "an ended session came back"
    );
}

/// A suspended user stays so, whatever the provider says, until an operator resumes them.
#[test]
fn suspended_user_has_no_sessions_and_cannot_sign_in_until_resumed() {
    let setup = Setup::new(BY_CLAIMS);
    claim(&setup.corp, &["acme", "bolt"]);
    let mut old = signed_in(&setup.gateway, "corp");
    choose(&mut old, setup.bolt);
    let [of_acme, of_bolt] = [setup.acme, setup.bolt].map(|org| setup.key(org));
    setup.gateway.suspend_user_of(setup.bolt, PERSON);
    let refused = Client::connect(setup.gateway.address).get("/x", &of_bolt);
    assert_eq!((refused.status, refused.code().as_str()), (401, "invalid_token"));
    assert_eq!(setup.status(&of_acme), 200, "the person acts in the other organization");
    // The session goes on there, and a new sign-in is one there alone.
    assert_eq!(old.fetch("GET", "/x").status, 200);
    assert_eq!(setup.upstream.last().header("x-org-id"), Some(&*setup.acme.to_string()));
    let mut new = signed_in(&setup.gateway, "corp");
    for visitor in [&mut old, &mut new] {
        assert_eq!(visitor.submit("/settings/org", &[("org", &setup.bolt.to_string())]).status, 403);
    }
    let user = setup.user(setup.bolt);
    assert!(user.suspended.is_some() && user.withdrawn.is_none(), "{user:?}");
    // Of the organization in which it is suspended alone, the person can sign in to nothing.
    claim(&setup.corp, &["bolt"]);
    let mut nowhere = GatewayBrowser::new(&setup.gateway);
    assert_eq!(nowhere.sign_in("corp").status, 403);
    assert!(setup.user(setup.bolt).suspended.is_some());

    setup.gateway.resume_user_of(setup.bolt, PERSON);
    assert_eq!(setup.status(&of_bolt), 200, "the keys come back");
    // Its last organization has gone with the claim, and no session comes back with the user.
    assert!(!is_signed_in(&mut old));
    claim(&setup.corp, &["acme", "bolt"]);
    choose(&mut signed_in(&setup.gateway, "corp"), setup.bolt);
    let kinds = ["user.suspend", "user.resume"];
    let made: Vec<_> = setup.actions().into_iter().filter(|(action, _)| kinds.contains(&&**action)).collect();
    assert_eq!(made, kinds.map(|kind| (kind.to_owned(), Some(setup.bolt))));
}

#[test]
fn refused_sign_in_withdraws_too() {
    let setup = Setup::new(BY_CLAIMS);
    claim(&setup.corp, &["acme"]);
    let mut old = signed_in(&setup.gateway, "corp");
    let key = setup.key(setup.acme);
    assert!(is_admitted(&mut old) && setup.status(&key) == 200);
    claim(&setup.corp, &[]);
    fixture::assert_refused(&GatewayBrowser::new(&setup.gateway).sign_in("corp"), 403);
    assert_eq!(setup.status(&key), 403);
    assert!(!is_admitted(&mut old) && !is_signed_in(&mut old));
    // A link does not bring the user back, and the operator does.
    let person = Member { org: setup.acme, user: setup.user(setup.acme).id };
    let link = link_of(&setup.gateway, person);
    fixture::assert_refused(&GatewayBrowser::new(&setup.gateway).submit(&link, &[]), 403);
    setup.gateway.permit_user_of(person.org, person.user, &[]);
    assert_eq!(setup.status(&key), 200);
    assert!(!is_admitted(&mut old));
    let link = link_of(&setup.gateway, person);
    assert_eq!(GatewayBrowser::new(&setup.gateway).submit(&link, &[]).status, 303);
}

/// The person is known by issuer and `sub`: another address, or one that is not verified, keeps nothing.
#[test]
fn changed_or_unverified_address_is_no_way_to_keep_what_is_no_longer_claimed() {
    for change in [json!({"email": "other@example.com"}), json!({"email_verified": false}), json!({"email": null})] {
        let setup = Setup::new(BY_CLAIMS);
        claim(&setup.corp, &["acme"]);
        signed_in(&setup.gateway, "corp");
        let key = setup.key(setup.acme);
        // Another person, who claims the same address without verification, withdraws nothing of hers.
        claim_with(&setup.corp, &[], json!({"sub": "someone else", "email_verified": false}));
        fixture::assert_refused(&GatewayBrowser::new(&setup.gateway).sign_in("corp"), 403);
        assert_eq!(setup.status(&key), 200);
        claim_with(&setup.corp, &[], change.clone());
        fixture::assert_refused(&GatewayBrowser::new(&setup.gateway).sign_in("corp"), 403);
        assert_eq!(setup.status(&key), 403, "{change}");
    }
}

#[test]
fn user_whom_only_the_operator_has_entered_is_not_withdrawn() {
    let setup = Setup::new(BY_CLAIMS);
    for org in [setup.acme, setup.bolt] {
        setup.gateway.create_user(org, PERSON, &["org:admin"]);
    }
    let [of_acme, of_bolt] = [setup.acme, setup.bolt].map(|org| setup.key(org));
    claim(&setup.corp, &["bolt"]);
    let mut visitor = signed_in(&setup.gateway, "corp");
    assert_eq!((setup.status(&of_acme), setup.status(&of_bolt)), (200, 200));
    assert_eq!((setup.user(setup.acme).provider, setup.user(setup.bolt).provider.as_deref()), (None, Some("corp")));
    // The claim has made the one in bolt the provider's.
    claim(&setup.corp, &[]);
    fixture::assert_refused(&visitor.sign_in("corp"), 403);
    assert_eq!((setup.status(&of_acme), setup.status(&of_bolt)), (200, 403));
}

#[test]
fn provider_withdraws_nothing_beyond_its_reach_and_nothing_of_another_provider() {
    let other = Hostile::start();
    let people = format!("{BY_CLAIMS}, only: [acme]");
    let setup = Setup::with(&people, |_| vec![hostile("other", &other, &format!("{BY_CLAIMS}, only: all"))]);
    claim(&setup.corp, &["acme"]);
    claim(&other, &["bolt"]);
    signed_in(&setup.gateway, "corp");
    signed_in(&setup.gateway, "other");
    let [of_acme, of_bolt] = [setup.acme, setup.bolt].map(|org| setup.key(org));
    assert_eq!((setup.status(&of_acme), setup.status(&of_bolt)), (200, 200), "each has left the other's alone");
    claim(&setup.corp, &[]);
    fixture::assert_refused(&GatewayBrowser::new(&setup.gateway).sign_in("corp"), 403);
    assert_eq!((setup.status(&of_acme), setup.status(&of_bolt)), (403, 200));
    // The claims of the other one are its own from then on.
    claim(&other, &["acme", "bolt"]);
    signed_in(&setup.gateway, "other");
    fixture::assert_refused(&GatewayBrowser::new(&setup.gateway).sign_in("corp"), 403);
    assert_eq!((setup.status(&of_acme), setup.status(&of_bolt)), (200, 200));
    assert_eq!(setup.user(setup.acme).provider.as_deref(), Some("other"));
}

#[test]
fn claims_without_organizations_withdraw_nothing() {
    let setup = Setup::new("");
    let Member { org, user } = member(&setup.gateway, "chalk", PERSON, &["org:admin"]);
    let key = key(&setup.gateway, org, user);
    let mut visitor = signed_in(&setup.gateway, "corp");
    let again = visitor.sign_in("corp");
    assert_eq!((again.status, setup.status(&key)), (303, 200), "{}", text(&again));
}
