//! Federation rules: create, list, show, remove.
//!
//! A rule has the gateway fetch the key set of an issuer, and makes keys for longer than a token lives. So rules are
//! for the operator, and for programs with tokens that the operator has made.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::audited_change::{Target, apply_change_at};
use super::authorization::{Access, authorize};
use super::cursor::cursor_sealer;
use super::operands::{check_creation, find_org, find_user, normalize_permissions};
use super::{Actor, Management, ManagementError};
use crate::oidc;
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, UserId};
use domain::management_token::TokenScope;
use domain::page::{Page, PageQuery};
use state::{self, ActorName, Change, ClaimPattern, RuleChange, duration_text};

/// Lifetime of the keys of a rule that says none.
pub const FEDERATED_KEY_LIFETIME: Duration = Duration::from_secs(3600);

/// A rule to be created, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFederationRule {
    /// Its name, unique in the organization.
    pub name: String,
    /// Id or name of the service whose keys it makes.
    pub user: String,
    /// The issuer of the tokens, to the letter.
    pub issuer: String,
    /// The audience of the tokens, to the letter.
    pub audience: String,
    /// Further audiences that are trusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Patterns of claims by their names.
    pub claims: BTreeMap<String, ClaimPattern>,
    /// Permissions of its keys.
    pub permissions: Vec<Permission>,
    /// Lifetime of its keys; one hour where it is absent.
    #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
    /// Tags of its keys besides those of every rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Federation rule, as results show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::FederationRule")]
pub struct FederationRule {
    pub name: String,
    pub org: OrgId,
    pub user: UserId,
    /// Name of the service; none of one that was removed.
    pub service: Option<String>,
    /// `audience` of an exchange by this rule.
    pub target: String,
    pub issuer: String,
    pub audience: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    pub claims: BTreeMap<String, ClaimPattern>,
    pub permissions: Vec<Permission>,
    #[serde(with = "duration_text")]
    pub max: Duration,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
}

/// Creates a federation rule.
///
/// # Errors
/// [`ManagementError::InvalidRule`], [`ManagementError::InvalidIssuer`], [`ManagementError::NoOrg`],
/// [`ManagementError::NoUser`], [`ManagementError::NotService`], [`ManagementError::BeyondOwner`],
/// [`ManagementError::Taken`].
pub async fn create_federation_rule(
    management: &Management,
    actor: &Actor,
    org: &str,
    new: NewFederationRule,
    now: Micros,
) -> Result<FederationRule, ManagementError> {
    let by = authorize(management, actor, Access::OrgOperator(org, TokenScope::KeysCreate), now).await?;
    let org = find_org(management, org).await?;
    check_creation(actor, &org)?;
    let user = find_user(management, org.id, &new.user).await?;
    if !user.is_service() {
        return Err(ManagementError::NotService(user.email));
    }
    let rule = new.into_rule(org.id, user.id, now)?;
    let created_by = Some(ActorName::new(actor.audit_name(None)));
    let rule = state::FederationRule { created_by, ..rule };
    if let Some(beyond) = rule.permissions.iter().find(|permission| !user.permissions.contains(permission)) {
        return Err(ManagementError::BeyondOwner(beyond.clone()));
    }
    let change = Change::FederationRule(RuleChange::Create(Box::new(rule.clone())));
    apply_change_at(management, "federation.create", &path("federation.create", &rule.name), target(&rule), change, by)
        .await?;
    Ok(FederationRule::new(rule, &org.name, Some(user.email)))
}

/// Lists the federation rules of an organization, by their names, a page at a time.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
pub async fn list_federation_rules(
    management: &Management,
    actor: &Actor,
    org: &str,
    page: &PageQuery,
    now: Micros,
) -> Result<Page<FederationRule>, ManagementError> {
    authorize(management, actor, Access::OrgOperator(org, TokenScope::KeysRead), now).await?;
    let org = find_org(management, org).await?;
    let sealer = cursor_sealer(management, &("federation rules", org.id)).await?;
    let after: Option<String> = sealer.open(page.cursor.as_deref())?;
    let mut rules = management.state.federation_rules(org.id).await?;
    rules.retain(|rule| after.as_ref().is_none_or(|after| rule.name > *after));
    let has_more = rules.len() > page.limit.get();
    rules.truncate(page.limit.get());
    let next = rules.last().filter(|_| has_more).map(|rule| rule.name.clone());
    let items = try_join_all(rules.into_iter().map(|rule| show_rule(management, rule, &org.name))).await?;
    sealer.seal(Page { items, next })
}

/// Shows a federation rule.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoRule`].
pub async fn show_federation_rule(
    management: &Management,
    actor: &Actor,
    org: &str,
    name: &str,
    now: Micros,
) -> Result<FederationRule, ManagementError> {
    authorize(management, actor, Access::OrgOperator(org, TokenScope::KeysRead), now).await?;
    let org = find_org(management, org).await?;
    show_rule(management, find_rule(management, org.id, name).await?, &org.name).await
}

/// Removes a federation rule: no token is exchanged by it from then on. Its keys stay until they end.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoRule`].
pub async fn remove_federation_rule(
    management: &Management,
    actor: &Actor,
    org: &str,
    name: &str,
    now: Micros,
) -> Result<FederationRule, ManagementError> {
    let by = authorize(management, actor, Access::OrgOperator(org, TokenScope::KeysCreate), now).await?;
    let org = find_org(management, org).await?;
    let rule = find_rule(management, org.id, name).await?;
    let change = Change::FederationRule(RuleChange::Remove { org: org.id, name: rule.name.clone() });
    apply_change_at(management, "federation.remove", &path("federation.remove", &rule.name), target(&rule), change, by)
        .await?;
    show_rule(management, rule, &org.name).await
}

pub(super) async fn find_rule(
    management: &Management,
    org: OrgId,
    name: &str,
) -> Result<state::FederationRule, ManagementError> {
    let found = management.state.federation_rule(org, name).await?;
    found.ok_or_else(|| ManagementError::NoRule(name.to_owned()))
}

pub(super) async fn show_rule(
    management: &Management,
    rule: state::FederationRule,
    org: &str,
) -> Result<FederationRule, ManagementError> {
    let member = management.state.member(rule.org, rule.user).await?;
    let service = member.filter(|(_, user)| user.removed.is_none()).map(|(_, user)| user.email);
    Ok(FederationRule::new(rule, org, service))
}

impl NewFederationRule {
    /// Checks all that does not depend on the state.
    ///
    /// # Errors
    /// [`ManagementError::InvalidRule`], [`ManagementError::InvalidIssuer`].
    pub fn check(&self) -> Result<(), ManagementError> {
        // Ids are valid, whatever they name.
        self.clone().into_rule(OrgId::generate(), UserId::generate(), Micros(0)).map(drop)
    }

    fn into_rule(self, org: OrgId, user: UserId, now: Micros) -> Result<state::FederationRule, ManagementError> {
        oidc::Settings::check_issuer(&self.issuer).map_err(ManagementError::InvalidIssuer)?;
        let rule = state::FederationRule {
            name: self.name,
            org,
            user,
            issuer: self.issuer,
            audience: self.audience,
            audiences: self.audiences,
            claims: self.claims,
            permissions: normalize_permissions(self.permissions),
            max: self.max.unwrap_or(FEDERATED_KEY_LIFETIME),
            tags: self.tags,
            created: now,
            created_by: None,
        };
        rule.validate()?;
        Ok(rule)
    }
}

impl FederationRule {
    fn new(rule: state::FederationRule, org_name: &str, service: Option<String>) -> Self {
        let state::FederationRule {
            name,
            org,
            user,
            issuer,
            audience,
            audiences,
            claims,
            permissions,
            max,
            tags,
            created,
            ..
        } = rule;
        let target = format!("{org_name}/{name}");
        Self { target, name, org, user, service, issuer, audience, audiences, claims, permissions, max, tags, created }
    }
}

pub(super) fn target(rule: &state::FederationRule) -> Target {
    Target { org: Some(rule.org), user: Some(rule.user), key: None }
}

pub(super) fn path(action: &str, rule: &str) -> String {
    format!("{action}/{rule}")
}
