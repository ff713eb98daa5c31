//! Patches of organizations, users and keys: each a merge patch (RFC 7396), made whole, as one change.
//!
//! - What is absent stays; `null` takes a value away, and is refused where there is none to take away.
//! - The record of a patch of one field has the name of the command that sets it, such as `org.suspend`; that of
//!   several is `org.update`, `user.update` or `key.update`.

use serde::Deserialize;

use super::audited_change::{Target, apply_change};
use super::authorization::{Access, authorize};
use super::operands::{find_org, find_person, find_user};
use super::orgs::org_from_record;
use super::owned_key::{find_key, show_owned};
use super::session_end::end_memberships;
use super::user::{Responsible, find_responsible};
use super::{
    Actor, Key, LimitPatch, Management, ManagementError, Org, OrgPolicyUpdate, PolicyUpdate, User, check_concurrent,
    conditions, given, operands, orgs,
};
use domain::budget::OwnBudget;
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::KeyId;
use domain::key::policy::Field;
use domain::management_token::TokenScope;
use domain::names;
use domain::plan_name::PlanName;
use state::{
    self, Change, KeyPatch, OrgPatch, OrgPolicy, OrgPolicyPatch, Permitted, PolicyChange, PolicyScope, UserPatch,
};

/// Patch of an organization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrgUpdate {
    /// True to suspend it, false to resume it.
    #[serde(default, deserialize_with = "given::value")]
    pub suspended: Option<bool>,
    /// Requests in flight at most, 1 to 1,000,000; `null` for the configured limit.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub concurrent: Option<Option<u32>>,
    /// Plan of its keys; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub plan: Option<Option<PlanName>>,
    /// Its own quota of a period; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub quota: Option<Option<OwnBudget>>,
    /// Policy of keys that are created from now on; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub policy: Option<Option<OrgPolicyUpdate>>,
}

/// Patch of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserUpdate {
    /// All permissions.
    #[serde(default, deserialize_with = "given::value")]
    pub permissions: Option<Vec<Permission>>,
    /// Permissions that are added to these, or to those that the user has.
    #[serde(default)]
    pub add_permissions: Vec<Permission>,
    /// Permissions that are taken away, also from those that are added.
    #[serde(default)]
    pub remove_permissions: Vec<Permission>,
    /// True to suspend the user, false to resume it.
    #[serde(default, deserialize_with = "given::value")]
    pub suspended: Option<bool>,
    /// Id or email address of the person who is responsible for a service.
    #[serde(default, deserialize_with = "given::value")]
    pub responsible: Option<String>,
    /// Plan of its keys and sessions; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub plan: Option<Option<PlanName>>,
    /// Its own quota of a period; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub quota: Option<Option<OwnBudget>>,
}

/// Patch of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyUpdate {
    /// Its name.
    #[serde(default, deserialize_with = "given::value")]
    pub name: Option<String>,
    /// Its policy.
    #[serde(default, deserialize_with = "crate::json_input::object")]
    pub policy: PolicyUpdate,
    /// Its own limits; `null` for the configured ones.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub limits: Option<Option<LimitPatch>>,
    /// Its plan; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub plan: Option<Option<PlanName>>,
    /// Its own quota of a period; `null` for none.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub quota: Option<Option<OwnBudget>>,
}

impl UserUpdate {
    fn changes_permissions(&self) -> bool {
        self.permissions.is_some() || !self.add_permissions.is_empty() || !self.remove_permissions.is_empty()
    }

    /// The permissions after the update of a user who has these.
    fn apply_to(&self, present: &[Permission]) -> Vec<Permission> {
        let mut permissions = self.permissions.clone().unwrap_or_else(|| present.to_vec());
        permissions.extend_from_slice(&self.add_permissions);
        permissions.retain(|permission| !self.remove_permissions.contains(permission));
        operands::normalize_permissions(permissions)
    }
}

/// Patches an organization. For the operator.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::InvalidConcurrent`], [`ManagementError::InvalidPolicy`],
/// [`ManagementError::NoPlan`].
pub async fn update_org(
    management: &Management,
    actor: &Actor,
    org: &str,
    update: OrgUpdate,
    now: Micros,
) -> Result<Org, ManagementError> {
    let by = authorize(management, actor, Access::OrgOperator(org, TokenScope::OrgsWrite), now).await?;
    check_concurrent(update.concurrent.flatten())?;
    operands::check_plan(management, update.plan.iter().flatten().next())?;
    let mut org = find_org(management, org).await?;
    let policy = update.policy.map(|update| {
        let whole = || OrgPolicyPatch::from(OrgPolicy::default());
        update.map_or_else(whole, OrgPolicyUpdate::into_patch)
    });
    let action = match (update.suspended, update.concurrent, policy, &update.plan, update.quota) {
        (Some(true), None, None, None, None) => "org.suspend",
        (Some(false), None, None, None, None) => "org.resume",
        (None, Some(_), None, None, None) => "org.limits",
        (None, None, Some(_), None, None) => "org.policy",
        (None, None, None, Some(_), None) => "org.plan",
        (None, None, None, None, Some(_)) => "org.quota",
        _ => "org.update",
    };
    let policy = policy.unwrap_or_default();
    let (plan, budget, concurrent) = (field(update.plan), field(update.quota), field(update.concurrent));
    let patch = OrgPatch { suspended: update.suspended, concurrent, plan: plan.clone(), budget, policy };
    let change = Change::UpdateOrg { org: org.id, patch };
    apply_change(management, action, orgs::target(org.id), change, by).await?;
    org.suspended = update.suspended.unwrap_or(org.suspended);
    org.concurrent = update.concurrent.unwrap_or(org.concurrent);
    org.plan = plan.apply(org.plan);
    org.budget = update.quota.unwrap_or(org.budget);
    // Other fields may have been changed meanwhile: then the answer has what this call knows.
    org.policy = policy.apply_to(org.policy).unwrap_or(org.policy);
    Ok(org_from_record(management, org))
}

/// Patches a user. For the operator; administrators of the organization suspend and resume, and where they manage
/// people they permit persons what they may do themselves, but do not end the role of the last of them.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoUser`], [`ManagementError::NotService`],
/// [`ManagementError::NotPerson`], [`ManagementError::LastAdmin`], [`ManagementError::NoPlan`],
/// [`ManagementError::PeopleOfProvider`], [`ManagementError::GrantExceeds`];
/// [`ManagementError::Stale`] when permissions are added or taken away, and the user was changed meanwhile.
pub async fn update_user(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    update: UserUpdate,
    now: Micros,
) -> Result<User, ManagementError> {
    let is_permitted = update.changes_permissions();
    let is_sold = update.plan.is_some() || update.quota.is_some();
    let access = if update.responsible.is_some() || is_sold {
        Access::OrgOperator(org, TokenScope::UsersWrite)
    } else if is_permitted {
        Access::People(org, Some(TokenScope::UsersWrite))
    } else {
        Access::OrgAdmin(org, TokenScope::UsersWrite)
    };
    let by = authorize(management, actor, access, now).await?;
    operands::check_plan(management, update.plan.iter().flatten().next())?;
    let mut user = find_user(management, find_org(management, org).await?.id, user).await?;
    if is_permitted {
        operands::require_person_of(actor, &user)?;
    }
    // The permissions that are left follow from those that were read.
    let read = (is_permitted && update.permissions.is_none()).then(|| user.etag());
    let permitted =
        is_permitted.then(|| Permitted { permissions: update.apply_to(&user.permissions), vouched_by: None });
    let UserUpdate { suspended, responsible, plan, quota, .. } = update;
    let person = match responsible {
        Some(_) if !user.is_service() => return Err(ManagementError::NotService(user.email)),
        Some(person) => Some(find_person(management, user.org, &person).await?),
        None => None,
    };
    let action = user_action(is_permitted, suspended, person.is_some(), (plan.is_some(), quota.is_some()));
    let is_taken_back = is_permitted && user.withdrawn.is_some();
    let is_resumed = suspended == Some(false) && user.suspended.is_some();
    if is_taken_back || is_resumed {
        // Sessions that a withdrawal or a suspension did not get to, because the process died: they must not come
        // back with the user.
        end_memberships(management, &user, by).await?;
    }
    let patch = UserPatch {
        permitted,
        suspended: field(suspended.map(|suspended| suspended.then_some(now))),
        by_operator: actor.is_operator(),
        responsible: person.as_ref().map(|person| person.id),
        plan: field(plan),
        budget: field(quota),
    };
    // The user first: from then on no session acts there, also one that begins meanwhile.
    let change = Change::UpdateUser { org: user.org, user: user.id, patch: patch.clone() };
    let change = match read {
        Some(tag) => conditions::require_read(change, tag, actor)?,
        None => change,
    };
    apply_change(management, action, Target::of_user(&user), change, by).await?;
    if suspended == Some(true) {
        end_memberships(management, &user, by).await?;
    }
    patch.apply_to(&mut user);
    let responsible = match person {
        Some(person) => Some(Responsible::new(person.id, Some(&person))),
        None => find_responsible(management, &user).await?,
    };
    Ok(User::new(user, responsible))
}

/// Patches a key: its policy, as owners may narrow it, its limits, as signed-in administrators may lower them, and its
/// plan, as the operator may.
///
/// # Errors
/// [`ManagementError::NoKey`], [`ManagementError::Revoked`], [`ManagementError::InvalidKeyPolicy`],
/// [`ManagementError::BeyondOwner`], [`ManagementError::Widened`], [`ManagementError::TooLate`],
/// [`ManagementError::InvalidQuota`], [`ManagementError::NoPlan`]; [`ManagementError::LimitsRaised`], and
/// [`ManagementError::Stale`] when an administrator lowers limits and the key was changed meanwhile.
pub async fn update_key(
    management: &Management,
    actor: &Actor,
    id: KeyId,
    update: KeyUpdate,
    now: Micros,
) -> Result<Key, ManagementError> {
    let KeyUpdate { name, policy, limits, plan, quota: own } = update;
    // No program of an administrator changes limits, as it changes no permissions.
    let may_only_lower = limits.is_some() && actor.signed_in().is_some();
    let is_of_operator = (limits.is_some() && !may_only_lower) || plan.is_some() || own.is_some();
    let access = if is_of_operator {
        Access::KeyOperator(id, TokenScope::KeysSet)
    } else {
        Access::Key(id, TokenScope::KeysSet)
    };
    let by = authorize(management, actor, access, now).await?;
    if may_only_lower && actor.policy_scope(now) == PolicyScope::Owner {
        return Err(ManagementError::NotAllowed);
    }
    operands::check_plan(management, plan.iter().flatten().next())?;
    let name = name.as_deref().map(names::validate_name).transpose()?;
    let owned = find_key(management, actor, id).await?;
    let action = match (&name, policy.is_empty(), limits, &plan, own) {
        (None, _, None, None, None) => "key.set",
        (Some(_), true, None, None, None) => "key.rename",
        (None, true, Some(_), None, None) => "key.limits",
        (None, true, None, Some(_), None) => "key.plan",
        (None, true, None, None, Some(_)) => "key.quota",
        _ => "key.update",
    };
    let has_others = limits.is_some() || plan.is_some() || own.is_some() || name.is_some();
    let policy = if policy.is_empty() && has_others {
        None
    } else {
        let patch = policy.into_patch_of(&owned)?;
        Some(PolicyChange { patch: Box::new(patch), allowed: actor.policy_scope(now) })
    };
    let defaults = management.state.defaults();
    let limits_of = |key: &state::Key| defaults.limits_of_key(key, owned.user.as_ref(), owned.org.as_ref()).quota;
    let in_force = limits_of(&owned.key);
    let quota = match limits {
        None => Field::Keep,
        Some(None) => Field::Clear,
        Some(Some(limits)) => Field::Set(limits.apply_to(in_force, defaults.quota).validate()?),
    };
    let lowered = state::Key { quota: quota.clone().apply(owned.key.quota), ..owned.key.clone() };
    if may_only_lower && !limits_of(&lowered).is_within(in_force) {
        return Err(ManagementError::LimitsRaised(id));
    }
    let patch = KeyPatch { name, quota, plan: field(plan), budget: field(own), policy };
    let change = Change::UpdateKey { key: id, patch };
    // Lower than those that were read, which the operator may have lowered since.
    let change = if may_only_lower { conditions::require_read(change, owned.key.etag(), actor)? } else { change };
    apply_change(management, action, Target::of_key(&owned.key), change, by).await?;
    // Read again: others may have changed other fields.
    Ok(show_owned(management, &find_key(management, actor, id).await?, now))
}

/// The action of a patch of a user, in its audit record.
fn user_action(
    is_permitted: bool,
    suspended: Option<bool>,
    is_reassigned: bool,
    has_plan_and_quota: (bool, bool),
) -> &'static str {
    match (is_permitted, suspended, is_reassigned, has_plan_and_quota) {
        (true, None, false, (false, false)) => "user.permit",
        (false, Some(true), false, (false, false)) => "user.suspend",
        (false, Some(false), false, (false, false)) => "user.resume",
        (false, None, true, (false, false)) => "user.reassign",
        (false, None, false, (true, false)) => "user.plan",
        (false, None, false, (false, true)) => "user.quota",
        _ => "user.update",
    }
}

/// The change of a field of a record.
fn field<T>(value: Option<Option<T>>) -> Field<T> {
    value.map_or(Field::Keep, |value| value.map_or(Field::Clear, Field::Set))
}
