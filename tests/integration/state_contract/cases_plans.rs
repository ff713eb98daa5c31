//! Plans: the first level that says something gives a key its limits, a reload changes all keys of a plan with their
//! next request, and each key has the requests in flight of its plan.

use std::time::Duration;

use domain::budget::{Budget, Period, Spender};
use domain::clock;
use domain::key::policy::{Field, PolicyPatch};
use domain::plan_name::PlanName;
use domain::quota::Quota;
use domain::refusal::Refusal;
use futures_util::{StreamExt as _, stream};
use state::embedded::Settings;
use state::{
    Change, Decision, Defaults, Embedded, Key, KeyPatch, LimitPlan, LimitPlans, Org, OrgPatch, PolicyScope, State,
    User, UserPatch,
};

use super::fixture::{
    Fixture, HeldKey, admit, created, fixture_with_key, new_fixture, new_key, new_user, rate_limit_status, record,
    refuse,
};
use super::{CONCURRENT, QUOTA};

/// Changes and decisions that are under way at a time.
const AT_A_TIME: usize = 64;

fn name(text: &str) -> PlanName {
    text.parse().unwrap()
}

/// A quota so slow that no token flows in during a test.
fn slow(burst: u32) -> Quota {
    Quota { requests: 1, per: Duration::from_secs(360_000), burst, strict: false }
}

/// Plans by their names, each with its burst and its requests in flight, and the plan for keys without one.
fn defaults(plans: &[(&str, u32, Option<u32>)], default: Option<&str>) -> Defaults {
    let plan = |(text, burst, concurrent): &(&str, u32, Option<u32>)| {
        (name(text), LimitPlan { quota: slow(*burst), concurrent: *concurrent, budget: None })
    };
    let plans = LimitPlans::new(plans.iter().map(plan).collect(), default.map(name));
    Defaults { plans, ..Defaults::new(QUOTA, CONCURRENT) }
}

fn field(plan: Option<&str>) -> Field<PlanName> {
    plan.map_or(Field::Clear, |plan| Field::Set(name(plan)))
}

async fn give_key(state: &State, key: &HeldKey, plan: Option<&str>) {
    let patch = KeyPatch { plan: field(plan), ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
}

async fn give_user(state: &State, fixture: &Fixture, plan: Option<&str>) {
    let patch = UserPatch { plan: field(plan), ..UserPatch::default() };
    state.change(Change::UpdateUser { org: fixture.org, user: fixture.user, patch }).await.unwrap();
}

async fn give_org(state: &State, fixture: &Fixture, plan: Option<&str>) {
    let patch = OrgPatch { plan: field(plan), ..OrgPatch::default() };
    state.change(Change::UpdateOrg { org: fixture.org, patch }).await.unwrap();
}

async fn burst(state: &State, key: &HeldKey) -> u32 {
    rate_limit_status(state, key, clock::now()).await.quota.burst
}

pub(super) async fn first_level_that_says_something_gives_the_limits(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let sessions = fixture.session_quota_key(state, fixture.user).await;
    let plans = [("one", 11, None), ("two", 12, None), ("three", 13, None), ("four", 14, None)];
    state.set_defaults(defaults(&plans, None));
    assert_eq!(burst(state, &key).await, QUOTA.burst);
    state.set_defaults(defaults(&plans, Some("four")));
    assert_eq!(burst(state, &key).await, 14);
    give_org(state, &fixture, Some("three")).await;
    assert_eq!(burst(state, &key).await, 13);
    give_user(state, &fixture, Some("two")).await;
    assert_eq!((burst(state, &key).await, burst(state, &sessions).await), (12, 12), "keys and sessions of the user");
    give_key(state, &key, Some("one")).await;
    assert_eq!((burst(state, &key).await, burst(state, &sessions).await), (11, 12));
    state.change(Change::limit_key(key.id, Some(slow(9)))).await.unwrap();
    assert_eq!(burst(state, &key).await, 9, "its own limits before all plans");

    // And back, level by level.
    state.change(Change::limit_key(key.id, None)).await.unwrap();
    assert_eq!(burst(state, &key).await, 11);
    give_key(state, &key, None).await;
    assert_eq!(burst(state, &key).await, 12);
    give_user(state, &fixture, None).await;
    assert_eq!(burst(state, &key).await, 13);
    give_org(state, &fixture, None).await;
    assert_eq!(burst(state, &key).await, 14);
    assert_eq!(admit(state, &key, clock::now()).await.rate_limit.quota, slow(14), "decisions go by it");
}

pub(super) async fn plans_are_shown_as_they_were_given(state: &State) {
    state.set_defaults(defaults(&[("pro", 11, None)], None));
    let org = created(state).await;
    let user = User { plan: Some(name("pro")), ..new_user(org.id, "ann@example.com") };
    state.change(Change::CreateUser(user.clone())).await.unwrap();
    let (key, digest) = new_key(org.tag, org.id, user.id);
    let key = Key { plan: Some(name("pro")), ..key };
    state.change(Change::CreateKey { key: key.clone(), digest }).await.unwrap();
    let fixture = Fixture { org: org.id, tag: org.tag, user: user.id };
    give_org(state, &fixture, Some("pro")).await;
    let shown = fixture.record(state).await;
    assert_eq!(shown, Org { plan: Some(name("pro")), ..org.clone() });
    assert_ne!(shown.etag(), org.etag());
    let shown = state.member(org.id, user.id).await.unwrap().unwrap().1;
    assert_eq!((shown.plan, shown.email), (user.plan, user.email));
    let held = HeldKey { id: key.id, digest };
    assert_eq!(record(state, &held).await.plan, key.plan);
    give_key(state, &held, None).await;
    give_user(state, &fixture, None).await;
    give_org(state, &fixture, None).await;
    assert_eq!(record(state, &held).await.plan, None);
    let member = state.member(org.id, user.id).await.unwrap().unwrap();
    assert_eq!((member.0.plan, member.1.plan), (None, None));
}

pub(super) async fn tokens_stay_with_another_plan_and_a_new_key_begins_with_all(state: &State) {
    let fixture = new_fixture(state).await;
    state.set_defaults(defaults(&[("small", 4, None), ("large", 20, None)], None));
    give_user(state, &fixture, Some("large")).await;
    let key = fixture.key(state).await;
    for remaining in [19, 18, 17] {
        assert_eq!(admit(state, &key, clock::now()).await.rate_limit.remaining, remaining);
    }
    give_key(state, &key, Some("small")).await;
    assert_eq!(rate_limit_status(state, &key, clock::now()).await.remaining, 4, "capped by the burst");
    assert_eq!(admit(state, &key, clock::now()).await.rate_limit.remaining, 3);
    give_key(state, &key, None).await;
    assert_eq!(admit(state, &key, clock::now()).await.rate_limit.remaining, 2, "a larger plan fills nothing");
    state.change(Change::limit_key(key.id, Some(slow(9)))).await.unwrap();
    state.change(Change::limit_key(key.id, None)).await.unwrap();
    assert_eq!(rate_limit_status(state, &key, clock::now()).await.remaining, 2);
}

pub(super) async fn missing_plan_gives_the_limits_for_all_others_and_is_counted(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let plans = [("gone", 11, Some(1)), ("three", 13, None)];
    state.set_defaults(defaults(&plans, None));
    give_org(state, &fixture, Some("three")).await;
    give_user(state, &fixture, Some("gone")).await;
    let held = admit(state, &key, clock::now()).await;
    assert_eq!(held.rate_limit.key_slots.map(|slots| slots.concurrent), Some(1));
    assert_eq!(state.missing_plan_decisions(), 0);
    state.set_defaults(defaults(&plans[1..], None));
    let other = admit(state, &key, clock::now()).await;
    assert_eq!((other.rate_limit.quota, other.rate_limit.key_slots), (QUOTA, None), "not the plan of the organization");
    assert_eq!(state.missing_plan_decisions(), 1);
    drop((held, other));
    state.change(Change::limit_key(key.id, Some(slow(3)))).await.unwrap();
    admit(state, &key, clock::now()).await;
    assert_eq!(state.missing_plan_decisions(), 1, "limits of its own miss no plan");
    state.change(Change::limit_key(key.id, None)).await.unwrap();
    state.set_defaults(defaults(&plans, None));
    assert_eq!(burst(state, &key).await, 11, "the plan is back");
}

pub(super) async fn each_key_has_the_requests_in_flight_of_its_plan(state: &State) {
    let fixture = new_fixture(state).await;
    state.set_defaults(defaults(&[("two", 11, Some(2))], None));
    state.change(Change::limit_org(fixture.org, Some(10))).await.unwrap();
    give_org(state, &fixture, Some("two")).await;
    let key = fixture.key(state).await;
    let other = fixture.key(state).await;
    let now = clock::now();
    let held = [admit(state, &key, now).await, admit(state, &key, now).await];
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyTooManyInFlight);
    let of_other = [admit(state, &other, now).await, admit(state, &other, now).await];
    assert_eq!(of_other[1].rate_limit.key_slots.map(|slots| (slots.concurrent, slots.in_flight)), Some((2, 2)));
    drop((held, of_other));

    let concurrent = async |concurrent| {
        let patch = Box::new(PolicyPatch { concurrent, ..PolicyPatch::default() });
        state.change(Change::set_key_policy(key.id, patch, PolicyScope::Operator)).await.unwrap();
    };
    concurrent(Field::Set(1)).await;
    let held = admit(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyTooManyInFlight, "the smaller one is the key's");
    drop(held);
    concurrent(Field::Set(5)).await;
    let held = [admit(state, &key, now).await, admit(state, &key, now).await];
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyTooManyInFlight, "the smaller one is the plan's");
    drop(held);
    concurrent(Field::Clear).await;
    give_org(state, &fixture, None).await;
    let held = [admit(state, &key, now).await, admit(state, &key, now).await, admit(state, &key, now).await];
    assert_eq!(held[2].rate_limit.key_slots, None);
}

/// A plan that changes back and forth, as gateways do that get a new file one after the other: never more requests than
/// the larger of both.
pub(super) async fn larger_plan_bounds_while_it_changes(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let [small, large] = [5, 20].map(|burst| defaults(&[("pro", burst, None)], None));
    state.set_defaults(large.clone());
    give_user(state, &fixture, Some("pro")).await;
    let key_of_plan = fixture.key(state).await;
    for key in [key, key_of_plan] {
        let mut admitted = 0;
        for turn in 0..60 {
            state.set_defaults(if turn % 3 == 1 { small.clone() } else { large.clone() });
            let requests = (0..turn % 4).map(async |_| super::fixture::decide(state, &key.digest, clock::now()).await);
            let decisions = futures_util::future::join_all(requests).await;
            admitted += decisions.iter().filter(|decision| matches!(decision, Decision::Admitted(_))).count();
        }
        assert!((1..=20).contains(&admitted), "{admitted}");
    }
}

/// Has a reload on all gateways change the plan of so many keys: each has the new limits and the new budget with its
/// first request, and none gets more than the larger plan gives.
async fn reload_reaches_each_key_with_its_next_request(gateways: &[&State], keys: usize) {
    let fixture = new_fixture(gateways[0]).await;
    let budget = |burst| Budget { units: u64::from(burst) * 1_000_000, per: Period::Month, of: Spender::Org };
    let reload = |burst: u32| {
        let plan = LimitPlan { quota: slow(burst), concurrent: None, budget: Some(budget(burst)) };
        let plans = LimitPlans::new([(name("pro"), plan)].into_iter().collect(), None);
        let defaults = Defaults { plans, ..Defaults::new(QUOTA, CONCURRENT) };
        gateways.iter().for_each(|gateway| gateway.set_defaults(defaults.clone()));
    };
    reload(20);
    give_org(gateways[0], &fixture, Some("pro")).await;
    let create = stream::iter(0..keys).map(|_| fixture.key(gateways[0])).buffer_unordered(AT_A_TIME);
    let all: Vec<HeldKey> = create.collect().await;
    let decide = async |burst: u32, remaining: u32| {
        let each = stream::iter(&all).zip(stream::iter(gateways.iter().cycle()));
        let each = each.map(|(key, gateway)| admit(gateway, key, clock::now())).buffer_unordered(2);
        each.for_each(async |admitted| {
            let status = admitted.rate_limit;
            assert_eq!((status.quota, status.remaining), (slow(burst), remaining));
            assert_eq!(status.budget.unwrap().units, budget(burst).units);
        })
        .await;
    };
    decide(20, 19).await;
    reload(7);
    decide(7, 6).await;
    reload(30);
    decide(30, 5).await;
}

pub(super) async fn reload_changes_all_keys_of_a_plan_at_once(state: &State) {
    reload_reaches_each_key_with_its_next_request(&[state], 100).await;
}

#[test]
fn plans_of_a_state_file_are_read_at_the_next_start() {
    let _entered = super::runtime::enter();
    let dir = tempfile::tempdir().unwrap();
    let plans = defaults(&[("one", 11, None), ("two", 12, Some(2)), ("three", 13, None)], None);
    let open = || {
        let settings =
            Settings { plans: plans.plans.clone(), ..super::embedded::settings(dir.path().join("state.db")) };
        State::Embedded(Embedded::open(&settings).unwrap())
    };
    super::runtime::block_on(async {
        let state = open();
        let (fixture, key) = fixture_with_key(&state).await;
        let other = fixture.key_of(&state, fixture.user(&state, "bob@example.com").await).await;
        give_org(&state, &fixture, Some("three")).await;
        give_user(&state, &fixture, Some("two")).await;
        let own = fixture.key(&state).await;
        give_key(&state, &own, Some("one")).await;
        admit(&state, &own, clock::now()).await;
        state.close().await;
        drop(state);
        let state = open();
        let mut bursts = Vec::new();
        for key in [&own, &key, &other] {
            bursts.push(burst(&state, key).await);
        }
        assert_eq!(bursts, [11, 12, 13]);
        let status = rate_limit_status(&state, &key, clock::now()).await;
        assert_eq!(status.key_slots.map(|slots| slots.concurrent), Some(2));
        assert_eq!(record(&state, &own).await.plan, Some(name("one")));
        state.close().await;
    });
}

#[test]
fn reload_changes_ten_thousand_keys() {
    let _entered = super::runtime::enter();
    let (state, _kept) = super::embedded::opened();
    super::runtime::block_on(reload_reaches_each_key_with_its_next_request(&[&state], 10_000));
    let (first, server) = super::redis::on_a_server();
    let second = super::redis::gateway_on(&server);
    super::runtime::block_on(reload_reaches_each_key_with_its_next_request(&[&first, &second], 10_000));
}

/// Two gateways get a new file one after the other, again and again, while both decide about the same keys.
#[test]
fn gateways_with_different_files_admit_no_more_than_the_larger_plan() {
    let _entered = super::runtime::enter();
    let (first, server) = super::redis::on_a_server();
    super::runtime::block_on(async {
        let gateways = [first, super::redis::gateway_on(&server)];
        let [small, large] = [5, 20].map(|burst| defaults(&[("pro", burst, None)], None));
        gateways.iter().for_each(|gateway| gateway.set_defaults(large.clone()));
        let fixture = new_fixture(&gateways[0]).await;
        give_org(&gateways[0], &fixture, Some("pro")).await;
        let keys: Vec<HeldKey> = stream::iter(0..30).then(async |_| fixture.key(&gateways[0]).await).collect().await;
        let requests = async {
            let requests = (0..40).flat_map(|turn| keys.iter().map(move |key| (turn, key)));
            let decide = async |(turn, key): (usize, &HeldKey)| {
                let decision = super::fixture::decide(&gateways[turn % 2], &key.digest, clock::now()).await;
                matches!(decision, Decision::Admitted(_)).then_some(key.id)
            };
            let admitted = stream::iter(requests).map(decide).buffer_unordered(3);
            admitted.filter_map(async |admitted| admitted).collect::<Vec<_>>().await
        };
        let reloads = async {
            for turn in 0..200 {
                let file = if turn % 4 < 2 { &small } else { &large };
                gateways[turn % 2].set_defaults(file.clone());
                // As long as a decision takes.
                burst(&gateways[turn % 2], &keys[0]).await;
            }
        };
        let (admitted, ()) = futures_util::future::join(requests, reloads).await;
        for key in &keys {
            let count = admitted.iter().filter(|id| **id == key.id).count();
            assert!((5..=20).contains(&count), "{count}");
        }
        gateways.iter().for_each(|gateway| gateway.set_defaults(small.clone()));
        for gateway in &gateways {
            assert_eq!(burst(gateway, &keys[0]).await, 5, "both have the same file again");
            gateway.close().await;
        }
    });
}
