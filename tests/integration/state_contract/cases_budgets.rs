//! Budgets: what a key, a user or an organization may spend in a period, exactly, in every decision.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::budget::{Budget, BudgetSubject, Cost, OwnBudget, Period, Spender};
use domain::clock::{self, Micros};
use domain::key::policy::Field;
use domain::plan_name::PlanName;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::spending::SpendingChange;
use state::{Change, DecideRequest, Decision, Defaults, KeyPatch, LimitPlan, LimitPlans, OrgPatch, State, UserPatch};

use super::fixture::{Fixture, HeldKey, admitted, fixture_with_key, refused};
use super::runtime::block_on;
use super::{CONCURRENT, QUOTA};
use crate::support::decide::decide_request;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Rounds of requests at once.
const ROUNDS: usize = 1000;

/// A plan of this budget, with a bucket that never runs out.
pub(super) fn defaults(units: u64, of: Spender) -> Defaults {
    let quota = Quota { requests: 1_000_000, per: Duration::from_secs(1), burst: 1_000_000, strict: false };
    let budget = Some(Budget { units, per: Period::Day, of });
    let plan = LimitPlan { quota, concurrent: None, budget };
    let name: PlanName = "sold".parse().unwrap();
    let plans = LimitPlans::new([(name, plan)].into(), None);
    Defaults { plans, ..Defaults::new(QUOTA, CONCURRENT) }
}

/// An organization with a key, whose plan has a budget; and the start of a day in which nothing was spent.
pub(super) async fn sold(state: &State, units: u64, of: Spender) -> (Fixture, HeldKey, Micros) {
    state.set_defaults(defaults(units, of));
    let (fixture, key) = fixture_with_key(state).await;
    let patch = OrgPatch { plan: Field::Set("sold".parse().unwrap()), ..OrgPatch::default() };
    state.change(Change::UpdateOrg { org: fixture.org, patch }).await.unwrap();
    (fixture, key, Period::Day.around(clock::now().after(DAY)).start)
}

async fn pay(state: &State, key: &HeldKey, cost: u32, now: Micros) -> Decision {
    state.decide(DecideRequest { cost: Cost::fixed(cost), ..decide_request(&key.digest, now) }).await.unwrap()
}

/// Units that are spent, by the status.
pub(super) async fn used(state: &State, key: &HeldKey, now: Micros) -> u64 {
    state.rate_limit_status(key.id, now).await.unwrap().unwrap().budget.unwrap().used
}

pub(super) async fn budget_admits_its_units_and_begins_anew_with_the_next_period(state: &State) {
    let (_, key, day) = sold(state, 10, Spender::Org).await;
    for spent in [3, 6, 9] {
        let status = admitted(pay(state, &key, 3, day).await).rate_limit.budget.unwrap();
        assert_eq!((status.units, status.used, status.start, status.end), (10, spent, day, day.after(DAY)));
    }
    let last = Micros(day.after(DAY).0 - 1);
    for now in [day, last] {
        let decision = pay(state, &key, 2, now).await;
        assert_eq!(refused(&decision), Refusal::QuotaExhausted);
        let Decision::Denied { rate_limit: Some(status), .. } = decision else { panic!("no status") };
        assert_eq!(status.budget.unwrap().used, 9, "a refusal takes nothing");
    }
    assert_eq!(admitted(pay(state, &key, 1, last).await).rate_limit.budget.unwrap().remaining(), 0);
    let next = day.after(DAY);
    assert_eq!(admitted(pay(state, &key, 10, next).await).rate_limit.budget.unwrap().remaining(), 0);
    // A clock that was set back finds the later period.
    assert_eq!(refused(&pay(state, &key, 1, last).await), Refusal::QuotaExhausted);
}

pub(super) async fn budget_is_of_the_key_the_user_or_the_organization(state: &State) {
    for (of, second, third) in [(Spender::Key, 3, 3), (Spender::User, 6, 3), (Spender::Org, 6, 9)] {
        let (fixture, key, day) = sold(state, 10, of).await;
        let same_user = fixture.key(state).await;
        let other = fixture.user(state, "other@example.com").await;
        let other_user = fixture.key_of(state, other).await;
        let spent = async |key: &HeldKey| admitted(pay(state, key, 3, day).await).rate_limit.budget.unwrap().used;
        assert_eq!(
            (spent(&key).await, spent(&same_user).await, spent(&other_user).await),
            (3, second, third),
            "{of:?}"
        );
        let (_, foreign) = fixture_with_key(state).await;
        assert!(admitted(pay(state, &foreign, 1, day).await).rate_limit.budget.is_none(), "it has no plan");
    }
}

pub(super) async fn sessions_spend_the_budget_of_their_user(state: &State) {
    let (fixture, key, day) = sold(state, 10, Spender::Key).await;
    let sessions = fixture.session_quota_key(state, fixture.user).await;
    assert_eq!(admitted(pay(state, &sessions, 4, day).await).rate_limit.budget.unwrap().used, 4);
    assert_eq!(admitted(pay(state, &key, 1, day).await).rate_limit.budget.unwrap().used, 1, "the key has its own");
    state.set_defaults(defaults(10, Spender::User));
    assert_eq!(admitted(pay(state, &key, 1, day).await).rate_limit.budget.unwrap().used, 5, "the user's");
}

pub(super) async fn refusal_for_tokens_or_slots_spends_nothing(state: &State) {
    let (_, key, day) = sold(state, 10, Spender::Org).await;
    let mut held = Vec::new();
    for _ in 0..CONCURRENT {
        held.push(admitted(pay(state, &key, 1, day).await));
    }
    assert_eq!(refused(&pay(state, &key, 1, day).await), Refusal::TooManyInFlight);
    assert_eq!(used(state, &key, day).await, u64::from(CONCURRENT));
    assert_eq!(refused(&pay(state, &key, 1_000_001, day).await), Refusal::CostOverLimit);
    drop(held);
    assert_eq!(used(state, &key, day).await, u64::from(CONCURRENT), "slots come back, and units do not");
}

pub(super) async fn five_at_once_with_room_for_three_are_three(state: &State) {
    five_at_once(&[state]).await;
}

/// Five threads, at these gateways by turns, each send a request at once, with room for three: in so many days.
pub(super) async fn five_at_once(gateways: &[&State]) {
    let (fixture, key, day) = sold(gateways[0], 30, Spender::Org).await;
    gateways.iter().for_each(|gateway| gateway.set_defaults(defaults(30, Spender::Org)));
    gateways[0].change(Change::limit_org(fixture.org, Some(100))).await.unwrap();
    let (admitted, together) = ([const { AtomicU32::new(0) }; ROUNDS], Barrier::new(5));
    let at = |round: usize| day.after(DAY * u32::try_from(round).unwrap());
    std::thread::scope(|scope| {
        for gateway in gateways.iter().cycle().take(5) {
            scope.spawn(|| {
                for (round, admitted) in admitted.iter().enumerate() {
                    together.wait();
                    let decision = block_on(pay(gateway, &key, 9, at(round)));
                    let is_admitted = matches!(decision, Decision::Admitted(_));
                    admitted.fetch_add(is_admitted.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.map(AtomicU32::into_inner), [3; ROUNDS]);
    assert_eq!(used(gateways[0], &key, at(ROUNDS - 1)).await, 27);
}

pub(super) async fn what_a_request_did_not_cost_comes_back_into_its_period(state: &State) {
    let (_, key, day) = sold(state, 10, Spender::Org).await;
    let reservation = async |cost, now| admitted(pay(state, &key, cost, now).await).permit.into_reservation().unwrap();
    let (first, second) = (reservation(6, day).await, reservation(4, day).await);
    first.settle(2);
    // On Redis with the next decision.
    let third = reservation(4, day).await;
    assert_eq!(used(state, &key, day).await, 10);
    second.settle(0);
    third.settle(4);
    assert_eq!(admitted(pay(state, &key, 4, day).await).rate_limit.budget.unwrap().used, 10, "2 + 0 + 4 + 4");
    // One of the day before gives nothing back today.
    let tomorrow = day.after(DAY);
    let late = reservation(6, tomorrow).await;
    let after = tomorrow.after(DAY);
    drop(admitted(pay(state, &key, 1, after).await));
    late.settle(0);
    assert_eq!(admitted(pay(state, &key, 1, after).await).rate_limit.budget.unwrap().used, 2);
    // The cost of a response beyond its reservation is charged as it is.
    reservation(1, after).await.settle(9);
    assert_eq!(refused(&pay(state, &key, 1, after).await), Refusal::QuotaExhausted);
    assert_eq!(used(state, &key, after).await, 11);
}

pub(super) async fn reload_changes_the_budget_with_the_next_request(state: &State) {
    let (_, key, day) = sold(state, 10, Spender::Org).await;
    drop(admitted(pay(state, &key, 8, day).await));
    state.set_defaults(defaults(8, Spender::Org));
    assert_eq!(refused(&pay(state, &key, 1, day).await), Refusal::QuotaExhausted);
    state.set_defaults(defaults(20, Spender::Org));
    assert_eq!(admitted(pay(state, &key, 12, day).await).rate_limit.budget.unwrap().used, 20);
    // Without the plan there is no budget; with it, what was spent is still known.
    let patch = KeyPatch { quota: Field::Set(QUOTA), ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
    assert!(admitted(pay(state, &key, 1, day).await).rate_limit.budget.is_none());
    let patch = KeyPatch { quota: Field::Clear, ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
    assert_eq!(used(state, &key, day).await, 20);
}

pub(super) async fn correction_begins_a_new_stretch_of_the_period(state: &State) {
    for of in [Spender::Key, Spender::User, Spender::Org] {
        let (fixture, key, day) = sold(state, 10, of).await;
        let budget = Budget { units: 10, per: Period::Day, of };
        let subject = match of {
            Spender::Key => BudgetSubject::Key(key.id),
            Spender::User => BudgetSubject::User(fixture.user),
            Spender::Org => BudgetSubject::Org(fixture.org),
        };
        let tag = state.org(fixture.org).await.unwrap().unwrap().tag;
        let change = async |change, now| state.change_spending(tag, subject, budget, change, now).await.unwrap();
        let open = admitted(pay(state, &key, 6, day).await).permit.into_reservation().unwrap();
        assert_eq!(state.spending_of(tag, subject).await.unwrap().used(), 6);
        // Uses that are open before a correction stay as they were: the counter is never too low.
        let later = day.after(Duration::from_millis(2500));
        let next = async |now| state.spending_of(tag, subject).await.unwrap().next_stretch(budget, now);
        let [before, after] = change(SpendingChange::Split(next(later).await), later).await.unwrap();
        assert_eq!((before.start, before.used()), (day, 6));
        assert_eq!((after.start, after.used()), (day.after(Duration::from_secs(2)), 6));
        open.settle(0);
        let first = admitted(pay(state, &key, 1, later).await);
        let status = first.rate_limit.budget.clone().unwrap();
        assert_eq!((status.used, status.start, status.end), (7, after.start, day.after(DAY)));
        // Of the new stretch it comes back.
        first.permit.into_reservation().unwrap().settle(0);
        let add = |units| SpendingChange::Add { start: after.start, units };
        drop(admitted(pay(state, &key, 1, later).await));
        assert_eq!(change(add(-4), later).await.map(|[_, after]| after.used()), Some(3));
        assert_eq!(change(add(-4), later).await, None, "once");
        drop(admitted(pay(state, &key, 2, later).await));
        let [_, second] = change(SpendingChange::Split(next(later).await), later).await.unwrap();
        let more = SpendingChange::Add { start: second.start, units: 3 };
        assert_eq!(change(more, later).await.map(|[_, after]| after.used()), Some(8));
        let start = next(later).await;
        let [_, reset] = change(SpendingChange::Reset(start), later).await.unwrap();
        assert_eq!(change(SpendingChange::Reset(start), later).await, None, "it has begun");
        assert_eq!((reset.start, reset.used()), (day.after(Duration::from_secs(4)), 0));
        assert_eq!(change(add(5), later).await, None, "the stretch is over");
        assert_eq!(admitted(pay(state, &key, 10, later).await).rate_limit.budget.unwrap().used, 10);
        assert_eq!(refused(&pay(state, &key, 1, later).await), Refusal::QuotaExhausted);
        assert_eq!(admitted(pay(state, &key, 10, day.after(DAY)).await).rate_limit.budget.unwrap().used, 10);
    }
}

/// An own budget goes before that of the plan, and that of the key before those of its user and organization.
pub(super) async fn own_budget_is_the_one_that_is_spent(state: &State) {
    let (fixture, key, day) = sold(state, 10, Spender::Org).await;
    let other = fixture.key(state).await;
    let own = |units| Field::Set(OwnBudget { units, per: Period::Day });
    let left = async |key: &HeldKey| admitted(pay(state, key, 1, day).await).rate_limit.budget.unwrap().remaining();
    assert_eq!(left(&key).await, 9, "of the plan");
    let patch = OrgPatch { budget: own(100), ..OrgPatch::default() };
    state.change(Change::UpdateOrg { org: fixture.org, patch }).await.unwrap();
    assert_eq!((left(&key).await, left(&other).await), (98, 97), "what was spent stays spent");
    let patch = UserPatch { budget: own(200), ..UserPatch::default() };
    state.change(Change::UpdateUser { org: fixture.org, user: fixture.user, patch }).await.unwrap();
    assert_eq!((left(&key).await, left(&other).await), (199, 198));
    let patch = KeyPatch { budget: own(300), ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
    assert_eq!((left(&key).await, left(&other).await), (299, 197));
    let record = state.key(key.id).await.unwrap().unwrap();
    assert_eq!(record.budget, Some(OwnBudget { units: 300, per: Period::Day }));
    // A quota of its own takes the key out of plans, and not out of budgets of subjects.
    let patch = KeyPatch { quota: Field::Set(QUOTA), budget: Field::Clear, ..KeyPatch::default() };
    state.change(Change::UpdateKey { key: key.id, patch }).await.unwrap();
    assert_eq!(left(&key).await, 196);
    let patch = UserPatch { budget: Field::Clear, ..UserPatch::default() };
    state.change(Change::UpdateUser { org: fixture.org, user: fixture.user, patch }).await.unwrap();
    let patch = OrgPatch { budget: Field::Clear, ..OrgPatch::default() };
    state.change(Change::UpdateOrg { org: fixture.org, patch }).await.unwrap();
    assert!(admitted(pay(state, &key, 1, day).await).rate_limit.budget.is_none());
    assert_eq!(left(&other).await, 6, "the plan's: 10 - 1 - 1 - 1 - 1");
}

pub(super) async fn budget_is_found_nearly_spent_once_in_each_period(state: &State) {
    let (fixture, key, day) = sold(state, 100, Spender::Org).await;
    let other = fixture.key(state).await;
    for (now, costs) in [(day, [79, 1, 5, 15]), (day.after(DAY), [40, 50, 5, 5])] {
        let at_least = if now == day { 80 } else { 90 };
        for (key, cost) in [&key, &other, &other, &key].into_iter().zip(costs) {
            drop(admitted(pay(state, key, cost, now).await));
        }
        assert_eq!(refused(&pay(state, &other, 1, now).await), Refusal::QuotaExhausted);
        // Another one of the day before would come first.
        let near = state.next_near_budget().await;
        assert_eq!((near.subject, near.org), (BudgetSubject::Org(fixture.org), fixture.org));
        assert_eq!((near.status.used, near.status.start), (at_least, now));
    }
    // So does a response that has cost more than its request reserved.
    let after = day.after(2 * DAY);
    let exceeding = admitted(pay(state, &key, 10, after).await).permit.into_reservation().unwrap();
    exceeding.settle(200);
    assert_eq!(refused(&pay(state, &key, 1, after).await), Refusal::QuotaExhausted);
    assert_eq!(state.next_near_budget().await.status.used, 200);
    // A reset begins a new stretch, which is found anew.
    let (subject, budget) =
        (BudgetSubject::Org(fixture.org), Budget { units: 100, per: Period::Day, of: Spender::Org });
    let tag = state.org(fixture.org).await.unwrap().unwrap().tag;
    let later = after.after(Duration::from_secs(1));
    state.change_spending(tag, subject, budget, SpendingChange::Reset(later), later).await.unwrap().unwrap();
    drop(admitted(pay(state, &key, 80, later).await));
    let near = state.next_near_budget().await;
    assert_eq!((near.status.used, near.status.start), (80, later));
}
