//! Quotas of a period: what the subject of one has spent, and corrections of that.
//!
//! A recount sets what is spent to the sum of the records. It begins a new stretch of the period first: from then on
//! nothing comes back of earlier requests, so that the records of these have the units that stay. What is spent
//! meanwhile is of the new stretch, and is not counted again.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::actor::AuditActor;
use super::audited_change::{Target, begin_change, use_end};
use super::authorization::{Access, authorize};
use super::operands::{find_org, find_user};
use super::owned_key::find_key;
use super::usage::has_fleet;
use super::uses::read_audit;
use super::{Actor, Management, ManagementError};
use domain::budget::{Budget, BudgetStatus, BudgetSubject, BudgetTotal, Spender};
use domain::clock::Micros;
use domain::key::{KeyId, OrgTag};
use domain::management_token::TokenScope;
use journal::audit::{AuditView, Filter, GatewayFreshness, Outcome, RecordKind, SpentBy};
use state::spending::{Spending, SpendingChange};
use state::{GivenPlan, GivenPlans, State};

/// Actions of the records.
const RESET: &str = "quota.reset";
const RECOUNT: &str = "quota.recount";

/// Time after which the requests of before a stretch are recorded, by gateways whose clocks may differ.
pub const UNTIL_RECORDED: Duration = Duration::from_secs(5);

/// Microseconds.
const SECOND: u64 = 1_000_000;

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

/// A step of a recount. See [`recount_quota`]. It has the members of the owner itself, because serde takes unknown
/// members where one is flattened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaRecount {
    /// Id or name of the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// Id or email address of a user of it, or name of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Id of a key, in place of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The stretch that the first step has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretch: Option<Stretch>,
    /// Units of the records of all gateways from before the stretch; none: they are added up here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Names of gateways whose last records are lost, and not waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// Part of a period from a correction on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// Its start.
    #[serde(with = "domain::clock::rfc3339")]
    pub start: Micros,
    /// Units that were spent when it began.
    pub used: u64,
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
    let start = found.next_stretch(management, now).await?;
    let path = found.path(RESET, start);
    let after = found.change(management, (RESET, &path), SpendingChange::Reset(start), by).await?;
    Ok(Quota::new(&found, after, management.state.time(now)))
}

/// Sets what is spent of a quota to the sum of the records, in two calls.
///
/// 1. Without `stretch`: begins a new stretch of the period with what is spent, and returns it. From now on nothing
///    comes back of earlier requests, so that their records have the units that stay.
/// 2. With it: adds the difference between the units of these records and those that the stretch began with, once. The
///    records are those of all gateways, or `counted` is their sum.
///
/// For the operator.
///
/// # Errors
/// As [`reset_quota`]; of the second call [`ManagementError::QuotaRecordsLate`] until all gateways have shipped their
/// records, [`ManagementError::QuotaRecordsMissing`] when they are not all here.
pub async fn recount_quota(
    management: &Management,
    actor: &Actor,
    recount: &QuotaRecount,
    now: Micros,
) -> Result<Quota, ManagementError> {
    let owner = &recount.owner();
    let by = authorize(management, actor, owner.write_access()?, now).await?;
    let found = find(management, actor, owner).await?;
    let Some(Stretch { start, used }) = recount.stretch else {
        let start = found.next_stretch(management, now).await?;
        let path = found.path(RECOUNT, start);
        let after = found.change(management, (RECOUNT, &path), SpendingChange::Split(start), by).await?;
        return Ok(Quota::new(&found, after, management.state.time(now)));
    };
    let counted = match recount.counted {
        Some(counted) => counted,
        None => count(management, actor, &found, start, recount.without.clone(), now).await?,
    };
    let units = i64::try_from(counted).unwrap_or(i64::MAX).saturating_sub_unsigned(used);
    let path = format!("{}/{used}/{counted}", found.path(RECOUNT, start));
    let after = found.change(management, (RECOUNT, &path), SpendingChange::Add { start, units }, by).await?;
    Ok(Quota::new(&found, after, management.state.time(now)))
}

/// The units of a subject in the records of all these views; from the last reset on, if there was one in this time.
///
/// # Errors
/// If the records cannot be read, or do not go back to the start of the time.
pub fn count_units(views: &[AuditView], mut spent: SpentBy, now: Micros) -> io::Result<(u64, Vec<GatewayFreshness>)> {
    for view in views {
        spent.from = last_reset(view, &spent)?;
    }
    let mut sum = (0, Vec::new());
    for view in views {
        let (units, gateways) =
            if view.has_fleet() { view.units_of_fleet(&spent)? } else { (view.units_of_gateway(&spent, now)?, vec![]) };
        sum.0 += units;
        sum.1.extend(gateways);
    }
    Ok(sum)
}

/// Start of the stretch that the last reset in this time began; the beginning of the time, when there was none.
fn last_reset(view: &AuditView, SpentBy { subject, from, before }: &SpentBy) -> io::Result<Micros> {
    let since = Some(from.before(SpentBy::CLOCK_MARGIN));
    let filter = Filter { since, kind: Some(RecordKind::Change), ..Filter::default() };
    let prefix = format!("{RESET}/{subject}/");
    let mut last = *from;
    view.export(&filter, &mut |record| {
        let is_made = matches!(record.outcome, Outcome::Completed | Outcome::Unconfirmed);
        let seconds = record.path.strip_prefix(&prefix).and_then(|text| text.parse::<u64>().ok());
        let start = seconds.map(|seconds| Micros(seconds.saturating_mul(SECOND)));
        if let Some(start) = start.filter(|start| is_made && start < before) {
            last = last.max(start);
        }
        Ok(())
    })?;
    Ok(last)
}

/// Adds the records of all gateways up.
async fn count(
    management: &Management,
    actor: &Actor,
    found: &Found,
    stretch: Micros,
    without: Vec<String>,
    now: Micros,
) -> Result<u64, ManagementError> {
    let missing = ManagementError::QuotaRecordsMissing;
    let is_shared = matches!(*management.state, State::Redis(_));
    if is_shared && !has_fleet(management) {
        return Err(missing("no PostgreSQL has those of all gateways; give their journals by `--journal`".to_owned()));
    }
    let from = found.budget.per.around(stretch).start;
    let spent = SpentBy { subject: found.subject, from, before: stretch };
    let read_at = management.state.time(now);
    let read = move |view: &AuditView| Ok(count_units(std::slice::from_ref(view), spent, now));
    let counted = read_audit(management, actor, read).await?;
    let (units, gateways) = counted.map_err(|error| missing(error.to_string()))?;
    // The journal of this gateway is complete by now.
    let own = GatewayFreshness { gateway: management.gateway.clone(), complete_until: read_at, updated: read_at };
    let gateways = if gateways.is_empty() { vec![own] } else { gateways };
    let needed = stretch.after(UNTIL_RECORDED);
    let late = gateways.iter().filter(|late| late.complete_until < needed && !without.contains(&late.gateway));
    let late: Vec<String> = late.map(|late| format!("{} ({})", late.gateway, late.complete_until)).collect();
    if !late.is_empty() {
        return Err(ManagementError::QuotaRecordsLate(late.join(", ")));
    }
    let shipped = gateways.iter().filter(|gateway| gateway.complete_until >= needed).count();
    let registered = management.state.registered_gateways();
    if registered > shipped {
        return Err(missing(format!(
            "{registered} gateways are registered on Redis, and {shipped} ship to this PostgreSQL; have all ship \
             there, or give their journals by `--journal` (one that was killed is registered for up to `lease` and \
             `max_staleness`)"
        )));
    }
    Ok(units)
}

/// Place of the owner of a quota.
enum Place<'a> {
    Org(&'a str),
    User(&'a str, &'a str),
    Key(KeyId),
}

impl QuotaRecount {
    fn owner(&self) -> QuotaOwner {
        QuotaOwner { org: self.org.clone(), user: self.user.clone(), key: self.key }
    }
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
            let budget = budget.filter(|budget| budget.of == Spender::Org);
            let budget = budget.ok_or_else(|| missing(format!("organization {}", org.name)))?;
            let target = Target { org: Some(org.id), user: None, key: None };
            Ok(Found { budget, subject: BudgetSubject::Org(org.id), tag: org.tag, target })
        }
    }
}

impl Found {
    /// Start of a new stretch of the period.
    async fn next_stretch(&self, management: &Management, now: Micros) -> Result<Micros, ManagementError> {
        let spending = management.state.spending_of(self.tag, self.subject).await?;
        Ok(spending.next_stretch(self.budget, management.state.time(now)))
    }

    /// Path of a record about a stretch: `quota.reset/org:org_…/1793491200`.
    fn path(&self, action: &str, start: Micros) -> String {
        let total = BudgetTotal { subject: self.subject, start, units: 0 };
        format!("{action}/{}", total.without_units())
    }

    /// Opens the audit record, corrects the spending, and closes the record.
    async fn change(
        &self,
        management: &Management,
        (action, path): (&str, &str),
        change: SpendingChange,
        by: AuditActor<'_>,
    ) -> Result<Spending, ManagementError> {
        let entry = begin_change(management, action, path, self.target, false, by).await?;
        let started = Instant::now();
        let changed = management.state.change_spending(self.tag, self.subject, self.budget, change, by.now).await;
        let changed =
            changed.map_err(ManagementError::from).and_then(|found| found.ok_or(ManagementError::QuotaChanged));
        entry.close_change(use_end(&changed, started)).await;
        changed.map(|[_, after]| after)
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
