//! Effect of each change on the decisions after it.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::key::KeyDigest;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::{Change, ChangeError, Decision, Defaults, LastRotation, Org, OrgPolicy, State, UnusedKeys};

use super::fixture::{
    Fixture, admit, admitted, decide, fixture_with_key, new_fixture, new_key, new_org, new_user, permission,
    rate_limit_status, record, refuse, refused, require, rotate,
};
use super::{CONCURRENT, QUOTA, TOKEN};
use crate::support::Random;

pub(super) async fn revocation_holds_at_once_and_for_good(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let other = fixture.key(state).await;
    let at = clock::now();
    state.change(Change::RevokeKey { key: key.id, at }).await.unwrap();
    assert_eq!(refuse(state, &key, at.before(TOKEN)).await, Refusal::Revoked);
    state.change(Change::RevokeKey { key: key.id, at: at.after(TOKEN) }).await.unwrap();
    assert_eq!(record(state, &key).await.revoked, Some(at));
    admit(state, &other, at).await;
    let digest = KeyDigest::of(b"new");
    let rotation = Change::RotateKey { key: key.id, digest, at, previous_until: at, last: LastRotation::Any };
    assert!(matches!(state.change(rotation).await, Err(ChangeError::Revoked(id)) if id == key.id));
    assert_eq!(refused(&decide(state, &digest, at).await), Refusal::Unknown);
}

pub(super) async fn rotation_replaces_the_secret_and_nothing_else(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    admit(state, &key, now).await;
    let new = rotate(state, &key, now, now).await;
    // An empty overlap is empty, whatever time the decision carries.
    for now in [now.before(TOKEN), now, now.after(TOKEN)] {
        assert_eq!(refuse(state, &key, now).await, Refusal::Expired);
    }
    let admitted = admit(state, &new, now).await;
    assert_eq!((admitted.principal.key_id, admitted.number, admitted.rate_limit.remaining), (Some(key.id), 2, 3));
    assert_eq!(record(state, &key).await.rotated, Some(now));
}

pub(super) async fn rotation_that_depends_on_another_changes_nothing(state: &State) {
    let (_, first) = fixture_with_key(state).await;
    let now = clock::now();
    let until = now.after(10 * TOKEN);
    let rotation = |digest: &KeyDigest, at, last| {
        let change = Change::RotateKey { key: first.id, digest: *digest, at, previous_until: until, last };
        state.change(change)
    };
    let digests = [&b"second"[..], b"third"].map(|name| KeyDigest::of(&[name, first.id.as_str().as_bytes()].concat()));
    let [second, third] = &digests;
    let early = rotation(second, now, LastRotation::At(now)).await;
    assert!(matches!(early, Err(ChangeError::Rotated { rotated: None, .. })), "{early:?}");
    rotation(second, now, LastRotation::Never).await.unwrap();
    for stale in [LastRotation::Never, LastRotation::At(Micros(now.0 - 1))] {
        let refused = rotation(third, now.after(TOKEN), stale).await;
        let is_told =
            matches!(refused, Err(ChangeError::Rotated { key, rotated }) if (key, rotated) == (first.id, Some(now)));
        assert!(is_told, "{stale:?}: {refused:?}");
    }
    admit(state, &first, now).await;
    assert_eq!(refused(&decide(state, third, now).await), Refusal::Unknown);
    assert_eq!(record(state, &first).await.rotated, Some(now));
    rotation(third, now.after(TOKEN), LastRotation::At(now)).await.unwrap();
    assert_eq!(refuse(state, &first, now).await, Refusal::Expired);
}

pub(super) async fn rotation_overlap_keeps_the_previous_secret_valid(state: &State) {
    let (_, first) = fixture_with_key(state).await;
    let now = clock::now();
    let until = now.after(10 * TOKEN);
    let second = rotate(state, &first, now, until).await;
    admit(state, &first, now).await;
    admit(state, &second, now).await;
    admit(state, &first, Micros(until.0 - 1)).await;
    assert_eq!(refuse(state, &first, until).await, Refusal::Expired);
    assert_eq!(record(state, &first).await.previous_until, Some(until));
    let third = rotate(state, &second, now, until).await;
    assert_eq!(refuse(state, &first, now).await, Refusal::Expired);
    admit(state, &second, Micros(until.0 - 1)).await;
    admit(state, &third, until).await;
}

pub(super) async fn permissions_follow_the_user(state: &State) {
    let (Fixture { org, user, .. }, key) = fixture_with_key(state).await;
    let now = clock::now();
    let both = vec![permission("queries:read"), permission("queries:write")];
    assert_eq!(refused(&require(state, &key.digest, "queries:write", now).await), Refusal::Forbidden);
    state.change(Change::permit_user(org, user, both.clone(), None)).await.unwrap();
    let principal = admitted(require(state, &key.digest, "queries:write", now).await).principal;
    assert_eq!(principal.headers.permissions(), "queries:read,queries:write");
    assert_eq!(state.users(org).await.unwrap()[0].permissions, both);
    state.change(Change::permit_user(org, user, Vec::new(), None)).await.unwrap();
    assert_eq!(refused(&require(state, &key.digest, "queries:read", now).await), Refusal::Forbidden);
    assert_eq!(admit(state, &key, now).await.principal.headers.permissions(), "");
}

pub(super) async fn withdrawn_user_is_denied_until_permitted_again(state: &State) {
    let (fixture, now) = (new_fixture(state).await, clock::now());
    let (org, user) = (fixture.org, fixture.user);
    let key = fixture.key(state).await;
    let quota_key = fixture.session_quota_key(state, user).await;
    let other = fixture.user(state, "other@example.com").await;
    let key_of_other = fixture.key_of(state, other).await;
    let record = async || state.member(org, user).await.unwrap().unwrap().1;
    let permissions = record().await.permissions;
    admit(state, &key, now).await;
    admit(state, &quota_key, now).await;
    let later = now.after(TOKEN);
    for at in [now, later] {
        state.change(Change::WithdrawUser { org, user, at }).await.unwrap();
        let withdrawn = record().await;
        assert_eq!((withdrawn.withdrawn, &withdrawn.permissions), (Some(now), &permissions), "the first one stands");
        assert!(!withdrawn.is_active());
    }
    // On every route, also on one that asks for no permission; a refusal takes nothing.
    for held in [&key, &quota_key] {
        for _ in 0..10 {
            assert_eq!(refuse(state, held, later).await, Refusal::Forbidden);
        }
    }
    admit(state, &key_of_other, later).await;
    let permit = Change::permit_user(org, user, permissions.clone(), None);
    state.change(permit).await.unwrap();
    assert_eq!((record().await.withdrawn, record().await.permissions), (None, permissions));
    admit(state, &key, later).await;
    admit(state, &quota_key, later).await;
    let nobody = domain::identity::UserId::generate();
    let missing = state.change(Change::WithdrawUser { org, user: nobody, at: now }).await;
    assert!(matches!(missing, Err(ChangeError::NoUser(id)) if id == nobody), "{missing:?}");
    state.change(Change::RemoveUser { org, user, at: now }).await.unwrap();
    let removed = state.change(Change::WithdrawUser { org, user, at: now }).await;
    assert!(matches!(removed, Err(ChangeError::NoUser(id)) if id == user), "{removed:?}");
}

pub(super) async fn suspended_user_is_denied_until_resumed(state: &State) {
    let (fixture, now) = (new_fixture(state).await, clock::now());
    let (org, user) = (fixture.org, fixture.user);
    let key = fixture.key(state).await;
    let quota_key = fixture.session_quota_key(state, user).await;
    let other = fixture.user(state, "other@example.com").await;
    let key_of_other = fixture.key_of(state, other).await;
    let record = async || state.member(org, user).await.unwrap().unwrap().1;
    admit(state, &key, now).await;
    let later = now.after(TOKEN);
    for at in [now, later] {
        state.change(Change::suspend_user(org, user, Some(at), true)).await.unwrap();
        let suspended = record().await;
        assert_eq!((suspended.suspended, suspended.is_active()), (Some(now), false), "the first one stands");
    }
    // A caller learns nothing about the key; a refusal takes nothing.
    for held in [&key, &quota_key] {
        for _ in 0..10 {
            let decision = decide(state, &held.digest, later).await;
            assert_eq!(refused(&decision), Refusal::UserSuspended);
            assert!(matches!(decision, Decision::Denied { principal: Some(_), rate_limit: None, .. }));
        }
    }
    admit(state, &key_of_other, later).await;
    // Permissions are given and taken meanwhile, a new key is refused, and a secret can be replaced.
    let permit = Change::permit_user(org, user, Vec::new(), None);
    state.change(permit).await.unwrap();
    assert_eq!((record().await.suspended, record().await.permissions), (Some(now), Vec::new()));
    let late = fixture.key(state).await;
    assert_eq!(refuse(state, &late, later).await, Refusal::UserSuspended);
    for _ in 0..2 {
        state.change(Change::suspend_user(org, user, None, true)).await.unwrap();
        assert_eq!(record().await.suspended, None);
    }
    for held in [&key, &quota_key, &late] {
        admit(state, held, later).await;
    }
    let nobody = domain::identity::UserId::generate();
    let missing = state.change(Change::suspend_user(org, nobody, Some(now), true)).await;
    assert!(matches!(missing, Err(ChangeError::NoUser(id)) if id == nobody), "{missing:?}");
    state.change(Change::suspend_user(org, user, Some(now), true)).await.unwrap();
    state.change(Change::RemoveUser { org, user, at: now }).await.unwrap();
    for at in [Some(now), None] {
        let removed = state.change(Change::suspend_user(org, user, at, true)).await;
        assert!(matches!(removed, Err(ChangeError::NoUser(id)) if id == user), "{removed:?}");
    }
    assert_eq!(refuse(state, &key, later).await, Refusal::UserRemoved);
}

pub(super) async fn organization_has_the_policy_that_was_set_last(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let org = fixture.org;
    let before = fixture.record(state).await;
    assert_eq!(before.policy, OrgPolicy::default());
    let days = |days: u32| Some(Duration::from_secs(24 * 3600) * days);
    let unused_keys = Some(UnusedKeys::Never);
    let whole = OrgPolicy { max_expiry: days(90), default_expiry: days(30), unused_keys };
    for policy in [whole, OrgPolicy { unused_keys, ..OrgPolicy::default() }, OrgPolicy::default()] {
        state.change(Change::set_org_policy(org, policy)).await.unwrap();
        let expected = Org { policy, ..before.clone() };
        assert_eq!(fixture.record(state).await, expected, "nothing else changes");
        assert_eq!(state.org(org).await.unwrap(), Some(expected));
        admit(state, &key, clock::now()).await;
    }
    let nowhere = domain::identity::OrgId::generate();
    let missing = state.change(Change::set_org_policy(nowhere, whole)).await;
    assert!(matches!(missing, Err(ChangeError::NoOrg(id)) if id == nowhere), "{missing:?}");
    let created = Org { policy: whole, ..new_org() };
    if state.change(Change::CreateOrg(created.clone())).await.is_ok() {
        assert_eq!(state.org(created.id).await.unwrap(), Some(created));
    }
}

pub(super) async fn keys_of_a_removed_user_are_denied(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let Fixture { org, user, tag } = fixture;
    let stranger = fixture.user(state, "bob@example.com").await;
    let kept = fixture.key_of(state, stranger).await;
    let at = clock::now();
    state.change(Change::RemoveUser { org, user, at }).await.unwrap();
    assert_eq!(refuse(state, &key, at).await, Refusal::UserRemoved);
    admit(state, &kept, at).await;
    assert_eq!(state.users(org).await.unwrap()[0].removed, Some(at));
    let (orphan, digest) = new_key(tag, org, user);
    for change in [
        Change::RemoveUser { org, user, at },
        Change::permit_user(org, user, Vec::new(), None),
        Change::CreateKey { key: orphan, digest },
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoUser(id)) if id == user));
    }
    state.change(Change::CreateUser(new_user(org, "ann@example.com"))).await.unwrap();
    assert_eq!(refuse(state, &key, at).await, Refusal::UserRemoved);
}

pub(super) async fn suspension_holds_until_resumed(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (_, foreign) = fixture_with_key(state).await;
    let now = clock::now();
    fixture.suspend(state, true).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::OrgSuspended);
    assert!(fixture.record(state).await.suspended);
    admit(state, &foreign, now).await;
    fixture.suspend(state, false).await;
    admit(state, &key, now).await;
}

pub(super) async fn organization_limits_hold_at_once(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (org, now) = (fixture.org, clock::now());
    state.change(Change::limit_org(org, Some(1))).await.unwrap();
    let held = admit(state, &key, now).await;
    assert_eq!(held.rate_limit.concurrent, 1);
    assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    assert_eq!(fixture.record(state).await.concurrent, Some(1));
    state.change(Change::limit_org(org, None)).await.unwrap();
    assert_eq!(admit(state, &key, now).await.rate_limit.concurrent, CONCURRENT);
}

pub(super) async fn quota_change_keeps_the_tokens(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let limit = async |quota| state.change(Change::limit_key(key.id, quota)).await.unwrap();
    admit(state, &key, clock::now()).await;
    // So slow that no token flows in during the test.
    let larger = Quota { requests: 1, per: Duration::from_secs(360_000), burst: 100, strict: false };
    limit(Some(larger)).await;
    let stands = rate_limit_status(state, &key, clock::now()).await;
    assert_eq!((stands.quota, stands.remaining), (larger, 4));
    limit(Some(Quota { burst: 2, ..larger })).await;
    assert_eq!(rate_limit_status(state, &key, clock::now()).await.remaining, 2);
    assert_eq!(record(state, &key).await.quota, Some(Quota { burst: 2, ..larger }));
    limit(None).await;
    let stands = rate_limit_status(state, &key, clock::now()).await;
    assert_eq!((stands.quota, stands.remaining), (QUOTA, 2));
}

/// So slow that no token flows in during a test.
const SLOW: Quota = Quota { requests: 1, per: Duration::from_secs(360_000), burst: 100, strict: false };

pub(super) async fn default_limits_change_at_once_and_keep_tokens(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let held = [admit(state, &key, clock::now()).await, admit(state, &key, clock::now()).await];
    state.set_defaults(Defaults::new(SLOW, 2));
    assert_eq!((state.quota(), state.concurrent()), (SLOW, 2));
    assert_eq!(refuse(state, &key, clock::now()).await, Refusal::TooManyInFlight);
    drop(held);
    let stands = admit(state, &key, clock::now()).await.rate_limit;
    assert_eq!((stands.quota, stands.remaining, stands.concurrent, stands.in_flight), (SLOW, 2, 2, 1));
    let later = admit(state, &fixture.key(state).await, clock::now()).await.rate_limit;
    assert_eq!((later.quota, later.remaining), (SLOW, 99), "a key made afterwards");

    state.set_defaults(Defaults::new(Quota { burst: 1, ..SLOW }, CONCURRENT));
    let stands = rate_limit_status(state, &key, clock::now()).await;
    assert_eq!((stands.quota.burst, stands.remaining, stands.concurrent), (1, 1, CONCURRENT));
}

pub(super) async fn strict_quota_admits_its_requests_at_most_in_any_window(state: &State) {
    let default = Quota { requests: 10, per: Duration::from_secs(10), burst: 4, strict: true };
    let (fixture, key) = fixture_with_key(state).await;
    state.set_defaults(Defaults::new(default, CONCURRENT));
    assert_eq!(rate_limit_status(state, &key, clock::now()).await.quota, default);
    let own = fixture.key(state).await;
    // All at once, as where no burst is chosen: the configuration leaves it a tenth.
    let quota = Quota { requests: 30, per: Duration::from_secs(5), burst: 30, strict: false };
    state.change(Change::limit_key(own.id, Some(quota))).await.unwrap();
    let own_in_force = Quota { burst: 3, strict: true, ..quota };
    assert_eq!(rate_limit_status(state, &own, clock::now()).await.quota, own_in_force);
    for (key, quota) in [(&key, default), (&own, own_in_force)] {
        let mut random = Random::new(quota.requests.into());
        // Longer than any bucket takes to fill, so that each trace begins with a full one.
        let mut now = clock::now().after(Duration::from_secs(3600));
        let mut admitted = Vec::new();
        for _ in 0..200 {
            let token = quota.per_micros() / u64::from(quota.requests);
            let most = if random.below(8) == 0 { 6 * token } else { token };
            let pause = random.below(most);
            now = now.after(Duration::from_micros(pause));
            if matches!(decide(state, &key.digest, now).await, Decision::Admitted(_)) {
                admitted.push(now);
            }
        }
        let in_window = |first: &Micros| {
            admitted.iter().filter(|time| *time >= first && time.since(*first) < quota.per_micros()).count()
        };
        let most = admitted.iter().map(in_window).max().unwrap();
        assert!((quota.requests as usize * 9 / 10..=quota.requests as usize).contains(&most), "{most} of {quota:?}");
    }
}

/// A key that was last used before a reload: the time until the reload counts by the quota of then.
pub(super) async fn time_before_other_default_limits_counts_by_those_before(state: &State) {
    let (fixture, slower) = fixture_with_key(state).await;
    let faster = fixture.key(state).await;
    let seconds = |count| clock::now().before(Duration::from_secs(count));
    super::fixture::drain(state, &slower, seconds(3)).await;
    state.set_defaults(Defaults::new(SLOW, CONCURRENT));
    let remaining = rate_limit_status(state, &slower, clock::now()).await.remaining;
    assert!((3..=5).contains(&remaining), "{remaining}: three tokens of the old rate");
    assert!(admit(state, &slower, clock::now()).await.rate_limit.remaining + 1 >= remaining);

    state.set_defaults(Defaults::new(QUOTA, CONCURRENT));
    super::fixture::drain(state, &faster, seconds(60)).await;
    let fast = Quota { requests: 10, per: TOKEN, burst: 500, strict: false };
    let reload = clock::now();
    state.set_defaults(Defaults::new(fast, CONCURRENT));
    let remaining = rate_limit_status(state, &faster, clock::now()).await.remaining;
    let inflow = clock::now().since(reload) / 100_000 + 1;
    assert!(u64::from(remaining) <= 5 + inflow, "{remaining}: the old burst, and {inflow} since the reload");
}

pub(super) async fn default_limits_do_not_replace_own_limits(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (org, own) = (fixture.org, Quota { burst: 3, ..SLOW });
    let limit = async |quota| state.change(Change::limit_key(key.id, quota)).await.unwrap();
    limit(Some(own)).await;
    state.change(Change::limit_org(org, Some(7))).await.unwrap();
    state.set_defaults(Defaults::new(SLOW, 1));
    let stands = admit(state, &key, clock::now()).await.rate_limit;
    assert_eq!((stands.quota, stands.remaining, stands.concurrent), (own, 2, 7));
    limit(None).await;
    state.change(Change::limit_org(org, None)).await.unwrap();
    let stands = admit(state, &key, clock::now()).await.rate_limit;
    assert_eq!((stands.quota, stands.remaining, stands.concurrent), (SLOW, 1, 1), "the defaults in force now");
}
