//! Quotas of a period: what the subject of one has spent, and corrections of that.
//!
//! A recount sets what is spent to the sum of the records. It begins a new stretch of the period first: from then on
//! nothing comes back of earlier requests, so that the records of these have the units that stay. What is spent
//! meanwhile is of the new stretch, and is not counted again.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::audited_change::{Target, begin_change, use_end};
use super::authorization::{Access, authorize};
use super::operands::{find_org, find_user};
use super::owned_key::find_key;
use super::{Actor, Management, ManagementError};
use domain::budget::{Budget, BudgetStatus, BudgetSubject};
use domain::clock::Micros;
use domain::key::{KeyId, OrgTag};
use domain::management_token::TokenScope;
use state::spending::{Spending, SpendingChange};
use state::{GivenPlan, GivenPlans};

/// The organization, the user of one, or the key whose quota is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaOwner {
    /// Id or name of the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// Id or email address of a user of it, or name of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Id of a key, in place of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
}

/// A quota with what is spent of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The subject whose requests spend it, as `key:…`, `user:…` or `org:…`.
    pub subject: String,
    /// The quota.
    #[serde(flatten)]
    pub budget: Budget,
    /// Units that are spent or reserved.
    pub used: u64,
    /// Units that are left.
    pub remaining: u64,
    /// Start of the period, or of its part since the last correction.
    #[serde(with = "domain::clock::rfc3339")]
    pub start: Micros,
    /// First moment of the next period.
    #[serde(with = "domain::clock::rfc3339")]
    pub end: Micros,
}

/// The subject of a quota that was found.
struct Found {
    budget: Budget,
    subject: BudgetSubject,
    tag: OrgTag,
    target: Target,
}

/// Shows the quota that the requests of an organization, a user or a key spend: of a user without a key those of the
/// web sessions.
///
/// # Errors
/// [`ManagementError::NoQuota`], and that there is no such organization, user or key.
pub async fn show_quota(
    management: &Management,
    actor: &Actor,
    owner: &QuotaOwner,
    now: Micros,
) -> Result<Quota, ManagementError> {
    let access = |org| Access::OrgAdmin(org, TokenScope::UsageRead);
    match owner.place()? {
        Place::Org(org) | Place::User(org, _) => authorize(management, actor, access(org), now).await?,
        Place::Key(key) => authorize(management, actor, Access::Key(key, TokenScope::UsageRead), now).await?,
    };
    let found = find(management, actor, owner).await?;
    let spending = management.state.spending_of(found.tag, found.subject).await?;
    Ok(Quota::new(&found, spending, management.state.time(now)))
}

/// Has nothing of a quota be spent, from now to the end of the period. For the operator.
///
/// # Errors
/// As [`show_quota`]; [`ManagementError::QuotaChanged`].
pub async fn reset_quota(
    management: &Management,
    actor: &Actor,
    owner: &QuotaOwner,
    now: Micros,
) -> Result<Quota, ManagementError> {
    let by = authorize(management, actor, owner.write_access()?, now).await?;
    let found = find(management, actor, owner).await?;
    let entry = begin_change(management, "quota.reset", "quota.reset", found.target, false, by).await?;
    let started = Instant::now();
    let reset = found.change(management, SpendingChange::Reset, now).await;
    entry.close_change(use_end(&reset, started)).await;
    reset.map(|[_, after]| Quota::new(&found, after, management.state.time(now)))
}

/// Place of the owner of a quota.
enum Place<'a> {
    Org(&'a str),
    User(&'a str, &'a str),
    Key(KeyId),
}

impl QuotaOwner {
    fn place(&self) -> Result<Place<'_>, ManagementError> {
        match (self.org.as_deref(), self.user.as_deref(), self.key) {
            (Some(org), None, None) => Ok(Place::Org(org)),
            (Some(org), Some(user), None) => Ok(Place::User(org, user)),
            (None, None, Some(key)) => Ok(Place::Key(key)),
            _ => Err(ManagementError::InvalidBody("give `org`, `org` and `user`, or `key`".to_owned())),
        }
    }

    fn write_access(&self) -> Result<Access<'_>, ManagementError> {
        Ok(match self.place()? {
            Place::Org(org) => Access::OrgOperator(org, TokenScope::OrgsWrite),
            Place::User(org, _) => Access::OrgOperator(org, TokenScope::UsersWrite),
            Place::Key(key) => Access::KeyOperator(key, TokenScope::KeysSet),
        })
    }
}

/// Finds the quota that requests of the owner spend.
async fn find(management: &Management, actor: &Actor, owner: &QuotaOwner) -> Result<Found, ManagementError> {
    let defaults = management.state.defaults();
    let missing = |whose: String| ManagementError::NoQuota(whose);
    match owner.place()? {
        Place::Key(id) => {
            let owned = find_key(management, actor, id).await?;
            let (key, user, org) = (&owned.key, owned.user.as_ref(), owned.org.as_ref());
            let budget = defaults.limits_of_key(key, user, org).budget;
            let budget = budget.ok_or_else(|| missing(format!("key {id}")))?;
            let subject = budget.subject((!key.session_quota_key).then_some(id), key.user, key.org);
            Ok(Found { budget, subject, tag: id.tag(), target: Target::of_key(key) })
        }
        Place::User(org, user) => {
            let org = find_org(management, org).await?;
            let user = find_user(management, org.id, user).await?;
            let given = GivenPlans { key: GivenPlan::default(), user: (&user).into(), org: (&org).into() };
            let budget = defaults.limits_of(None, given).budget;
            let budget = budget.ok_or_else(|| missing(format!("user {}", user.email)))?;
            let subject = budget.subject(None, user.id, org.id);
            Ok(Found { budget, subject, tag: org.tag, target: Target::of_user(&user) })
        }
        Place::Org(org) => {
            let org = find_org(management, org).await?;
            let given = GivenPlans { org: (&org).into(), ..GivenPlans::default() };
            let budget = defaults.limits_of(None, given).budget;
            // One of each key or user is not that of the organization.
            let budget = budget.filter(|budget| budget.of == domain::budget::Spender::Org);
            let budget = budget.ok_or_else(|| missing(format!("organization {}", org.name)))?;
            let target = Target { org: Some(org.id), user: None, key: None };
            Ok(Found { budget, subject: BudgetSubject::Org(org.id), tag: org.tag, target })
        }
    }
}

impl Found {
    async fn change(
        &self,
        management: &Management,
        change: SpendingChange,
        now: Micros,
    ) -> Result<[Spending; 2], ManagementError> {
        let changed = management.state.change_spending(self.tag, self.subject, self.budget, change, now).await?;
        changed.ok_or(ManagementError::QuotaChanged)
    }
}

impl Quota {
    fn new(found: &Found, spending: Spending, now: Micros) -> Self {
        let status = spending.at(found.budget, now).status(found.budget);
        let BudgetStatus { used, start, end, .. } = status;
        Self {
            subject: found.subject.to_string(),
            budget: found.budget,
            used,
            remaining: status.remaining(),
            start,
            end,
        }
    }
}
