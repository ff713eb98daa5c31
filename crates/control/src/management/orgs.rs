//! Organizations: create, list, show, suspend, resume, limit.

use serde::{Deserialize, Serialize};

use super::audited_change::{Target, apply_change};
use super::authorization::{Access, authorize};
use super::cursor::cursor_sealer;
use super::operands::find_org;
use super::sessions::accessible_orgs;
use super::{Actor, KeyLimits, Management, ManagementError, PlanInForce, SignedInUser, operands};
use domain::budget::OwnBudget;
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::OrgTag;
use domain::management_token::TokenScope;
use domain::names;
use domain::page::{Page, PageQuery};
use domain::plan_name::PlanName;
use state::{self, Change, ETag, GivenPlans, OrgPolicy};

/// Tags to try before giving up. There are 238,328, so with half of them taken, the last try is one in a million.
const MAX_TAG_ATTEMPTS: usize = 20;

/// Organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::Org")]
pub struct Org {
    pub id: OrgId,
    pub name: String,
    pub tag: OrgTag,
    pub suspended: bool,
    /// The organization's own limit of requests in flight; none: the configured one.
    pub concurrent: Option<u32>,
    /// The limit of requests in flight that is in force, the organization's own or the configured one.
    pub concurrent_in_force: u32,
    /// The plan of its keys, unless they or their users have one; left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// Its own quota of a period, before that of any plan; left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<OwnBudget>,
    /// The policy for keys that are created from now on; left out when it bounds nothing.
    #[serde(default, skip_serializing_if = "OrgPolicy::is_empty")]
    pub policy: OrgPolicy,
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// Entity tag of the record; none of one that came over a wire.
    #[serde(skip)]
    pub etag: Option<ETag>,
}

/// Creates an organization with this name, and perhaps a plan. For the operator.
///
/// # Errors
/// [`ManagementError::InvalidName`], [`ManagementError::NoPlan`]; [`ManagementError::Taken`] when an organization has
/// this name, or one that looks the same.
pub async fn create_org(
    management: &Management,
    actor: &Actor,
    name: &str,
    plan: Option<PlanName>,
    now: Micros,
) -> Result<Org, ManagementError> {
    let by = authorize(management, actor, Access::AllOrgs(TokenScope::OrgsWrite), now).await?;
    let name = names::validate_org_name(name)?;
    operands::check_plan(management, plan.as_ref())?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let id = OrgId::generate();
        let tag = OrgTag::generate()?;
        let org = state::Org { plan: plan.clone(), ..state::Org::new(id, tag, name.clone(), now) };
        match apply_change(management, "org.create", target(id), Change::CreateOrg(org.clone()), by).await {
            // Tags are short, so two organizations may draw the same one: draw again.
            Err(ManagementError::Taken("tag")) if attempts < MAX_TAG_ATTEMPTS => {}
            changed => return changed.map(|()| org_from_record(management, org)),
        }
    }
}

/// Lists all organizations in the order of their creation, a page at a time; for a program of one organization,
/// that one. For the operator and for programs.
///
/// # Errors
/// [`ManagementError::Cursor`].
pub async fn list_orgs(
    management: &Management,
    actor: &Actor,
    page: &PageQuery,
    now: Micros,
) -> Result<Page<Org>, ManagementError> {
    if let Some(own) = actor.token_org() {
        let own = show_org(management, actor, &own.to_string(), now).await?;
        return Ok(Page { items: vec![own], next: None });
    }
    authorize(management, actor, Access::AllOrgs(TokenScope::OrgsRead), now).await?;
    let sealer = cursor_sealer(management, &"orgs").await?;
    let from = sealer.open(page.cursor.as_deref())?.unwrap_or_default();
    let found = management.state.page_of_orgs(from, page.limit.get()).await?;
    sealer.seal(found.map(|org| org_from_record(management, org)))
}

/// The organizations that a signed-in user is a member of.
///
/// # Errors
/// Those of [`ManagementError`] that concern the state.
pub async fn member_orgs(management: &Management, user: &SignedInUser) -> Result<Vec<Org>, ManagementError> {
    let mut orgs = Vec::new();
    for (id, _) in accessible_orgs(management, user).await? {
        orgs.extend(management.state.org(id).await?);
    }
    // In the order of their creation.
    orgs.sort_by_key(|org| (org.created, org.id));
    Ok(orgs.into_iter().map(|org| org_from_record(management, org)).collect())
}

/// Shows one organization. For its members.
///
/// # Errors
/// [`ManagementError::NoOrg`].
pub async fn show_org(management: &Management, actor: &Actor, org: &str, now: Micros) -> Result<Org, ManagementError> {
    authorize(management, actor, Access::Org(org, TokenScope::OrgsRead), now).await?;
    find_org(management, org).await.map(|org| org_from_record(management, org))
}

pub(super) fn org_from_record(management: &Management, org: state::Org) -> Org {
    Org::new(org, management.state.concurrent())
}

/// The plan that gives an organization its quota of a period; none when the quota is its own.
pub fn plan_of_quota(management: &Management, org: &state::Org) -> Option<PlanInForce> {
    let defaults = management.state.defaults();
    let limits = defaults.limits_of(None, GivenPlans { org: org.into(), ..GivenPlans::default() });
    KeyLimits::from(limits).plan.filter(|_| org.budget.is_none())
}

impl Org {
    /// From the record and the configured limit of requests in flight.
    pub(super) fn new(org: state::Org, configured: u32) -> Self {
        let etag = Some(org.etag());
        let state::Org { id, tag, name, created, suspended, concurrent, plan, budget: quota, policy } = org;
        let concurrent_in_force = concurrent.unwrap_or(configured);
        Self { id, name, tag, suspended, concurrent, concurrent_in_force, plan, quota, policy, created, etag }
    }
}

/// Checks an organization's own limit of requests in flight.
///
/// # Errors
/// [`ManagementError::InvalidConcurrent`].
pub fn check_concurrent(concurrent: Option<u32>) -> Result<(), ManagementError> {
    match concurrent {
        Some(concurrent) if !state::Org::CONCURRENT.contains(&concurrent) => Err(ManagementError::InvalidConcurrent),
        _ => Ok(()),
    }
}

pub(super) fn target(org: OrgId) -> Target {
    Target { org: Some(org), user: None, key: None }
}
