//! Patches: the changes of single fields of an organization, a user or a key, which one change makes together.
//!
//! - Fields that a patch does not name stay as they are.
//! - A patch is made whole or not at all, as every [`super::Change`].

use domain::budget::OwnBudget;
use domain::clock::Micros;
use domain::identity::{Permission, UserId, Voucher};
use domain::key::policy::{Field, PolicyPatch};
use domain::plan_name::PlanName;
use domain::quota::Quota;

use super::{OrgPolicyPatch, PolicyScope, User};

/// Change of an organization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrgPatch {
    /// True to suspend it, false to resume it.
    pub suspended: Option<bool>,
    /// Its own limit of requests in flight, at least 1; cleared for the configured limit.
    pub concurrent: Field<u32>,
    /// Its plan; holds for its keys from the next request on.
    pub plan: Field<PlanName>,
    /// Its own budget, likewise; what was spent in the period stays spent.
    pub budget: Field<OwnBudget>,
    /// Its policy for keys that are created from now on.
    pub policy: OrgPolicyPatch,
}

/// Change of a user that is not removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPatch {
    /// Replaces its permissions, and takes back a withdrawal; holds for its keys from the next request on.
    pub permitted: Option<Permitted>,
    /// Suspends it, or, cleared, resumes it: while it is suspended, requests with its keys and sessions are refused. Of
    /// several suspensions the first time stands.
    pub suspended: Field<Micros>,
    /// The operator suspends or resumes it. A suspension by the operator is noted, also of one who is suspended
    /// already, and the operator alone takes it back.
    pub by_operator: bool,
    /// Makes another person of the organization responsible for a service.
    pub responsible: Option<UserId>,
    /// Its plan; holds for its keys from the next request on.
    pub plan: Field<PlanName>,
    /// Its own budget, likewise; what was spent in the period stays spent.
    pub budget: Field<OwnBudget>,
}

/// Permissions that a user gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permitted {
    /// All permissions; sorted, each once.
    pub permissions: Vec<Permission>,
    /// The provider that vouches for the membership from now on; `None` leaves the record's.
    pub vouched_by: Option<Voucher>,
}

/// Change of a key that is not revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatch {
    /// Its name, checked; none to keep it.
    pub name: Option<String>,
    /// Its own quota, checked; cleared for the configured one. The tokens in the bucket stay, capped by the new burst.
    pub quota: Field<Quota>,
    /// Its plan; the tokens in the bucket stay likewise.
    pub plan: Field<PlanName>,
    /// Its own budget; what was spent in the period stays spent.
    pub budget: Field<OwnBudget>,
    /// Holds from the next decision on. What is open ends when the key is disabled then, and at its expiry.
    pub policy: Option<PolicyChange>,
}

/// Change of the policy of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// The fields to change.
    pub patch: Box<PolicyPatch>,
    /// The policies that may follow on the one before.
    pub allowed: PolicyScope,
}

impl KeyPatch {
    /// Returns whether it changes the limits of the key.
    pub(crate) fn changes_limits(&self) -> bool {
        self.quota != Field::Keep || self.plan != Field::Keep || self.budget != Field::Keep
    }
}

impl UserPatch {
    /// Changes a user, as the transaction of the change did.
    pub fn apply_to(self, user: &mut User) {
        let Self { permitted, suspended, by_operator, responsible, plan, budget } = self;
        if let Some(Permitted { permissions, vouched_by }) = permitted {
            user.permissions = permissions;
            user.withdrawn = None;
            user.vouched_by = vouched_by.or(user.vouched_by.take());
        }
        match suspended {
            Field::Keep => {}
            Field::Clear => {
                user.suspended = None;
                user.suspended_by_operator = false;
            }
            Field::Set(at) => {
                user.suspended = user.suspended.or(Some(at));
                user.suspended_by_operator |= by_operator;
            }
        }
        user.responsible = responsible.or(user.responsible);
        user.plan = plan.apply(user.plan.take());
        user.budget = budget.apply(user.budget);
    }
}
