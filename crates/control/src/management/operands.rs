//! Operands: normalizes permissions, and looks up the organizations and users that references name.

use super::{Actor, Management, ManagementError};
use domain::identity::{OrgId, Permission, UserId};
use domain::key::KeyDigest;
use domain::names;
use domain::plan_name::PlanName;

/// Keys of one operation at most: more than a page of them.
const MAX_KEYS: usize = 200;

/// Looks up the organization with this id or name.
pub(super) async fn find_org(management: &Management, reference: &str) -> Result<state::Org, ManagementError> {
    look_up_org(management, reference).await?.ok_or_else(|| ManagementError::NoOrg(reference.to_owned()))
}

/// The same; `None` when there is none.
pub(super) async fn look_up_org(
    management: &Management,
    reference: &str,
) -> Result<Option<state::Org>, ManagementError> {
    Ok(match reference.parse::<OrgId>() {
        Ok(id) => management.state.org(id).await?,
        Err(_) => management.state.org_by_name(reference.trim()).await?,
    })
}

/// Looks up the user with this id or email address; a removed user is reported as absent.
pub(super) async fn find_user(
    management: &Management,
    org: OrgId,
    reference: &str,
) -> Result<state::User, ManagementError> {
    let user = match reference.parse::<UserId>() {
        Ok(id) => management.state.member(org, id).await?.map(|(_, user)| user),
        Err(_) => management.state.user_by_email(org, &names::normalize_handle(reference)).await?,
    };
    let user = user.filter(|user| user.removed.is_none());
    user.ok_or_else(|| ManagementError::NoUser(reference.to_owned()))
}

/// Refuses the creation of anything in a suspended organization to its sessions and tokens.
///
/// # Errors
/// [`ManagementError::OrgSuspended`].
pub(super) fn check_creation(actor: &Actor, org: &state::Org) -> Result<(), ManagementError> {
    if org.suspended && actor.org() == Some(org.id) { Err(ManagementError::OrgSuspended) } else { Ok(()) }
}

/// Refuses a service to signed-in administrators, who manage people only.
///
/// # Errors
/// [`ManagementError::NotPerson`].
pub(super) fn require_person_of(actor: &Actor, user: &state::User) -> Result<(), ManagementError> {
    let is_refused = actor.signed_in().is_some() && user.is_service();
    if is_refused { Err(ManagementError::NotPerson(user.email.clone())) } else { Ok(()) }
}

/// Checks that the configuration has a plan which a record is to be given.
///
/// # Errors
/// [`ManagementError::NoPlan`].
pub(super) fn check_plan(management: &Management, plan: Option<&PlanName>) -> Result<(), ManagementError> {
    match plan {
        Some(plan) if !management.state.defaults().plans.contains(plan) => Err(ManagementError::NoPlan(plan.clone())),
        _ => Ok(()),
    }
}

/// Sorts permissions and removes duplicates.
pub(super) fn normalize_permissions(mut permissions: Vec<Permission>) -> Vec<Permission> {
    permissions.sort_unstable();
    permissions.dedup();
    permissions
}

/// Checks that these keys are few enough for one operation.
pub(super) fn check_key_count<T>(keys: &[T]) -> Result<(), ManagementError> {
    if keys.len() > MAX_KEYS { Err(ManagementError::TooManyKeyIds) } else { Ok(()) }
}

/// Digests that examples of the documentation have or had. Who imports one has copied the example, and everybody may
/// know its key: the second is that of `password`, the last that of an empty text.
const DOCUMENTED_DIGESTS: [&str; 3] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
];

/// Checks the SHA-256 of a key to import. A session quota key is found by a digest of its own; no imported key
/// may stand in for it.
///
/// # Errors
/// [`ManagementError::InvalidDigest`], [`ManagementError::DocumentedDigest`], [`ManagementError::SessionQuotaDigest`].
pub fn check_digest(sha256: &str) -> Result<KeyDigest, ManagementError> {
    let digest = KeyDigest::from_hex(sha256)?;
    if DOCUMENTED_DIGESTS.iter().any(|documented| documented.eq_ignore_ascii_case(sha256)) {
        return Err(ManagementError::DocumentedDigest);
    }
    if state::is_session_quota_digest(&digest) { Err(ManagementError::SessionQuotaDigest) } else { Ok(digest) }
}

/// Looks up the person with this id or email address.
pub(super) async fn find_person(
    management: &Management,
    org: OrgId,
    reference: &str,
) -> Result<state::User, ManagementError> {
    let user = find_user(management, org, reference).await?;
    if user.is_service() { Err(ManagementError::NotPerson(user.email)) } else { Ok(user) }
}
