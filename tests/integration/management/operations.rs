//! The typed operations: the sweep of unused keys, and the errors.

use std::time::Duration;

use super::{ADA, Fixture, OPERATOR, ORG, laptop};
use crate::support::updates::bound;
use control::management;
use control::management::{
    Actor, ClientInfo, KeyStatus, NewKeyRequest, PolicyUpdate, Rotation, SecretSource, UserGrants,
};
use domain::clock;
use domain::key::KeyId;
use domain::page::PageQuery;
use domain::refusal::Refusal;

#[tokio::test]
async fn unused_keys_are_disabled_by_the_sweep_and_used_ones_are_not() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let [unused, used] = [fixture.new_key().await, fixture.new_key().await];
    let now = clock::now();
    let sweep =
        async |after: u32| management::sweep_unused_keys(management, OPERATOR, now.after(after * DAY)).await.unwrap();
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
    let explained = management::explain_key(management, OPERATOR, unused.key.id, now.after(8 * DAY)).await.unwrap();
    assert_eq!(explained.key.status, KeyStatus::Disabled);
    management::enable_key(management, OPERATOR, unused.key.id, now.after(9 * DAY)).await.unwrap();
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
    assert_eq!(management::sweep_unused_keys(management, OPERATOR, later).await.unwrap(), 0, "11 of 11");
    // Ten are few enough in any organization.
    management::revoke_key(management, OPERATOR, keys[0], later).await.unwrap();
    assert_eq!(management::sweep_unused_keys(management, OPERATOR, later).await.unwrap(), 10);
}

#[tokio::test]
async fn visitors_may_perform_no_operation() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let key = fixture.new_key().await.key.id;
    let visitor = Actor::Visitor(ClientInfo::default());
    let (first, now) = (PageQuery::default(), clock::now());
    for code in [
        management::create_org(management, &visitor, "other", None, now).await.unwrap_err().code(),
        management::list_orgs(management, &visitor, &first, now).await.unwrap_err().code(),
        management::show_org(management, &visitor, ORG, now).await.unwrap_err().code(),
        management::list_users(management, &visitor, ORG, &first, now).await.unwrap_err().code(),
        management::create_key(management, &visitor, ORG, laptop(), SecretSource::Generated, now)
            .await
            .unwrap_err()
            .code(),
        management::show_key(management, &visitor, key, now).await.unwrap_err().code(),
        management::revoke_key(management, &visitor, key, now).await.unwrap_err().code(),
        management::key_activity(management, &visitor, ORG, vec![key], now).await.unwrap_err().code(),
        management::create_link(management, &visitor, ORG, ADA, now).await.unwrap_err().code(),
        management::list_sessions(management, &visitor, Some(ORG), false, &first, now).await.unwrap_err().code(),
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
        let request = NewKeyRequest { user, name, policy: PolicyUpdate::default(), plan: None };
        management::create_key(management, OPERATOR, ORG, request, SecretSource::Generated, now).await.unwrap_err()
    };
    let too_long = Rotation::new(Some(Duration::MAX));
    for (error, code) in [
        (management::create_org(management, OPERATOR, "a\nb", None, now).await.unwrap_err(), "invalid_name"),
        (management::create_org(management, OPERATOR, "", None, now).await.unwrap_err(), "invalid_name"),
        (management::show_org(management, OPERATOR, "other", now).await.unwrap_err(), "no_such_org"),
        (management::update_org(management, OPERATOR, ORG, bound(Some(0)), now).await.unwrap_err(), "invalid_limits"),
        (
            management::create_user(management, OPERATOR, ORG, "ada", UserGrants::default(), now).await.unwrap_err(),
            "invalid_email",
        ),
        (
            management::create_user(management, OPERATOR, ORG, "ADA@example.com", UserGrants::default(), now)
                .await
                .unwrap_err(),
            "taken",
        ),
        (create_key("eve@example.com", "x").await, "no_such_user"),
        (create_key(ADA, "x\u{200b}").await, "invalid_name"),
        (management::show_key(management, OPERATOR, key, now).await.unwrap_err(), "no_such_key"),
        (management::explain_key(management, OPERATOR, key, now).await.unwrap_err(), "no_such_key"),
        (management::rotate_key(management, OPERATOR, key, too_long, now).await.unwrap_err(), "invalid_overlap"),
        (management::key_activity(management, OPERATOR, ORG, vec![key; 201], now).await.unwrap_err(), "invalid_limit"),
        (
            management::key_activity(management, OPERATOR, "other", vec![key; 200], now).await.unwrap_err(),
            "no_such_org",
        ),
    ] {
        assert_eq!(error.code(), code, "{error}");
    }
}
