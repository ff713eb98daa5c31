//! Usage to bill by, of the records of the audit: what `keygate usage` shows.

use serde::{Deserialize, Serialize};

use super::authorization::{Access, authorize};
use super::operands::find_org;
use super::uses::read_audit;
use super::{Actor, Management, ManagementError, UsageSummary};
use domain::clock::Micros;
use domain::management_token::TokenScope;
use journal::audit::{AuditView, BillingPeriod, UsageBy, UsageQuery};

/// Usage that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRequest {
    /// The subject of each row.
    pub by: UsageBy,
    /// The period of each row.
    pub per: BillingPeriod,
    /// Uses that began at this time or later.
    pub since: Option<Micros>,
    /// Uses that began before this time.
    pub until: Option<Micros>,
    /// A row for each gateway that recorded uses.
    pub by_gateway: bool,
    /// Id or name of the only organization; none: all that the actor may see.
    pub org: Option<String>,
    /// The gateways whose records are counted; none: all where their records are shipped to PostgreSQL, else this one.
    pub scope: Option<UsageScope>,
}

/// Gateways whose records are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    /// All of them, by their records in PostgreSQL.
    Fleet,
    /// This one, by its journal.
    Gateway,
}

/// Returns whether the records of all gateways are configured to be read.
pub(crate) fn has_fleet(management: &Management) -> bool {
    management.view.has_fleet()
}

/// Adds usage up: of one organization, or of all that the actor may see.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::JournalUnreadable`], [`ManagementError::TooManyReads`].
pub async fn show_usage(
    management: &Management,
    actor: &Actor,
    request: UsageRequest,
    now: Micros,
) -> Result<UsageSummary, ManagementError> {
    let UsageRequest { by, per, since, until, by_gateway, org, scope } = request;
    let own = actor.org().map(|org| org.to_string());
    let org = match org.or(own) {
        Some(org) => {
            authorize(management, actor, Access::OrgAdmin(&org, TokenScope::UsageRead), now).await?;
            Some(find_org(management, &org).await?.id)
        }
        None => {
            authorize(management, actor, Access::AllOrgs(TokenScope::UsageRead), now).await?;
            None
        }
    };
    let is_fleet = scope.map_or_else(|| has_fleet(management), |scope| scope == UsageScope::Fleet);
    let query = UsageQuery { by, per, since, until, by_gateway, org, budget: None };
    let gateway = management.gateway.clone();
    let read = move |view: &AuditView| {
        if is_fleet { view.usage_of_fleet(query) } else { view.usage_of_gateway(query, gateway, now) }
    };
    let (reports, view) = read_audit(management, actor, read).await?;
    Ok(UsageSummary::new(query, &reports, view))
}
