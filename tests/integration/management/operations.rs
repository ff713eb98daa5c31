//! The typed operations: their effects on the next decision, their results and their errors.

use crate::support::updates::{bound, limit, permission, suspension};
use std::time::Duration;

use control::management::{
    Actor, ClientInfo, ErrorKind, KeyImport, KeyStatus, LimitUpdate, NewKeyRequest, PolicyUpdate, Rotation,
    SecretSource,
};
use domain::clock;
use domain::key::{self, KeyId};
use domain::page::PageQuery;
use domain::refusal::Refusal;

use super::{ADA, Fixture, OPERATOR, ORG, laptop};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn organizations_are_created_limited_and_suspended() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let presented = fixture.new_key().await.api_key.unwrap();
    let presented = presented.expose();
    let shown = management.show_org(OPERATOR, ORG, clock::now()).await.unwrap();
    let by_id = management.show_org(OPERATOR, &shown.id.to_string(), clock::now()).await.unwrap();
    assert_eq!(shown, by_id);

    let limited = management.update_org(OPERATOR, ORG, bound(Some(1)), clock::now()).await.unwrap();
    assert_eq!((limited.concurrent, limited.concurrent_in_force), (Some(1), 1));
    assert!(management.update_org(OPERATOR, ORG, suspension(true), clock::now()).await.unwrap().suspended);
    assert_eq!(fixture.refusal(presented, clock::now()).await, Some(Refusal::OrgSuspended));
    management.update_org(OPERATOR, ORG, suspension(false), clock::now()).await.unwrap();
    assert_eq!(fixture.refusal(presented, clock::now()).await, None);
    assert_eq!(management.list_orgs(OPERATOR, &PageQuery::default(), clock::now()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn users_are_permitted_and_removed() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let presented = fixture.new_key().await.api_key.unwrap();
    let permissions = ["b", "a", "b"].map(|text| text.parse().unwrap()).to_vec();
    let user =
        management.update_user(OPERATOR, ORG, "ADA@example.com", permission(permissions), clock::now()).await.unwrap();
    assert_eq!(user.email, ADA);
    assert_eq!(user.permissions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b"]);

    let id = user.id.to_string();
    management.remove_user(OPERATOR, ORG, &id, clock::now()).await.unwrap();
    assert_eq!(fixture.refusal(presented.expose(), clock::now()).await, Some(Refusal::UserRemoved));
    let again = management.remove_user(OPERATOR, ORG, &id, clock::now()).await;
    assert_eq!(again.unwrap_err().code(), "no_such_user", "removed for good");
    assert!(
        management.list_users(OPERATOR, ORG, &PageQuery::default(), clock::now()).await.unwrap().items[0]
            .removed
            .is_some()
    );
}

#[tokio::test]
async fn users_are_suspended_and_resumed() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let presented = fixture.new_key().await;
    let id = presented.key.id;
    let refusal = async || fixture.refusal(presented.api_key.as_ref().unwrap().expose(), clock::now()).await;
    let suspended = management.suspend_user(OPERATOR, ORG, ADA, clock::now()).await.unwrap();
    assert!(suspended.suspended.is_some() && suspended.removed.is_none(), "{suspended:?}");
    assert_eq!(refusal().await, Some(Refusal::UserSuspended));
    assert_eq!(management.show_key(OPERATOR, id, clock::now()).await.unwrap().status, KeyStatus::UserSuspended);
    let explained = management.explain_key(OPERATOR, id, clock::now()).await.unwrap();
    assert_eq!(explained.verdict, "requests are refused (401): the key's user is suspended");
    // The second one is no error, and the first time stands.
    let again = management.suspend_user(OPERATOR, ORG, ADA, clock::now()).await.unwrap();
    assert_eq!(again.suspended, suspended.suspended);
    let resumed = management.resume_user(OPERATOR, ORG, ADA, clock::now()).await.unwrap();
    assert_eq!((resumed.suspended, refusal().await), (None, None));
    let unknown = management.suspend_user(OPERATOR, ORG, "nobody@example.com", clock::now()).await;
    assert_eq!(unknown.unwrap_err().code(), "no_such_user");
}

#[tokio::test]
async fn unused_keys_are_disabled_by_the_sweep_and_used_ones_are_not() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let [unused, used] = [fixture.new_key().await, fixture.new_key().await];
    let now = clock::now();
    let sweep = async |after: u32| management.sweep_unused_keys(OPERATOR, now.after(after * DAY)).await.unwrap();
    assert_eq!(sweep(1000).await, 0, "never, unless it is configured");
    fixture.state.set_bounds(state::Bounds { unused_keys: Some(7 * DAY), ..state::Bounds::DEFAULT });
    assert_eq!(sweep(6).await, 0);
    let presented = used.api_key.as_ref().unwrap().expose();
    assert_eq!(fixture.refusal(presented, now.after(6 * DAY)).await, None);
    assert_eq!((sweep(8).await, sweep(8).await), (1, 0), "once");
    assert_eq!(
        fixture.refusal(unused.api_key.as_ref().unwrap().expose(), now.after(8 * DAY)).await,
        Some(Refusal::KeyDisabled)
    );
    assert_eq!(fixture.refusal(presented, now.after(8 * DAY)).await, None);
    let explained = management.explain_key(OPERATOR, unused.key.id, now.after(8 * DAY)).await.unwrap();
    assert_eq!(explained.key.status, KeyStatus::Disabled);
    management.enable_key(OPERATOR, unused.key.id, now.after(9 * DAY)).await.unwrap();
    assert_eq!((sweep(15).await, sweep(17).await), (0, 2), "7 days since the enabling, and since the use");
    let swept = fixture.records().await.into_iter().filter(|record| record.path == "key.disable_unused");
    assert_eq!(swept.count(), 3);
}

/// Rather something else is wrong than so many keys are unused.
#[tokio::test]
async fn sweep_that_would_disable_more_than_a_tenth_of_the_keys_disables_none() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    fixture.state.set_bounds(state::Bounds { unused_keys: Some(7 * DAY), ..state::Bounds::DEFAULT });
    let mut keys = Vec::new();
    for _ in 0..11 {
        keys.push(fixture.new_key().await.key.id);
    }
    let later = clock::now().after(8 * DAY);
    assert_eq!(management.sweep_unused_keys(OPERATOR, later).await.unwrap(), 0, "11 of 11");
    // Ten are few enough in any organization.
    management.revoke_key(OPERATOR, keys[0], later).await.unwrap();
    assert_eq!(management.sweep_unused_keys(OPERATOR, later).await.unwrap(), 10);
}

#[tokio::test]
async fn keys_are_created_rotated_and_revoked() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let new = fixture.new_key().await;
    let (first, key) = (new.api_key.as_ref().unwrap().expose(), new.key);
    assert_eq!(key::parse(first.as_bytes()), Some(key.id));
    assert_eq!((key.name.as_str(), key.email.as_str(), key.status), ("laptop", ADA, KeyStatus::Active));
    assert_eq!(fixture.refusal(first, clock::now()).await, None);

    let overlap = Some(Duration::from_secs(3600));
    let rotated = management.rotate_key(OPERATOR, key.id, Rotation::new(overlap), clock::now()).await.unwrap();
    let second = rotated.api_key.as_ref().unwrap().expose();
    let later = clock::now().after(Duration::from_secs(3601));
    assert_eq!((rotated.key.id, rotated.key.uses), (key.id, 1));
    assert_eq!(fixture.refusal(first, clock::now()).await, None, "the old secret, within the overlap");
    assert_eq!(fixture.refusal(first, later).await, Some(Refusal::Expired));
    assert_eq!(fixture.refusal(second, later).await, None);

    let third =
        management.rotate_key(OPERATOR, key.id, Rotation::new(None), clock::now()).await.unwrap().api_key.unwrap();
    assert!(fixture.refusal(second, clock::now()).await.is_some(), "no overlap by default");
    let revoked = management.revoke_key(OPERATOR, key.id, clock::now()).await.unwrap();
    assert_eq!(revoked.status, KeyStatus::Revoked);
    assert_eq!(fixture.refusal(third.expose(), clock::now()).await, Some(Refusal::Revoked));
    let again = management.revoke_key(OPERATOR, key.id, clock::now()).await.unwrap();
    assert_eq!(again.revoked, revoked.revoked, "revoking twice is no error, and the first time stays");
    let error = management.rotate_key(OPERATOR, key.id, Rotation::new(None), clock::now()).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("key_revoked", ErrorKind::Conflict));
}

#[tokio::test]
async fn keys_are_imported_by_their_digest() {
    let fixture = Fixture::with_ada().await;
    let import = async |sha256: &str, name: &str| {
        let policy = PolicyUpdate::default();
        let import = KeyImport { org: ORG, user: ADA, sha256, id: None, name, limits: None, policy, disabled: false };
        fixture.management.import_key(OPERATOR, import, clock::now()).await
    };
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(import(hex, "old").await.unwrap().imported);
    assert_eq!(fixture.refusal("abc", clock::now()).await, None);
    assert_eq!(import(hex, "again").await.unwrap_err().code(), "taken");
    assert_eq!(import("abc", "bad").await.unwrap_err().code(), "invalid_digest");
}

#[tokio::test]
async fn limits_of_a_key_override_the_configured_ones() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let new = fixture.new_key().await;
    let (presented, id) = (new.api_key.as_ref().unwrap().expose(), new.key.id);
    let limits = LimitUpdate { requests: Some(2), per: Some(MINUTE), burst: None };
    let limited = management.update_key(OPERATOR, id, limit(Some(limits)), clock::now()).await.unwrap().limits;
    assert_eq!((limited.requests, limited.per, limited.burst), (2, MINUTE, 2));
    let now = clock::now();
    assert_eq!(fixture.refusal(presented, now).await, None);
    assert_eq!(fixture.refusal(presented, now).await, None);
    assert_eq!(fixture.refusal(presented, now).await, Some(Refusal::RateLimited));

    let explanation = management.explain_key(OPERATOR, id, now).await.unwrap();
    assert!(explanation.verdict.contains("bucket is empty; the next token comes in 30 s"), "{}", explanation.verdict);
    assert_eq!((explanation.standing.remaining, explanation.standing.burst), (0, 2));
    assert_eq!(explanation.standing.next_token, Some(now.after(MINUTE / 2)));

    let faster = LimitUpdate { requests: Some(10), ..LimitUpdate::default() };
    let faster = management.update_key(OPERATOR, id, limit(Some(faster)), clock::now()).await.unwrap().limits;
    assert_eq!((faster.requests, faster.per, faster.burst), (10, MINUTE, 10));
    let back = management.update_key(OPERATOR, id, limit(None), clock::now()).await.unwrap().limits;
    assert_eq!((back.requests, back.own), (1000, false));
    let zero = LimitUpdate { requests: Some(0), ..LimitUpdate::default() };
    let error = management.update_key(OPERATOR, id, limit(Some(zero)), clock::now()).await.unwrap_err();
    assert_eq!(error.code(), "invalid_limits");
}

#[tokio::test]
async fn visitors_may_perform_no_operation() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let key = fixture.new_key().await.key.id;
    let visitor = Actor::Visitor(ClientInfo::default());
    let (first, now) = (PageQuery::default(), clock::now());
    for code in [
        management.create_org(&visitor, "other", now).await.unwrap_err().code(),
        management.list_orgs(&visitor, &first, now).await.unwrap_err().code(),
        management.show_org(&visitor, ORG, now).await.unwrap_err().code(),
        management.list_users(&visitor, ORG, &first, now).await.unwrap_err().code(),
        management.create_key(&visitor, ORG, laptop(), SecretSource::Generated, now).await.unwrap_err().code(),
        management.show_key(&visitor, key, now).await.unwrap_err().code(),
        management.revoke_key(&visitor, key, now).await.unwrap_err().code(),
        management.key_activity(&visitor, ORG, vec![key], now).await.unwrap_err().code(),
        management.create_link(&visitor, ORG, ADA, now).await.unwrap_err().code(),
        management.list_sessions(&visitor, Some(ORG), false, &first, now).await.unwrap_err().code(),
    ] {
        assert_eq!(code, "not_allowed");
    }
}

#[tokio::test]
async fn wrong_operands_have_codes_of_their_own() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let (key, now) = ("zzzzzzzzz".parse::<KeyId>().unwrap(), clock::now());
    let create_key = async |user, name| {
        let request = NewKeyRequest { user, name, policy: PolicyUpdate::default() };
        management.create_key(OPERATOR, ORG, request, SecretSource::Generated, now).await.unwrap_err()
    };
    let too_long = Rotation::new(Some(Duration::MAX));
    for (error, code) in [
        (management.create_org(OPERATOR, "a\nb", now).await.unwrap_err(), "invalid_name"),
        (management.create_org(OPERATOR, "", now).await.unwrap_err(), "invalid_name"),
        (management.show_org(OPERATOR, "other", now).await.unwrap_err(), "no_such_org"),
        (management.update_org(OPERATOR, ORG, bound(Some(0)), now).await.unwrap_err(), "invalid_limits"),
        (management.create_user(OPERATOR, ORG, "ada", vec![], now).await.unwrap_err(), "invalid_email"),
        (management.create_user(OPERATOR, ORG, "ADA@example.com", vec![], now).await.unwrap_err(), "taken"),
        (create_key("eve@example.com", "x").await, "no_such_user"),
        (create_key(ADA, "x\u{200b}").await, "invalid_name"),
        (management.show_key(OPERATOR, key, now).await.unwrap_err(), "no_such_key"),
        (management.explain_key(OPERATOR, key, now).await.unwrap_err(), "no_such_key"),
        (management.rotate_key(OPERATOR, key, too_long, now).await.unwrap_err(), "invalid_overlap"),
        (management.key_activity(OPERATOR, ORG, vec![key; 201], now).await.unwrap_err(), "invalid_limit"),
        (management.key_activity(OPERATOR, "other", vec![key; 200], now).await.unwrap_err(), "no_such_org"),
    ] {
        assert_eq!(error.code(), code, "{error}");
    }
}
