//! The typed operations: the sweep of unused keys, and the errors.

use crate::support::updates::bound;
use std::time::Duration;

use control::management::{Actor, ClientInfo, KeyStatus, NewKeyRequest, PolicyUpdate, Rotation, SecretSource};
use domain::clock;
use domain::key::KeyId;
use domain::page::PageQuery;
use domain::refusal::Refusal;

use super::{ADA, Fixture, OPERATOR, ORG, laptop};

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
