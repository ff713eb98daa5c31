//! Plans: limits under a name, which keys, users and organizations are given; and the limits that are then in force.
//!
//! - A record has the name, and the configuration the values: a reload changes all keys of a plan with their next
//!   request.
//! - The first of these levels that says something gives all limits of a key: the key's own quota, the plan of the key,
//!   of its user, of its organization, the plan for all others, the quota for all others.
//! - A name that the configuration does not have gives the quota for all others, and no further level is looked at: a
//!   plan that was removed from the file never makes a key wider by the plan of its organization.
//! - The requests in flight of a plan are those of each key, as those of a policy are; the smaller of both bounds.
//! - A budget of the key, of its user or of its organization itself, the first of these, is before that of the plan,
//!   and is there without a plan as well.
//! - Names are looked up when a record is read or the configuration comes into force, and never for a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Key, Org, User};
use domain::budget::{Budget, OwnBudget, Spender};
use domain::plan_name::PlanName;
use domain::quota::Quota;

/// Limits of keys and organizations without limits of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Quota of a key without a plan.
    pub quota: Quota,
    /// Requests that an organization may have in flight.
    pub concurrent: u32,
    /// The plans that keys, users and organizations can be given.
    pub plans: LimitPlans,
}

/// Limits under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPlan {
    /// Quota of each key.
    pub quota: Quota,
    /// Requests that each key may have in flight; none: as its policy and its organization say.
    pub concurrent: Option<u32>,
    /// Budget of each key, or of its user or organization.
    pub budget: Option<Budget>,
}

/// The plans of a configuration. A copy shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitPlans(Option<Arc<PlanTable>>);

#[derive(Debug, PartialEq, Eq)]
struct PlanTable {
    plans: BTreeMap<PlanName, LimitPlan>,
    /// The plan where neither the key nor its user nor its organization has one.
    default: Option<PlanName>,
}

/// Plans and own budgets that a key, its user and its organization were given.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenPlans<'a> {
    /// Of the key.
    pub key: GivenPlan<'a>,
    /// Of its user.
    pub user: GivenPlan<'a>,
    /// Of its organization.
    pub org: GivenPlan<'a>,
}

/// Plan and own budget of a key, a user or an organization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenPlan<'a> {
    /// The plan.
    pub plan: Option<&'a PlanName>,
    /// The budget.
    pub budget: Option<OwnBudget>,
}

/// Level that gives a key its limits, the first before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitLevel {
    /// The key's own quota.
    Own,
    /// The plan of the key.
    Key,
    /// The plan of its user.
    User,
    /// The plan of its organization.
    Org,
    /// The plan for all others, `limits.plan`.
    Plan,
    /// The quota for all others, `limits.key`.
    Default,
}

/// The limits in force of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsInForce<'a> {
    /// The quota.
    pub quota: Quota,
    /// Requests in flight by the plan.
    pub concurrent: Option<u32>,
    /// The budget: the own one of the key, of its user or of its organization, or that of the plan.
    pub budget: Option<Budget>,
    /// The level that gives quota and requests in flight.
    pub level: LimitLevel,
    /// The plan at this level.
    pub plan: Option<&'a PlanName>,
    /// The configuration does not have this plan: the quota is that for all others.
    pub is_missing: bool,
}

impl LimitPlans {
    /// No plans.
    pub const NONE: Self = Self(None);

    /// Plans by their names, and the one for keys without a plan, which is one of them.
    pub fn new(plans: BTreeMap<PlanName, LimitPlan>, default: Option<PlanName>) -> Self {
        debug_assert!(default.as_ref().is_none_or(|name| plans.contains_key(name)), "checked with the configuration");
        Self((!plans.is_empty()).then(|| Arc::new(PlanTable { plans, default })))
    }

    /// The names of the plans, in their order.
    pub fn names(&self) -> impl Iterator<Item = &PlanName> {
        self.0.iter().flat_map(|table| table.plans.keys())
    }

    /// Returns whether there is a plan with this name.
    pub fn contains(&self, name: &PlanName) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &PlanName) -> Option<LimitPlan> {
        self.0.as_ref()?.plans.get(name).copied()
    }

    fn default(&self) -> Option<&PlanName> {
        self.0.as_ref()?.default.as_ref()
    }
}

impl LimitsInForce<'_> {
    /// The same without the name of the plan.
    pub(crate) fn unnamed(self) -> LimitsInForce<'static> {
        let Self { quota, concurrent, budget, level, plan: _, is_missing } = self;
        LimitsInForce { quota, concurrent, budget, level, plan: None, is_missing }
    }
}

impl<'a> GivenPlans<'a> {
    /// Those of a key with its user and its organization, as far as these are known.
    pub fn of(key: &'a Key, user: Option<&'a User>, org: Option<&'a Org>) -> Self {
        Self {
            key: key.into(),
            user: user.map(GivenPlan::from).unwrap_or_default(),
            org: org.map(GivenPlan::from).unwrap_or_default(),
        }
    }

    /// The first own budget, of the key before those of its user and its organization.
    fn own_budget(&self) -> Option<Budget> {
        let levels = [(self.key, Spender::Key), (self.user, Spender::User), (self.org, Spender::Org)];
        levels.into_iter().find_map(|(given, of)| Some(given.budget?.of(of)))
    }
}

impl<'a> From<&'a Key> for GivenPlan<'a> {
    fn from(key: &'a Key) -> Self {
        Self { plan: key.plan.as_ref(), budget: key.budget }
    }
}

impl<'a> From<&'a User> for GivenPlan<'a> {
    fn from(user: &'a User) -> Self {
        Self { plan: user.plan.as_ref(), budget: user.budget }
    }
}

impl<'a> From<&'a Org> for GivenPlan<'a> {
    fn from(org: &'a Org) -> Self {
        Self { plan: org.plan.as_ref(), budget: org.budget }
    }
}

impl Defaults {
    /// Limits without plans.
    pub fn new(quota: Quota, concurrent: u32) -> Self {
        Self { quota, concurrent, plans: LimitPlans::NONE }
    }

    /// The limits in force of a key with this quota of its own, to which these plans were given.
    pub fn limits_of<'a>(&'a self, own: Option<Quota>, given: GivenPlans<'a>) -> LimitsInForce<'a> {
        let configured = LimitsInForce {
            quota: self.quota.in_force(own),
            concurrent: None,
            budget: given.own_budget(),
            level: if own.is_some() { LimitLevel::Own } else { LimitLevel::Default },
            plan: None,
            is_missing: false,
        };
        let levels = [
            (LimitLevel::Key, given.key.plan),
            (LimitLevel::User, given.user.plan),
            (LimitLevel::Org, given.org.plan),
            (LimitLevel::Plan, self.plans.default()),
        ];
        let first = levels.into_iter().find_map(|(level, plan)| Some((level, plan?)));
        let Some((level, name)) = first.filter(|_| own.is_none()) else { return configured };
        match self.plans.find(name) {
            Some(LimitPlan { quota, concurrent, budget }) => LimitsInForce {
                // A strict configuration makes every quota strict, also those of plans.
                quota: self.quota.in_force(Some(quota)),
                concurrent,
                budget: configured.budget.or(budget),
                level,
                plan: Some(name),
                is_missing: false,
            },
            None => LimitsInForce { level, plan: Some(name), is_missing: true, ..configured },
        }
    }

    /// The limits in force of a key with its user and its organization, as far as these are known.
    pub fn limits_of_key<'a>(
        &'a self,
        key: &'a Key,
        user: Option<&'a User>,
        org: Option<&'a Org>,
    ) -> LimitsInForce<'a> {
        self.limits_of(key.quota, GivenPlans::of(key, user, org))
    }
}

/// The requests in flight of a key by its policy and its plan.
pub(crate) fn smaller(policy: Option<u32>, plan: Option<u32>) -> Option<u32> {
    policy.into_iter().chain(plan).min()
}

#[cfg(test)]
mod tests {
    use domain::budget::Period;

    use super::*;

    fn name(text: &str) -> PlanName {
        text.parse().unwrap()
    }

    fn quota(requests: u32) -> Quota {
        Quota { requests, burst: requests, ..Quota::DEFAULT }
    }

    fn defaults(default: Option<&str>) -> Defaults {
        let plan = |requests, concurrent| LimitPlan { quota: quota(requests), concurrent, budget: None };
        let plans =
            [("one", plan(1, Some(3))), ("two", plan(2, None)), ("three", plan(3, None)), ("four", plan(4, None))];
        let plans = plans.into_iter().map(|(text, plan)| (name(text), plan)).collect();
        Defaults { plans: LimitPlans::new(plans, default.map(name)), ..Defaults::new(quota(5), 100) }
    }

    #[test]
    fn first_level_that_says_something_gives_all_limits() {
        let names = ["one", "two", "three"].map(name);
        let defaults = defaults(Some("four"));
        let levels = [LimitLevel::Own, LimitLevel::Key, LimitLevel::User, LimitLevel::Org, LimitLevel::Plan];
        // Each level without the ones before it.
        for (first, level) in levels.into_iter().enumerate() {
            let own = (first == 0).then(|| quota(9));
            let given = |place: usize| GivenPlan { plan: (first <= place).then(|| &names[place - 1]), budget: None };
            let limits = defaults.limits_of(own, GivenPlans { key: given(1), user: given(2), org: given(3) });
            let expected = [9, 1, 2, 3, 4][first];
            assert_eq!((limits.level, limits.quota.requests), (level, expected));
            assert_eq!(limits.concurrent, (level == LimitLevel::Key).then_some(3));
            assert_eq!(limits.plan.is_some(), level != LimitLevel::Own);
        }
        let none = self::defaults(None);
        let limits = none.limits_of(None, GivenPlans::default());
        assert_eq!((limits.level, limits.quota, limits.plan), (LimitLevel::Default, quota(5), None));
    }

    #[test]
    fn missing_plan_gives_the_quota_for_all_others_and_no_further_level() {
        let (gone, two) = (name("gone"), name("two"));
        let plan = |plan| GivenPlan { plan: Some(plan), budget: None };
        let defaults = defaults(Some("four"));
        let limits =
            defaults.limits_of(None, GivenPlans { user: plan(&gone), org: plan(&two), ..GivenPlans::default() });
        assert_eq!((limits.quota, limits.level, limits.plan), (quota(5), LimitLevel::User, Some(&gone)));
        assert!(limits.is_missing && limits.concurrent.is_none());
        let own = defaults.limits_of(Some(quota(9)), GivenPlans { key: plan(&gone), ..GivenPlans::default() });
        assert!(!own.is_missing, "a plan that gives nothing is not missed");
    }

    #[test]
    fn own_budget_is_before_that_of_the_plan_and_needs_none() {
        let own = |units| GivenPlan { plan: None, budget: Some(OwnBudget { units, per: Period::Day }) };
        let given = GivenPlans { key: own(1), user: own(2), org: own(3) };
        let budget = |quota, given| defaults(Some("four")).limits_of(quota, given).budget.map(|budget| budget.units);
        assert_eq!(budget(None, given), Some(1));
        assert_eq!(budget(Some(quota(9)), GivenPlans { key: GivenPlan::default(), ..given }), Some(2));
        assert_eq!(budget(None, GivenPlans { org: own(3), ..GivenPlans::default() }), Some(3));
        assert_eq!(budget(None, GivenPlans::default()), None);
    }

    #[test]
    fn strict_configuration_makes_plans_strict() {
        let strict = Defaults { quota: Quota { strict: true, burst: 100, ..Quota::DEFAULT }, ..defaults(Some("four")) };
        let limits = strict.limits_of(None, GivenPlans::default());
        assert_eq!((limits.quota.requests, limits.quota.burst, limits.quota.strict), (4, 1, true));
        assert!(limits.quota.validate().is_ok());
    }

    #[test]
    fn smaller_number_in_flight_bounds() {
        assert_eq!([smaller(None, None), smaller(Some(2), None), smaller(None, Some(3))], [None, Some(2), Some(3)]);
        assert_eq!((smaller(Some(2), Some(3)), smaller(Some(4), Some(3))), (Some(2), Some(3)));
    }
}
