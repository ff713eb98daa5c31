//! Keys that are put by the digest of their secret: created, or found as they are.
//!
//! - Idempotent by nature: of several equal requests, at any time and at any gateways, one creates the key, and all
//!   return it.
//! - A digest of another organization is refused without a word about whose it is.

use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;

use super::authorization::{authorize, require_digests_allowed};
use super::key_creation::{NewDigest, create_by_digest, draft_key, id_of_new_key};
use super::operands::{check_digest, find_org};
use super::owned_key::{OwnedKey, find_key, new_key, show_owned};
use super::{Actor, Key, KeyStatus, Management, ManagementError, NewKeyRequest};
use domain::clock::Micros;
use domain::identity::{AuthMethod, Principal, PrincipalHeaders};
use domain::key::{KeyDigest, KeyId, OrgTag};
use state::{CredentialStatus, RevokedBy, Validity};

/// Times that a creation is tried while another one claims its digest.
const MAX_ATTEMPTS: usize = 3;
/// Look-ups after a creation that found the digest claimed, until the next one is tried.
const LOOKUPS: usize = 50;
/// Pause between them: the round trips in which the other creation writes its record.
const PAUSE: Duration = Duration::from_millis(20);

/// Key that was put by the digest of its secret.
#[derive(Clone, Debug, Serialize)]
pub struct PutKey {
    /// Its record. Of a key that was there before, nothing was changed.
    #[serde(flatten)]
    pub key: Key,
    /// False when the key was there before.
    #[serde(skip)]
    pub created: bool,
    /// Reason for which a new key may be lost again; none as a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Secret by which a key is put.
#[derive(Clone, Copy)]
struct PutSecret<'a> {
    digest: &'a KeyDigest,
    /// Id in the text of the key; none of a key of another format.
    id: Option<KeyId>,
    /// Tag of the organization.
    tag: OrgTag,
}

/// Creates a key by the SHA-256 of its secret, or returns the one of the organization that has it, revoked or not,
/// as it is. For the operator and for programs.
///
/// A key that was made offline is put with the `id` in its text. Without one, the key has another format, like an
/// imported one.
///
/// # Errors
/// As [`check_digest`]; [`ManagementError::KeyIdOfAnotherOrg`], [`ManagementError::KeyIdTaken`];
/// [`ManagementError::DigestTaken`] by a key of another organization, or with another id;
/// [`ManagementError::DigestReplaced`], [`ManagementError::CreationInProgress`]; others as for
/// [`create_key`](super::create_key).
pub async fn put_key_by_digest(
    management: &Management,
    actor: &Actor,
    org: &str,
    sha256: &str,
    id: Option<KeyId>,
    request: NewKeyRequest<'_>,
    now: Micros,
) -> Result<PutKey, ManagementError> {
    let by = authorize(management, actor, request.access(org), now).await?;
    require_digests_allowed(actor)?;
    let digest = check_digest(sha256)?;
    let record = find_org(management, org).await?;
    let new_id = id_of_new_key(id, &record)?;
    let secret = PutSecret { digest: &digest, id, tag: record.tag };
    if let Some(found) = key_with_secret(management, actor, secret, now).await? {
        return Ok(found);
    }
    let draft = draft_key(management, actor, org, request, now).await?;
    let new = state::Key { imported: id.is_none(), ..draft.record(new_id, now) };
    for _ in 0..MAX_ATTEMPTS {
        let creation = NewDigest::created(digest, id.is_some());
        let (key, created) = create_by_digest(management, creation, new.clone(), by).await;
        if let Err(ManagementError::Taken("digest")) = created {
            if let Some(found) = await_key_with_secret(management, actor, secret, now).await? {
                return Ok(found);
            }
            continue;
        }
        let owned = OwnedKey::new(key, draft.user, draft.org, actor);
        let new = new_key(management, created, None, &owned, now)?;
        return Ok(PutKey { key: new.key, created: true, warning: new.warning });
    }
    Err(ManagementError::CreationInProgress)
}

/// The key that is being created by another request; none when it is not there in time.
async fn await_key_with_secret(
    management: &Management,
    actor: &Actor,
    secret: PutSecret<'_>,
    now: Micros,
) -> Result<Option<PutKey>, ManagementError> {
    for _ in 0..LOOKUPS {
        if let Some(found) = key_with_secret(management, actor, secret, now).await? {
            return Ok(Some(found));
        }
        sleep(PAUSE).await;
    }
    Ok(None)
}

/// The key of the organization that has this secret.
async fn key_with_secret(
    management: &Management,
    actor: &Actor,
    secret: PutSecret<'_>,
    now: Micros,
) -> Result<Option<PutKey>, ManagementError> {
    let PutSecret { digest, id, tag } = secret;
    let Some(found) = management.state.key_of(digest).await? else { return Ok(None) };
    if found.tag() != tag {
        return Err(ManagementError::DigestTaken(None));
    }
    if id.is_some_and(|id| id != found) {
        return Err(ManagementError::DigestTaken(Some(found)));
    }
    let owned = find_key(management, actor, found).await?;
    let key = show_owned(management, &owned, now);
    // Only a rotation replaces a secret; a key that is not active has none that is valid.
    if key.rotated.is_some() && key.status == KeyStatus::Active && is_replaced(management, &key, digest, now).await? {
        return Err(ManagementError::DigestReplaced(found));
    }
    Ok(Some(PutKey { key, created: false, warning: None }))
}

/// Returns whether a secret of an active key is refused, because a rotation has replaced it.
pub(super) async fn is_replaced(
    management: &Management,
    key: &Key,
    digest: &KeyDigest,
    now: Micros,
) -> Result<bool, ManagementError> {
    let headers = PrincipalHeaders::new(key.user, key.org, &[]);
    let principal =
        Principal { key_id: Some(key.id), user_id: key.user, org_id: key.org, method: AuthMethod::ApiKey, headers };
    let validity = Validity::new(*digest, Validity::FOREVER);
    let status = management.state.check_credential(&principal, &validity, now).await?;
    Ok(status == CredentialStatus::Revoked(RevokedBy::Secret))
}
