//! Patches: the fields that one change names are changed together or not at all.

use std::time::Duration;

use domain::clock;
use domain::key::policy::{Disabled, DisabledBy, Field, PolicyPatch};
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::{
    Change, ChangeError, KeyPatch, OrgPatch, OrgPolicy, Permitted, PolicyChange, PolicyScope, State, UnusedKeys,
    UserPatch,
};

use super::TOKEN;
use super::fixture::{fixture_with_key, new_fixture, permission, record, refuse};

pub(super) async fn fields_of_an_organization_are_changed_together(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let before = fixture.record(state).await;
    let policy = OrgPolicy { unused_keys: Some(UnusedKeys::Never), ..OrgPolicy::default() };
    let patch =
        OrgPatch { suspended: Some(true), concurrent: Field::Set(7), policy: policy.into(), ..OrgPatch::default() };
    state.change(Change::UpdateOrg { org: fixture.org, patch: patch.clone() }).await.unwrap();
    let after = fixture.record(state).await;
    assert_eq!((after.suspended, after.concurrent, after.policy), (true, Some(7), policy));
    assert_eq!(refuse(state, &key, clock::now()).await, Refusal::OrgSuspended);

    state.change(Change::UpdateOrg { org: fixture.org, patch: OrgPatch::default() }).await.unwrap();
    assert_eq!(fixture.record(state).await, after, "an empty patch changes nothing");
    let back = OrgPatch {
        suspended: Some(false),
        concurrent: Field::Clear,
        policy: OrgPolicy::default().into(),
        ..OrgPatch::default()
    };
    state.change(Change::UpdateOrg { org: fixture.org, patch: back }).await.unwrap();
    assert_eq!(fixture.record(state).await, before);
    let missing = domain::identity::OrgId::generate();
    let refused = state.change(Change::UpdateOrg { org: missing, patch }).await.unwrap_err();
    assert!(matches!(refused, ChangeError::NoOrg(org) if org == missing), "{refused}");
}

pub(super) async fn fields_of_a_user_are_changed_together(state: &State) {
    let fixture = new_fixture(state).await;
    let (org, user) = (fixture.org, fixture.user);
    let other = fixture.user(state, "other@example.com").await;
    let now = clock::now();
    let find = async || state.member(org, user).await.unwrap().unwrap().1;
    let before = find().await;
    let permitted = Some(Permitted { permissions: vec![permission("a"), permission("b")], vouched_by: None });
    // A person has no responsible person: the rest of the patch is not made either.
    let patch = UserPatch { permitted, suspended: Field::Set(now), responsible: Some(other), ..UserPatch::default() };
    let refused = state.change(Change::UpdateUser { org, user, patch: patch.clone() }).await.unwrap_err();
    assert!(matches!(refused, ChangeError::NotService(_)), "{refused}");
    assert_eq!(find().await, before);

    let patch = UserPatch { responsible: None, ..patch };
    state.change(Change::UpdateUser { org, user, patch }).await.unwrap();
    let after = find().await;
    assert_eq!((after.permissions.len(), after.suspended), (2, Some(now)));
    // Of several suspensions the first stands.
    let later = UserPatch { suspended: Field::Set(now.after(TOKEN)), ..UserPatch::default() };
    state.change(Change::UpdateUser { org, user, patch: later }).await.unwrap();
    assert_eq!(find().await, after);
}

pub(super) async fn quota_and_policy_of_a_key_are_changed_together(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let unnamed = record(state, &key).await;
    let patch = KeyPatch { name: Some("billing job".into()), ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
    assert_eq!(
        record(state, &key).await,
        state::Key { name: "billing job".into(), ..unnamed },
        "nothing else is changed"
    );
    let before = record(state, &key).await;
    let quota = Quota { requests: 7, per: Duration::from_secs(60), burst: 9, strict: false };
    let change = async |allowed, patch: PolicyPatch| {
        let policy = Some(PolicyChange { patch: Box::new(patch), allowed });
        state
            .change(Change::UpdateKey {
                key: key.id,
                patch: KeyPatch { quota: Field::Set(quota), policy, ..KeyPatch::default() },
            })
            .await
    };
    let now = clock::now();
    let disabled = Field::Set(Disabled { at: now, by: DisabledBy::Operator });
    change(PolicyScope::Operator, PolicyPatch { disabled, ..PolicyPatch::default() }).await.unwrap();
    let after = record(state, &key).await;
    assert_eq!(after.quota, Some(quota));
    assert!(after.policy.as_ref().is_some_and(|policy| policy.disabled.is_some()));
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyDisabled);

    // An administrator may not enable it: the quota stays, too.
    let clear = KeyPatch { quota: Field::Clear, ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch: clear }).await.unwrap();
    let enable = PolicyPatch { disabled: Field::Clear, ..PolicyPatch::default() };
    let refused = change(PolicyScope::Admin { at: clock::now() }, enable.clone()).await.unwrap_err();
    assert!(matches!(refused, ChangeError::DisabledByOperator(_)), "{refused}");
    assert_eq!(record(state, &key).await.quota, None);
    let policy = Some(PolicyChange { patch: Box::new(enable), allowed: PolicyScope::Operator });
    let patch = KeyPatch { policy, ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
    assert_eq!(record(state, &key).await, before);
}
