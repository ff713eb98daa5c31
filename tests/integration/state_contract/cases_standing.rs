//! Preconditions of changes by people: their standing, and the policy of the organization, at the moment of the change.

use std::time::Duration;

use domain::clock;
use domain::identity::UserId;
use domain::key::policy::{Field, KeyPolicy, PolicyPatch};
use futures_util::future::join_all;
use state::{ADMIN, Change, ChangeError, OrgPatch, OrgPolicy, OrgPolicyPatch, PolicyScope, State, User};

use super::fixture::{Fixture, fixture_with_key, new_fixture, new_key, new_user, permission};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Rounds of a race.
const ROUNDS: usize = 20;

async fn admin(state: &State, fixture: &Fixture, email: &str) -> UserId {
    let user = User { permissions: vec![permission(ADMIN)], ..new_user(fixture.org, email) };
    let id = user.id;
    state.change(Change::CreateUser(user)).await.unwrap();
    id
}

async fn resume(state: &State, fixture: &Fixture, user: UserId) {
    state.change(Change::suspend_user(fixture.org, user, None, true)).await.unwrap();
}

/// Of administrators who suspend one another, or themselves, at once, or take the role away, one is left.
pub(super) async fn last_administrator_stays_whatever_happens_at_once(state: &State) {
    let fixture = new_fixture(state).await;
    let admins = [admin(state, &fixture, "ada@example.com").await, admin(state, &fixture, "amy@example.com").await];
    for round in 0..ROUNDS {
        let targets = if round % 2 == 0 { [admins[1], admins[0]] } else { admins };
        let end_role = |user| match round % 4 {
            0 | 1 => Change::suspend_user(fixture.org, user, Some(clock::now()), false),
            _ => Change::permit_user(fixture.org, user, Vec::new(), None),
        };
        let tries = admins.into_iter().zip(targets).map(|(by, user)| state.change(end_role(user).by_person(by)));
        let results = join_all(tries).await;
        let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        let expected = |error: &&ChangeError| matches!(error, ChangeError::NotAllowed(_) | ChangeError::LastAdmin(_));
        assert!(refused.len() == 1 && refused.iter().all(expected), "in round {round}: {results:?}");
        for user in admins {
            resume(state, &fixture, user).await;
            state.change(Change::permit_user(fixture.org, user, vec![permission(ADMIN)], None)).await.unwrap();
        }
    }
    let remove = |user| Change::RemoveUser { org: fixture.org, user, at: clock::now() };
    state.change(remove(admins[0]).by_person(admins[1])).await.unwrap();
    let refused = state.change(remove(admins[1]).by_person(admins[1])).await;
    assert!(matches!(refused, Err(ChangeError::LastAdmin(_))), "{refused:?}");
}

/// A person gives others, and themselves, no permission that they do not have; what a user has may stay.
pub(super) async fn person_gives_no_permission_that_they_lack(state: &State) {
    let fixture = new_fixture(state).await;
    let ada = admin(state, &fixture, "ada@example.com").await;
    let permit = async |user, names: &[&str], by: Option<UserId>| {
        let permissions = names.iter().map(|name| permission(name)).collect();
        let change = Change::permit_user(fixture.org, user, permissions, None);
        state.change(by.map_or(change.clone(), |by| change.by_person(by))).await
    };
    let exceeds =
        |result| matches!(result, Err(ChangeError::GrantExceeds(given)) if given == permission("billing:pay"));
    for user in [ada, fixture.user] {
        assert!(exceeds(permit(user, &[ADMIN, "billing:pay"], Some(ada)).await));
    }
    let created = User { permissions: vec![permission("billing:pay")], ..new_user(fixture.org, "eve@example.com") };
    assert!(exceeds(state.change(Change::CreateUser(created.clone()).by_person(ada)).await));
    permit(fixture.user, &["billing:pay"], None).await.unwrap();
    permit(fixture.user, &["billing:pay", ADMIN], Some(ada)).await.unwrap();
    permit(fixture.user, &[], Some(ada)).await.unwrap();
    assert!(exceeds(permit(fixture.user, &["billing:pay"], Some(ada)).await), "it was taken away");
    permit(ada, &[ADMIN, "billing:pay"], None).await.unwrap();
    state.change(Change::CreateUser(created).by_person(ada)).await.unwrap();
    let other = User { permissions: Vec::new(), ..new_user(fixture.org, "joe@example.com") };
    let by_member = state.change(Change::CreateUser(other).by_person(fixture.user)).await;
    assert!(matches!(by_member, Err(ChangeError::NotAllowed(_))), "{by_member:?}");
}

/// A person who is suspended, or an administrator no longer, when the change is made does not make it.
pub(super) async fn person_without_the_right_changes_nothing(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let ada = admin(state, &fixture, "ada@example.com").await;
    let now = clock::now();
    let create = |user| {
        let (key, digest) = new_key(fixture.tag, fixture.org, user);
        Change::CreateKey { key, digest }
    };
    let refused = async |by, change: Change| {
        let result = state.change(change.by_person(by)).await;
        let is_refused = match &result {
            Err(ChangeError::NotAllowed(person)) => *person == by,
            Err(ChangeError::OrgSuspended(org)) => *org == fixture.org,
            _ => false,
        };
        assert!(is_refused, "{result:?}");
    };
    state.change(create(fixture.user).by_person(ada)).await.unwrap();
    state.change(create(fixture.user).by_person(fixture.user)).await.unwrap();
    // A user who is no administrator changes their own keys only, and no users.
    refused(fixture.user, create(ada)).await;
    refused(fixture.user, Change::suspend_user(fixture.org, ada, Some(now), false)).await;
    let other = new_fixture(state).await;
    refused(other.user, Change::RevokeKey { key: key.id, at: now }).await;
    for change in [
        Change::permit_user(fixture.org, ada, vec![permission("queries:read")], None),
        Change::suspend_user(fixture.org, ada, Some(now), false),
    ] {
        state.change(change).await.unwrap();
        refused(ada, create(fixture.user)).await;
        refused(ada, Change::RevokeKey { key: key.id, at: now }).await;
        resume(state, &fixture, ada).await;
        state.change(Change::permit_user(fixture.org, ada, vec![permission(ADMIN)], None)).await.unwrap();
    }
    fixture.suspend(state, true).await;
    refused(ada, create(fixture.user)).await;
    state.change(Change::RevokeKey { key: key.id, at: now }.by_person(ada)).await.unwrap();
}

/// An administrator puts an expiry off within the policy of the organization, whatever the operator changes at once.
pub(super) async fn expiry_is_put_off_within_the_policy(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let now = clock::now();
    let policy = OrgPolicy { max_expiry: Some(30 * DAY), ..OrgPolicy::default() };
    state.change(Change::set_org_policy(fixture.org, policy)).await.unwrap();
    let expire = async |days: u32, scope| {
        let patch = PolicyPatch { expires: Field::Set(now.after(days * DAY)), ..PolicyPatch::default() };
        state.change(Change::set_key_policy(key.id, Box::new(patch), scope)).await
    };
    let clear = async || {
        let patch = PolicyPatch { expires: Field::Clear, ..PolicyPatch::default() };
        state.change(Change::set_key_policy(key.id, Box::new(patch), PolicyScope::Operator)).await.unwrap();
    };
    for _ in 0..ROUNDS {
        let admin = PolicyScope::Admin { at: now };
        let (operator, by_admin) = tokio::join!(expire(1, PolicyScope::Operator), expire(9000, admin));
        operator.unwrap();
        let expires = state.key(key.id).await.unwrap().unwrap().policy.unwrap().expires.unwrap();
        assert!(expires == now.after(DAY), "the operator's expiry was put off to {expires}: {by_admin:?}");
        assert!(matches!(expire(9000, admin).await, Err(ChangeError::TooLate(_))));
        expire(30, admin).await.unwrap();
        clear().await;
    }
}

/// A new key expires within the policy that the organization has when it is created.
pub(super) async fn new_key_is_within_the_policy(state: &State) {
    let fixture = new_fixture(state).await;
    let policy = OrgPolicy { max_expiry: Some(30 * DAY), ..OrgPolicy::default() };
    state.change(Change::set_org_policy(fixture.org, policy)).await.unwrap();
    let create = async |days: Option<u32>| {
        let (mut key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
        let expires = days.map(|days| key.created.after(days * DAY));
        key.policy = KeyPolicy { expires, ..KeyPolicy::default() }.boxed();
        state.change(Change::CreateKey { key, digest }).await
    };
    for beyond in [None, Some(31)] {
        assert!(matches!(create(beyond).await, Err(ChangeError::TooLate(_))));
    }
    create(Some(30)).await.unwrap();
    fixture.session_quota_key(state, fixture.user).await;
}

/// Changes of different values of a policy at once all hold, and the policy stays valid.
pub(super) async fn values_of_an_organizations_policy_change_one_by_one(state: &State) {
    let fixture = new_fixture(state).await;
    let set = async |policy: OrgPolicyPatch| {
        let patch = OrgPatch { policy, ..OrgPatch::default() };
        state.change(Change::UpdateOrg { org: fixture.org, patch }).await
    };
    for round in 1..10 {
        let max = OrgPolicyPatch { max_expiry: Some(Some(round * 10 * DAY)), ..OrgPolicyPatch::default() };
        let default = OrgPolicyPatch { default_expiry: Some(Some(round * DAY)), ..OrgPolicyPatch::default() };
        let (of_max, of_default) = tokio::join!(set(max), set(default));
        of_max.unwrap();
        of_default.unwrap();
        let policy = fixture.record(state).await.policy;
        assert_eq!((policy.max_expiry, policy.default_expiry), (Some(round * 10 * DAY), Some(round * DAY)));
    }
    let beyond = OrgPolicyPatch { default_expiry: Some(Some(91 * DAY)), ..OrgPolicyPatch::default() };
    assert!(matches!(set(beyond).await, Err(ChangeError::InvalidOrgPolicy(_))));
}
