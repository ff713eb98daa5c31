//! Policies of keys: each narrows every decision after its change, and a refusal by one takes nothing.

use std::net::IpAddr;

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::key::policy::{Disabled, DisabledBy, Field, KeyPolicy, Network, PolicyPatch};
use domain::refusal::Refusal;
use state::{
    Change, ChangeError, CredentialStatus, DecideRequest, Decision, PolicyScope, RevokedBy, RouteAccess, State,
};

use super::fixture::{
    HeldKey, admit, admitted, everything, fixture_with_key, new_fixture, permission, record, refuse, refused, require,
    revoke, rotate,
};
use super::{QUOTA, TOKEN};

pub(super) fn networks(texts: &[&str]) -> Vec<Network> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(super) fn disabled(at: Micros, by: DisabledBy) -> PolicyPatch {
    PolicyPatch { disabled: Field::Set(Disabled { at, by }), ..PolicyPatch::default() }
}

fn enabled() -> PolicyPatch {
    PolicyPatch { disabled: Field::Clear, ..PolicyPatch::default() }
}

pub(super) fn expiring(at: Micros) -> PolicyPatch {
    PolicyPatch { expires: Field::Set(at), ..PolicyPatch::default() }
}

async fn try_set(state: &State, key: &HeldKey, patch: PolicyPatch, allowed: PolicyScope) -> Result<(), ChangeError> {
    state.change(Change::set_key_policy(key.id, Box::new(patch), allowed)).await
}

pub(super) async fn set(state: &State, key: &HeldKey, patch: PolicyPatch) {
    try_set(state, key, patch, PolicyScope::Operator).await.unwrap();
}

pub(super) async fn decide_from(state: &State, key: &HeldKey, client: Option<&str>, now: Micros) -> Decision {
    let client = client.map(|client| client.parse::<IpAddr>().unwrap());
    let client = client.as_ref();
    let ask =
        DecideRequest { digest: &key.digest, id: None, access: RouteAccess::Everyone, cost: Cost::ONE, client, now };
    state.decide(ask).await.unwrap()
}

pub(super) async fn key_has_the_permissions_of_its_policy_and_its_user(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (org, user, now) = (fixture.org, fixture.user, clock::now());
    let permit = async |names: &[&str]| {
        let permissions = names.iter().map(|name| permission(name)).collect();
        state.change(Change::permit_user(org, user, permissions, None)).await.unwrap();
    };
    permit(&["a", "b"]).await;
    let own = ["b", "c"].map(permission).to_vec();
    set(state, &key, PolicyPatch { permissions: Field::Set(own.clone()), ..PolicyPatch::default() }).await;
    let principal = admitted(require(state, &key.digest, "b", now).await).principal;
    assert_eq!(principal.headers.permissions(), "b", "what both have");
    assert_eq!(refused(&require(state, &key.digest, "a", now).await), Refusal::Forbidden);
    assert_eq!(refused(&require(state, &key.digest, "c", now).await), Refusal::Forbidden);
    // The key loses what the user loses, and has what the user gets as far as its policy says so.
    permit(&["a", "c"]).await;
    assert_eq!(refused(&require(state, &key.digest, "b", now).await), Refusal::Forbidden);
    assert_eq!(admitted(require(state, &key.digest, "c", now).await).principal.headers.permissions(), "c");
    assert_eq!(record(state, &key).await.policy.unwrap().permissions, Some(own));
    set(state, &key, PolicyPatch { permissions: Field::Clear, ..PolicyPatch::default() }).await;
    assert_eq!(admitted(require(state, &key.digest, "a", now).await).principal.headers.permissions(), "a,c");
    assert_eq!(record(state, &key).await.policy, None, "a policy that narrows nothing is none");
}

pub(super) async fn disabled_key_is_refused_until_it_is_enabled(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let other = fixture.key(state).await;
    let now = clock::now();
    let validity = admit(state, &key, now).await;
    for at in [now, now.after(TOKEN)] {
        set(state, &key, disabled(at, DisabledBy::Person)).await;
        let first = record(state, &key).await.policy.unwrap().disabled;
        assert_eq!(first, Some(Disabled { at: now, by: DisabledBy::Person }), "the first one stands");
    }
    let before = everything(state, &key, now).await;
    for _ in 0..10 {
        assert_eq!(refuse(state, &key, now).await, Refusal::KeyDisabled);
    }
    assert_eq!(everything(state, &key, now).await, before);
    let check = async || state.check_credential(&validity.principal, &validity.validity, now).await.unwrap();
    assert_eq!(check().await, CredentialStatus::Revoked(RevokedBy::Key));
    admit(state, &other, now).await;
    set(state, &key, enabled()).await;
    admit(state, &key, now.after(TOKEN)).await;
    assert!(matches!(check().await, CredentialStatus::Valid(_)));
    revoke(state, &key).await;
    let late = try_set(state, &key, enabled(), PolicyScope::Operator).await;
    assert!(matches!(late, Err(ChangeError::Revoked(id)) if id == key.id), "{late:?}");
}

pub(super) async fn key_expires_by_the_clock_that_decides(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    let expires = now.after(10 * TOKEN);
    set(state, &key, expiring(expires)).await;
    let opened = admit(state, &key, now).await;
    assert_eq!(opened.validity.until(), expires, "what is open ends then");
    admit(state, &key, Micros(expires.0 - 1)).await;
    for late in [expires, expires.after(TOKEN)] {
        assert_eq!(refuse(state, &key, late).await, Refusal::KeyExpired);
    }
    // The end of a secret and that of the key: the earlier one ends it, and that of the secret is the reason.
    let second = rotate(state, &key, now, now.after(5 * TOKEN)).await;
    assert_eq!(admit(state, &key, now.after(TOKEN)).await.validity.until(), now.after(5 * TOKEN));
    assert_eq!(refuse(state, &key, now.after(5 * TOKEN)).await, Refusal::Expired);
    assert_eq!(refuse(state, &key, expires).await, Refusal::Expired);
    assert_eq!(refuse(state, &second, expires).await, Refusal::KeyExpired);
    let later = expires.after(10 * TOKEN);
    set(state, &key, expiring(later)).await;
    let admitted = admit(state, &second, expires).await;
    assert_eq!(admitted.validity.until(), later);
}

pub(super) async fn addresses_outside_the_networks_are_refused_and_not_remembered(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    let nets = networks(&["10.0.0.0/8", "2001:db8::/32"]);
    set(state, &key, PolicyPatch { networks: Field::Set(nets), ..PolicyPatch::default() }).await;
    let before = everything(state, &key, now).await;
    // Far more than it takes until a key is refused without asking Redis.
    for _ in 0..20 {
        for client in [None, Some("11.0.0.1"), Some("::1"), Some("::ffff:11.0.0.1"), Some("2001:db9::1")] {
            let decision = decide_from(state, &key, client, now).await;
            assert_eq!(refused(&decision), Refusal::AddressRefused, "{client:?}");
            assert!(matches!(decision, Decision::Denied { rate_limit: None, .. }), "a thief learns nothing");
        }
    }
    assert_eq!(everything(state, &key, now).await, before);
    for client in ["10.255.0.1", "::ffff:10.1.2.3", "2001:db8::1"] {
        drop(admitted(decide_from(state, &key, Some(client), now).await));
        assert_eq!(refused(&decide_from(state, &key, Some("192.0.2.1"), now).await), Refusal::AddressRefused);
    }
    // A narrower list holds for the next decision.
    let narrow = networks(&["10.1.0.0/16"]);
    set(state, &key, PolicyPatch { networks: Field::Set(narrow), ..PolicyPatch::default() }).await;
    assert_eq!(refused(&decide_from(state, &key, Some("10.255.0.1"), now).await), Refusal::AddressRefused);
    drop(admitted(decide_from(state, &key, Some("10.1.0.1"), now).await));
}

pub(super) async fn owner_narrows_and_the_operator_alone_undoes_what_the_operator_disabled(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    set(state, &key, expiring(now.after(10 * TOKEN))).await;
    let try_as = async |scope, patch| try_set(state, &key, patch, scope).await;
    try_as(PolicyScope::Owner, expiring(now.after(9 * TOKEN))).await.unwrap();
    let wider = PolicyPatch { expires: Field::Clear, ..PolicyPatch::default() };
    for patch in [wider.clone(), expiring(now.after(10 * TOKEN))] {
        let refused = try_as(PolicyScope::Owner, patch).await;
        assert!(matches!(refused, Err(ChangeError::Widened(id)) if id == key.id), "{refused:?}");
    }
    for by in [DisabledBy::Person, DisabledBy::Unused] {
        set(state, &key, disabled(now, by)).await;
        try_as(PolicyScope::Owner, enabled()).await.unwrap();
    }
    for by in [DisabledBy::Operator, DisabledBy::Leak] {
        set(state, &key, disabled(now, by)).await;
        for scope in [PolicyScope::Owner, PolicyScope::Admin { at: clock::now() }] {
            let refused = try_as(scope, enabled()).await;
            assert!(matches!(refused, Err(ChangeError::DisabledByOperator(id)) if id == key.id), "{refused:?}");
        }
        set(state, &key, enabled()).await;
    }
    // Disabled by a person first, and then by the operator: it is the operator's.
    set(state, &key, disabled(now, DisabledBy::Person)).await;
    set(state, &key, disabled(now.after(TOKEN), DisabledBy::Leak)).await;
    let refused = try_as(PolicyScope::Owner, enabled()).await;
    assert!(matches!(refused, Err(ChangeError::DisabledByOperator(_))), "{refused:?}");
    let mark = record(state, &key).await.policy.unwrap().disabled;
    assert_eq!(mark, Some(Disabled { at: now, by: DisabledBy::Leak }));
    set(state, &key, enabled()).await;
    try_as(PolicyScope::Admin { at: clock::now() }, wider).await.unwrap();
    let invalid =
        try_as(PolicyScope::Operator, PolicyPatch { concurrent: Field::Set(0), ..PolicyPatch::default() }).await;
    assert!(matches!(invalid, Err(ChangeError::InvalidPolicy { .. })), "{invalid:?}");
    assert_eq!(record(state, &key).await.policy, None);
}

/// Changes of different fields by two at once: neither undoes the other's.
pub(super) async fn changes_of_two_fields_at_once_both_hold(state: &State) {
    let fixture = new_fixture(state).await;
    let now = clock::now();
    for round in 1..=20 {
        let key = fixture.key(state).await;
        let expiry = set(state, &key, expiring(now.after(round * TOKEN)));
        let nets = networks(&["10.0.0.0/8"]);
        let networks = set(state, &key, PolicyPatch { networks: Field::Set(nets.clone()), ..PolicyPatch::default() });
        tokio::join!(expiry, networks);
        let policy = record(state, &key).await.policy.unwrap();
        let expected = KeyPolicy { expires: Some(now.after(round * TOKEN)), networks: nets, ..KeyPolicy::default() };
        assert_eq!(*policy, expected);
        let decided = admitted(decide_from(state, &key, Some("10.0.0.1"), now).await);
        assert_eq!(decided.rate_limit.remaining, QUOTA.burst - 1);
    }
}
