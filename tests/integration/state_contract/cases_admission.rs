//! Admission: the principal, the bucket and the slots; a denied request takes nothing.

use std::time::Duration;

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::key::policy::{DisabledBy, Field, PolicyPatch};
use domain::key::{KeyDigest, KeyId};
use domain::quota::{MAX_TOKENS, Quota, RateLimitStatus};
use domain::refusal::Refusal;
use state::{Change, DecideRequest, Decision, RouteAccess, State};

use super::cases_policy::{disabled, expiring, networks, set};
use super::fixture::{
    HeldKey, admit, admitted, decide, drain, everything, fixture_with_key, record, refuse, refused, require, revoke,
    rotate,
};
use super::{CONCURRENT, QUOTA, TOKEN};
use crate::support::decide::decide_request;

pub(super) async fn unknown_key_is_denied_without_a_principal(state: &State) {
    fixture_with_key(state).await;
    let decision = decide(state, &KeyDigest::of(b"never seen"), clock::now()).await;
    let Decision::Denied { refusal, principal, rate_limit } = decision else { panic!("admitted") };
    assert_eq!((refusal, principal.is_none(), rate_limit), (Refusal::Unknown, true, None));
}

pub(super) async fn key_is_found_with_and_without_its_id(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (neighbour, (_, foreign)) = (fixture.key(state).await, fixture_with_key(state).await);
    let nothing = KeyId::generate(fixture.tag).unwrap();
    let now = clock::now();
    for id in [None, Some(key.id), Some(neighbour.id), Some(foreign.id), Some(nothing)] {
        let decision = state.decide(DecideRequest { id, ..decide_request(&key.digest, now) }).await.unwrap();
        assert_eq!(admitted(decision).principal.key_id, Some(key.id), "{id:?}");
    }
    let unknown = KeyDigest::of(b"never seen");
    let unknown = DecideRequest { id: Some(key.id), ..decide_request(&unknown, now) };
    let decision = state.decide(unknown).await.unwrap();
    assert!(matches!(decision, Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None }));
}

pub(super) async fn admission_names_the_principal_and_the_rate_limit_status(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let now = clock::now();
    let admitted = admitted(require(state, &key.digest, "queries:read", now).await);
    let principal = &admitted.principal;
    assert_eq!((principal.key_id, principal.user_id), (Some(key.id), fixture.user));
    assert_eq!(principal.org_id, fixture.org);
    assert_eq!(principal.key_id.unwrap().as_str(), key.id.as_str());
    assert_eq!(principal.headers.user_id(), fixture.user.to_string());
    assert_eq!(principal.headers.org_id(), fixture.org.to_string());
    assert_eq!(principal.headers.permissions(), "queries:read");
    let expected = RateLimitStatus {
        quota: QUOTA,
        remaining: 4,
        full_in_us: 1_000_000,
        token_in_us: 0,
        concurrent: CONCURRENT,
        in_flight: 1,
        key_slots: None,
        budget: None,
    };
    assert_eq!(admitted.rate_limit, expected);
    assert_eq!(state.in_flight(), 1);
    assert_eq!(record(state, &key).await.last_used, Some(now));
}

pub(super) async fn uses_are_numbered_consecutively(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    for number in 1..=5 {
        assert_eq!(admit(state, &key, now).await.number, number);
    }
    assert_eq!(refuse(state, &key, now).await, Refusal::RateLimited);
    assert_eq!(admit(state, &key, now.after(TOKEN)).await.number, 6);
    assert_eq!(record(state, &key).await.uses, 6);
}

pub(super) async fn denied_request_takes_nothing(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let now = clock::now();
    let before = everything(state, &key, now).await;
    assert_eq!(refused(&require(state, &key.digest, "queries:write", now).await), Refusal::Forbidden);
    assert_eq!(everything(state, &key, now).await, before);
    let no_route = DecideRequest {
        digest: &key.digest,
        id: None,
        access: RouteAccess::NoRoute,
        cost: Cost::ONE,
        client: None,
        now,
    };
    let decision = state.decide(no_route).await.unwrap();
    assert!(matches!(decision, Decision::Denied { rate_limit: Some(_), .. }));
    assert_eq!(refused(&decision), Refusal::NotFound);
    assert_eq!(everything(state, &key, now).await, before);
    fixture.suspend(state, true).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::OrgSuspended);
    fixture.suspend(state, false).await;
    assert_eq!(everything(state, &key, now).await, before);

    let held = [admit(state, &key, now).await, admit(state, &key, now).await, admit(state, &key, now).await];
    let full = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    assert_eq!(everything(state, &key, now).await, full);
    drop(held);

    drain(state, &key, now).await;
    let empty = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::RateLimited);
    assert_eq!(everything(state, &key, now).await, empty);
    revoke(state, &key).await;
    let revoked = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::Revoked);
    assert_eq!(everything(state, &key, now).await, revoked);
}

/// Causes one refusal after the other, from the last in order to the first; the causes of the later ones stay.
pub(super) async fn refusals_have_a_fixed_order(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let other = fixture.key(state).await;
    let now = clock::now();
    let ask = async |old: &HeldKey| {
        let decision = require(state, &old.digest, "queries:write", now).await;
        let Decision::Denied { refusal, principal, rate_limit } = decision else { panic!("admitted") };
        assert_eq!(principal.unwrap().key_id, Some(key.id));
        assert_eq!(rate_limit.is_some(), matches!(refusal, Refusal::OrgSuspended | Refusal::Forbidden));
        refusal
    };
    drain(state, &key, now).await;
    let held = [admit(state, &other, now).await, admit(state, &other, now).await, admit(state, &other, now).await];
    let rate_limited = decide(state, &key.digest, now).await;
    assert_eq!(refused(&rate_limited), Refusal::RateLimited);
    assert!(matches!(rate_limited, Decision::Denied { principal: Some(_), rate_limit: Some(_), .. }));
    assert_eq!(ask(&key).await, Refusal::Forbidden);
    fixture.suspend(state, true).await;
    assert_eq!(ask(&key).await, Refusal::OrgSuspended);
    let nets = PolicyPatch { networks: Field::Set(networks(&["10.0.0.0/8"])), ..PolicyPatch::default() };
    set(state, &key, nets).await;
    assert_eq!(ask(&key).await, Refusal::AddressRefused);
    let (org, user) = (fixture.org, fixture.user);
    state.change(Change::suspend_user(org, user, Some(now), true)).await.unwrap();
    assert_eq!(ask(&key).await, Refusal::UserSuspended);
    state.change(Change::RemoveUser { org, user, at: now }).await.unwrap();
    assert_eq!(ask(&key).await, Refusal::UserRemoved);
    set(state, &key, disabled(now, DisabledBy::Operator)).await;
    assert_eq!(ask(&key).await, Refusal::KeyDisabled);
    set(state, &key, expiring(now)).await;
    assert_eq!(ask(&key).await, Refusal::KeyExpired);
    rotate(state, &key, now, now).await;
    assert_eq!(ask(&key).await, Refusal::Expired);
    revoke(state, &key).await;
    assert_eq!(ask(&key).await, Refusal::Revoked);
    drop(held);
}

pub(super) async fn bucket_gives_its_burst_and_then_its_rate(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let start = clock::now();
    for left in (0..QUOTA.burst).rev() {
        assert_eq!(admit(state, &key, start).await.rate_limit.remaining, left);
    }
    let decision = decide(state, &key.digest, start).await;
    let Decision::Denied { refusal: Refusal::RateLimited, rate_limit: Some(rate_limit), .. } = decision else {
        panic!()
    };
    assert_eq!((rate_limit.remaining, rate_limit.token_in_us, rate_limit.full_in_us), (0, 1_000_000, 5_000_000));
    for early in [1, 500_000, 999_999] {
        assert_eq!(refuse(state, &key, start.after(Duration::from_micros(early))).await, Refusal::RateLimited);
    }
    admit(state, &key, start.after(TOKEN)).await;
    assert_eq!(refuse(state, &key, start.after(TOKEN)).await, Refusal::RateLimited);
    let rested = start.after(Duration::from_secs(24 * 3600));
    assert_eq!(admit(state, &key, rested).await.rate_limit.remaining, QUOTA.burst - 1);
}

pub(super) async fn slots_are_limited_for_each_organization_and_released(state: &State) {
    let (fixture, first) = fixture_with_key(state).await;
    let second = fixture.key(state).await;
    let (_, foreign) = fixture_with_key(state).await;
    let now = clock::now();
    let one = admit(state, &first, now).await;
    let two = admit(state, &first, now).await;
    let three = admit(state, &second, now).await;
    assert_eq!([&one, &two, &three].map(|admitted| admitted.rate_limit.in_flight), [1, 2, 3]);
    for key in [&first, &second] {
        let decision = decide(state, &key.digest, now).await;
        assert_eq!(refused(&decision), Refusal::TooManyInFlight);
        let Decision::Denied { rate_limit: Some(rate_limit), .. } = decision else { panic!("no rate limit status") };
        assert_eq!((rate_limit.concurrent, rate_limit.in_flight), (CONCURRENT, 3));
    }
    assert_eq!(admit(state, &foreign, now).await.rate_limit.in_flight, 1);
    drop(two.permit);
    assert_eq!(admit(state, &second, now).await.rate_limit.in_flight, 3);
    assert_eq!(state.in_flight(), 2);
}

pub(super) async fn refusal_for_slots_costs_no_token(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let other = fixture.key(state).await;
    let now = clock::now();
    let held = [admit(state, &other, now).await, admit(state, &other, now).await, admit(state, &other, now).await];
    for _ in 0..100 {
        assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    }
    drop(held);
    assert_eq!(admit(state, &key, now).await.rate_limit.remaining, QUOTA.burst - 1);
}

async fn pay(state: &State, key: &HeldKey, cost: u32, now: Micros) -> Decision {
    state.decide(DecideRequest { cost: Cost::fixed(cost), ..decide_request(&key.digest, now) }).await.unwrap()
}

pub(super) async fn cost_is_taken_whole_or_not_at_all(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    let first = admitted(pay(state, &key, 3, now).await);
    assert_eq!((first.number, first.rate_limit.remaining), (1, QUOTA.burst - 3));
    // Three tokens are missing one second's worth; the wait is that of this request, and smaller ones are admitted.
    for _ in 0..10 {
        let Decision::Denied { refusal: Refusal::RateLimited, rate_limit: Some(status), .. } =
            pay(state, &key, 3, now).await
        else {
            panic!("it is admitted")
        };
        assert_eq!((status.remaining, status.token_in_us), (2, 1_000_000));
    }
    assert_eq!(admitted(pay(state, &key, 2, now).await).number, 2);
    let later = now.after(3 * TOKEN);
    let early = Micros(later.0 - 1);
    assert_eq!(refused(&pay(state, &key, 3, early).await), Refusal::RateLimited);
    assert_eq!(admitted(pay(state, &key, 3, later).await).number, 3);
    assert_eq!(record(state, &key).await.uses, 3, "a request is one use, whatever it costs");
}

pub(super) async fn cost_above_the_burst_is_never_admitted(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    let before = everything(state, &key, now).await;
    for cost in [QUOTA.burst + 1, MAX_TOKENS] {
        let decision = pay(state, &key, cost, now).await;
        assert_eq!(refused(&decision), Refusal::CostOverLimit);
        assert!(matches!(decision, Decision::Denied { principal: Some(_), rate_limit: Some(_), .. }));
    }
    assert_eq!(everything(state, &key, now).await, before);
    let own = Quota { burst: QUOTA.burst + 1, ..QUOTA };
    state.change(Change::limit_key(key.id, Some(own))).await.unwrap();
    let rested = now.after(Duration::from_secs(3600));
    assert_eq!(admitted(pay(state, &key, own.burst, rested).await).rate_limit.remaining, 0);
}
