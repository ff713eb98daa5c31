//! The typed operations: the sweep of unused keys, and the errors.

use std::time::Duration;

use super::{ADA, Fixture, OPERATOR, ORG, laptop};
use crate::support::updates::{bound, policy_change};
use control::management;
use control::management::{
    Actor, ClientInfo, KeyStatus, NewKeyRequest, PolicyUpdate, Rotation, SecretSource, TokenSettings, UserGrants,
};
use domain::clock;
use domain::key::KeyId;
use domain::page::PageQuery;
use domain::refusal::Refusal;
use journal::audit::Record;

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

/// The looks of 45 days, three a day, each as by a process that has just started.
#[tokio::test]
async fn ends_are_announced_in_time_and_once() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let now = clock::now();
    let expire = async |key: KeyId, days: u32| {
        let update = policy_change(PolicyUpdate { expires: Some(Some(now.after(days * DAY))), ..Default::default() });
        management::update_key(management, OPERATOR, key, update, now).await.unwrap();
    };
    let keys = [fixture.new_key().await, fixture.new_key().await, fixture.new_key().await, fixture.new_key().await];
    let [moved, short, revoked, unused] = keys.map(|key| key.key.id);
    for (key, days) in [(moved, 30), (short, 3), (revoked, 20)] {
        expire(key, days).await;
    }
    let settings = TokenSettings {
        name: "deploy".into(),
        org: None,
        allow: ["keys:read".parse().unwrap()].into(),
        expires: Some(now.after(15 * DAY)),
        networks: Vec::new(),
        client_san: None,
    };
    let token = management::create_token(management, OPERATOR, settings, now).await.unwrap().token.id;
    management::revoke_key(management, OPERATOR, revoked, now).await.unwrap();
    fixture.state.set_bounds(state::Bounds { unused_keys: Some(40 * DAY), ..state::Bounds::DEFAULT });
    for third in 0..135 {
        let at = now.after(third * DAY / 3);
        if third == 3 * 25 {
            expire(moved, 36).await;
        }
        management::announce_ends(management, at).await.unwrap();
    }
    let records = fixture.records().await.into_iter();
    let announced: Vec<_> = records.filter(|record| record.actor.as_deref() == Some("gateway")).collect();
    let day = |record: &Record| (record.time.0 - now.0) / u64::try_from(DAY.as_micros()).unwrap();
    let of_key = |key: KeyId| {
        let of_key = announced.iter().filter(|record| record.key_id == Some(key));
        let mut of_key: Vec<_> = of_key.map(|record| (day(record), &*record.action, &record.path[..])).collect();
        of_key.sort_unstable();
        of_key.into_iter().map(|(day, action, path)| (day, action, path.split('/').nth(1).unwrap())).collect::<Vec<_>>()
    };
    let moved = of_key(moved);
    let (week, last) = (("key.expiring", "7d"), ("key.expiring", "1d"));
    let expected = [(22, week), (28, week), (34, last)].map(|(day, (action, notice))| (day, action, notice));
    assert_eq!(moved.iter().filter(|(_, action, _)| *action == week.0).copied().collect::<Vec<_>>(), expected);
    assert_eq!(of_key(short), [(1, "key.expiring", "1d")], "it was made three days before its end");
    assert_eq!(of_key(revoked), []);
    assert_eq!(of_key(unused), [(32, "key.unused", "7d")]);
    let of_token = announced.iter().filter(|record| record.action == "token.expiring");
    let paths: Vec<_> = of_token.map(|record| (day(record), record.path.clone())).collect();
    let end = now.after(15 * DAY);
    assert_eq!(paths.len(), 2, "{paths:?}");
    for (at, notice) in [(7, "7d"), (13, "1d")] {
        assert!(paths.contains(&(at, format!("token.expiring/{token}/{notice}/{end}"))), "{paths:?}");
    }
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
