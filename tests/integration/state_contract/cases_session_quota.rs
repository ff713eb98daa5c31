//! Session quota keys, which meter the requests of a user's web sessions.

use domain::clock;
use domain::identity::AuthMethod;
use domain::key::{KeyDigest, PlainKey};
use domain::refusal::Refusal;
use state::{Change, ChangeError, Key, State, session_quota_digest};

use super::TOKEN;
use super::fixture::{
    Fixture, admit, admitted, drain, fixture_with_key, new_key, permission, rate_limit_status, refuse, refused,
    require, revoke,
};
use crate::support::decide::rotation;

pub(super) async fn session_quota_key_names_its_user_and_no_key(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (quota_key, now) = (fixture.session_quota_key(state, fixture.user).await, clock::now());
    let admitted = admitted(require(state, &quota_key.digest, "queries:read", now).await);
    let principal = &admitted.principal;
    assert_eq!((principal.user_id, principal.org_id), (fixture.user, fixture.org));
    assert_eq!((principal.key_id, principal.method), (None, AuthMethod::Session));
    assert_eq!(principal.key_id, None);
    assert_eq!(principal.headers.permissions(), "queries:read");
    assert_eq!(admitted.number, 1);
    let permissions = vec![permission("a")];
    state.change(Change::permit_user(fixture.org, fixture.user, permissions, None)).await.unwrap();
    let followed = admit(state, &quota_key, now).await.principal;
    assert_eq!((followed.key_id, followed.method), (None, AuthMethod::Session), "after a change of the user");
    assert_eq!(admit(state, &key, now).await.principal.method, AuthMethod::ApiKey);
}

pub(super) async fn session_quota_key_has_its_own_bucket(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let quota_key = fixture.session_quota_key(state, fixture.user).await;
    let (other, now) = (fixture.user(state, "bob@example.com").await, clock::now());
    let others = fixture.session_quota_key(state, other).await;
    drain(state, &quota_key, now).await;
    assert_eq!(refuse(state, &quota_key, now).await, Refusal::RateLimited);
    admit(state, &key, now).await;
    admit(state, &others, now).await;
    admit(state, &quota_key, now.after(TOKEN)).await;
    assert_eq!(rate_limit_status(state, &quota_key, now.after(TOKEN)).await.remaining, 0);
}

pub(super) async fn session_quota_keys_share_slots_with_the_keys_of_their_organization(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (quota_key, now) = (fixture.session_quota_key(state, fixture.user).await, clock::now());
    let mut held =
        vec![admit(state, &key, now).await, admit(state, &quota_key, now).await, admit(state, &key, now).await];
    assert_eq!(refuse(state, &quota_key, now).await, Refusal::TooManyInFlight);
    held.remove(0);
    held.push(admit(state, &quota_key, now).await);
    assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
}

pub(super) async fn session_quota_key_follows_its_user_and_organization(state: &State) {
    let (fixture, _) = fixture_with_key(state).await;
    let Fixture { org, user, .. } = fixture;
    let (quota_key, now) = (fixture.session_quota_key(state, user).await, clock::now());
    assert_eq!(refused(&require(state, &quota_key.digest, "queries:write", now).await), Refusal::Forbidden);
    fixture.suspend(state, true).await;
    assert_eq!(refuse(state, &quota_key, now).await, Refusal::OrgSuspended);
    fixture.suspend(state, false).await;
    admit(state, &quota_key, now).await;
    state.change(Change::RemoveUser { org, user, at: now }).await.unwrap();
    assert_eq!(refuse(state, &quota_key, now).await, Refusal::UserRemoved);
}

pub(super) async fn session_quota_keys_are_found_and_not_listed(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let quota_key = fixture.session_quota_key(state, fixture.user).await;
    let listed: Vec<_> = state.keys(fixture.org).await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(listed, [key.id]);
    assert_eq!(state.key_of(&session_quota_digest(fixture.user)).await.unwrap(), Some(quota_key.id));
    assert!(state.key(quota_key.id).await.unwrap().unwrap().session_quota_key);
    assert!(!state.key(key.id).await.unwrap().unwrap().session_quota_key);
    revoke(state, &quota_key).await;
    assert_eq!(refuse(state, &quota_key, clock::now()).await, Refusal::Revoked);
}

pub(super) async fn session_quota_key_is_unique_for_each_user(state: &State) {
    let (Fixture { org, user, tag }, held) = fixture_with_key(state).await;
    let digest = session_quota_digest(user);
    let (key, other) = new_key(tag, org, user);
    let mine = Key { session_quota_key: true, ..key.clone() };
    let rotate = |key, digest| rotation(key, digest, clock::now());
    let taken = async |change: Change| {
        let result = state.change(change.clone()).await;
        assert!(matches!(result, Err(ChangeError::Taken("digest"))), "{change:?}: {result:?}");
    };
    taken(Change::CreateKey { key: key.clone(), digest }).await;
    taken(Change::CreateKey { key: mine.clone(), digest: other }).await;
    taken(rotate(held.id, digest)).await;
    assert_eq!(state.key_of(&digest).await.unwrap(), None);
    state.change(Change::CreateKey { key: mine.clone(), digest }).await.unwrap();
    let again = Key { session_quota_key: true, ..new_key(tag, org, user).0 };
    taken(Change::CreateKey { key: again, digest }).await;
    assert_eq!(state.key_of(&digest).await.unwrap(), Some(mine.id));
    let plain: KeyDigest = PlainKey::generate(mine.id).unwrap().digest();
    let rotated = state.change(rotate(mine.id, plain)).await;
    assert!(matches!(rotated, Err(ChangeError::NoKey(id)) if id == mine.id), "{rotated:?}");
}
