//! Keys: import, show, revoke, limit. They are created in `key_creation.rs`.

use super::audited_change::{Target, apply_change};
use super::authorization::{Access, authorize};
use super::key_creation::{NewDigest, create_by_digest, id_of_new_key};
use super::operands::{check_digest, check_plan};
use super::owned_key::{OwnedKey, find_key, find_owner, member, new_record, show_owned};
use super::{Actor, Key, KeyActor, LimitUpdate, Management, ManagementError, PolicyUpdate};
use domain::budget::OwnBudget;
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};
use domain::management_token::TokenScope;
use domain::plan_name::PlanName;
use state::{self, Change, KeyEvent, Membership};

/// Name of every session quota key.
const SESSION_QUOTA_KEY_NAME: &str = "web sessions";

/// Key of an older system.
#[derive(Clone, Debug)]
pub struct KeyImport<'a> {
    /// Id or name of the organization.
    pub org: &'a str,
    /// Id or email address of the user.
    pub user: &'a str,
    /// SHA-256 of the whole key, in hexadecimal.
    pub sha256: &'a str,
    /// Id of a key that was made offline, which is in its text; none: of a key of another format.
    pub id: Option<KeyId>,
    /// Its name.
    pub name: &'a str,
    /// Its own limits; none: the configured ones.
    pub limits: Option<LimitUpdate>,
    /// Its plan.
    pub plan: Option<PlanName>,
    /// Its own quota of a period.
    pub quota: Option<OwnBudget>,
    /// Its policy.
    pub policy: PolicyUpdate,
    /// It is refused until it is enabled.
    pub disabled: bool,
}

/// Imports a key of an older system, with its limits and its policy, as one change. For the operator.
///
/// # Errors
/// As [`check_digest`]; [`ManagementError::InvalidQuota`], [`ManagementError::NoPlan`],
/// [`ManagementError::AlreadyImported`],
/// [`ManagementError::KeyIdOfAnotherOrg`], [`ManagementError::KeyIdTaken`]; others as for
/// [`create_key`](super::create_key).
pub async fn import_key(
    management: &Management,
    actor: &Actor,
    import: KeyImport<'_>,
    now: Micros,
) -> Result<Key, ManagementError> {
    let KeyImport { org, user, sha256, id, name, limits, plan, quota: budget, policy, disabled } = import;
    let by = authorize(management, actor, Access::OrgOperator(org, TokenScope::KeysCreate), now).await?;
    let digest = check_digest(sha256)?;
    let quota = limits.map(|limits| limits.quota_from(management.state.quota())).transpose()?;
    check_plan(management, plan.as_ref())?;
    let (org, user, name) = find_owner(management, actor, org, user, name).await?;
    let policy = policy.into_imported(&user.permissions, &org.policy, disabled, now)?;
    let path = if quota.is_some() { "key.import/limits" } else { "key.import" };
    let new = new_record(id_of_new_key(id, &org)?, member(&user), name, now);
    let key = state::Key { imported: id.is_none(), quota, plan, budget, policy, ..new };
    let import = NewDigest { action: "key.import", path, is_id_given: id.is_some(), digest };
    match create_by_digest(management, import, key, by).await {
        (_, Err(ManagementError::Taken("digest"))) => Err(already_imported(management, &digest).await),
        (key, imported) => imported.map(|()| show_owned(management, &OwnedKey::new(key, user, org, actor), now)),
    }
}

/// Shows one key.
///
/// # Errors
/// [`ManagementError::NoKey`].
pub async fn show_key(management: &Management, actor: &Actor, id: KeyId, now: Micros) -> Result<Key, ManagementError> {
    authorize(management, actor, Access::Key(id, TokenScope::KeysRead), now).await?;
    Ok(show_owned(management, &find_key(management, actor, id).await?, now))
}

/// Revokes a key for good: requests with it are refused from the next one on. Revoking it again changes nothing.
///
/// # Errors
/// [`ManagementError::NoKey`].
pub async fn revoke_key(
    management: &Management,
    actor: &Actor,
    id: KeyId,
    now: Micros,
) -> Result<Key, ManagementError> {
    let by = authorize(management, actor, Access::Key(id, TokenScope::KeysRevoke), now).await?;
    let mut owned = find_key(management, actor, id).await?;
    apply_change(management, "key.revoke", Target::of_key(&owned.key), Change::RevokeKey { key: id, at: now }, by)
        .await?;
    // The first revocation stands, as in the state.
    if owned.key.revoked.is_none() {
        owned.key.revoked = Some(now);
        owned.actors.record(KeyEvent::Revoked, now, KeyActor::of(actor));
    }
    Ok(show_owned(management, &owned, now))
}

/// Returns the change that creates a user's session quota key. A service has none, and no session without one.
pub(super) async fn new_session_quota_key(
    management: &Management,
    membership: Membership,
    now: Micros,
) -> Result<Change, ManagementError> {
    let missing = || ManagementError::NoOrg(membership.org.to_string());
    let (org, user) = management.state.member(membership.org, membership.user).await?.ok_or_else(missing)?;
    if user.is_service() {
        return Err(ManagementError::NotPerson(user.email));
    }
    let id = KeyId::generate(org.tag)?;
    let key =
        state::Key { session_quota_key: true, ..new_record(id, membership, SESSION_QUOTA_KEY_NAME.to_owned(), now) };
    Ok(Change::CreateKey { key, digest: state::session_quota_digest(membership.user) })
}

/// The error that names the key with this digest.
async fn already_imported(management: &Management, digest: &KeyDigest) -> ManagementError {
    match management.state.key_of(digest).await {
        Ok(key) => key.map_or(ManagementError::Taken("digest"), ManagementError::AlreadyImported),
        Err(unavailable) => unavailable.into(),
    }
}
