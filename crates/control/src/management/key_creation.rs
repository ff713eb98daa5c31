//! Creation of keys, with a secret that is generated here, or by the digest of one that was made offline.
//!
//! - Secrets that never travel: a key that was made offline (`keygate key generate`) is created by its id and its
//!   SHA-256. Neither the request nor the reply has the secret.
//! - The text of such a key has its id, which begins with the tag of the organization. The id of the record has to be
//!   the same: people find the key of a leaked secret by it, and gateways read its record with one round trip less.

use super::actor::AuditActor;
use super::audited_change::{Target, apply_change, apply_change_at};
use super::authorization::{Access, authorize, require_digests_allowed};
use super::operands::{check_digest, check_plan};
use super::owned_key::{OwnedKey, find_owner, member, new_key, new_record};
use super::{Actor, ApiKey, Management, ManagementError, NewKey, PolicyUpdate};
use domain::clock::Micros;
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::management_token::TokenScope;
use domain::plan_name::PlanName;
use state::{self, Change};

/// Ids to try before giving up. There are 62^6 under a tag, so the second try is one in thousands of millions already.
pub(super) const MAX_ID_ATTEMPTS: usize = 5;

/// Key to create.
#[derive(Clone, Debug)]
pub struct NewKeyRequest<'a> {
    /// Id or email address of the user.
    pub user: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its policy.
    pub policy: PolicyUpdate,
    /// Its plan, which the operator alone gives.
    pub plan: Option<PlanName>,
}

impl NewKeyRequest<'_> {
    /// The access that the creation in an organization needs.
    pub(super) fn access<'a>(&'a self, org: &'a str) -> Access<'a> {
        match self.plan {
            None => Access::NewKey { org, user: self.user },
            Some(_) => Access::OrgOperator(org, TokenScope::KeysCreate),
        }
    }
}

/// Origin of the secret of a new key.
#[derive(Clone, Copy, Debug)]
pub enum SecretSource {
    /// It is generated here, and returned once.
    Generated,
    /// It was made offline. For the operator and for programs.
    Given(GivenSecret),
}

/// Secret that was made offline: the id in the text of the key, and the digest of the whole text.
#[derive(Clone, Copy, Debug)]
pub struct GivenSecret {
    id: KeyId,
    digest: KeyDigest,
}

/// Creation of a key by the digest of its secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewDigest<'a> {
    /// Action of the audit record.
    pub(super) action: &'a str,
    /// Path of the audit record.
    pub(super) path: &'a str,
    /// True for an id that was given; another one is tried in place of one that was generated.
    pub(super) is_id_given: bool,
    pub(super) digest: KeyDigest,
}

/// Key to create, with its organization and its user as they were read.
pub(super) struct KeyDraft {
    pub(super) org: state::Org,
    pub(super) user: state::User,
    name: String,
    policy: Option<Box<KeyPolicy>>,
    plan: Option<PlanName>,
}

impl GivenSecret {
    /// A secret by its id and the SHA-256 of the whole key, in hexadecimal.
    ///
    /// # Errors
    /// As [`check_digest`].
    pub fn new(id: KeyId, sha256: &str) -> Result<Self, ManagementError> {
        Ok(Self { id, digest: check_digest(sha256)? })
    }
}

impl SecretSource {
    /// The source by two operands that are given together or not at all.
    ///
    /// # Errors
    /// [`ManagementError::IncompleteSecret`]; others as for [`GivenSecret::new`].
    pub fn from_operands(id: Option<KeyId>, sha256: Option<&str>) -> Result<Self, ManagementError> {
        match (id, sha256) {
            (Some(id), Some(sha256)) => GivenSecret::new(id, sha256).map(Self::Given),
            (None, None) => Ok(Self::Generated),
            _ => Err(ManagementError::IncompleteSecret),
        }
    }
}

/// Creates a key for a user. Administrators create them for users of their organization, other
/// users for themselves.
///
/// A new key has a full bucket of its own: without a bound, users could multiply their quota by creating
/// keys, using and revoking them. So keys of signed-in users are bounded in number and in the rate at
/// which they are created.
///
/// # Errors
/// [`ManagementError::InvalidName`], [`ManagementError::NoOrg`], [`ManagementError::NoUser`],
/// [`ManagementError::InvalidKeyPolicy`], [`ManagementError::BeyondOwner`], [`ManagementError::TooLate`],
/// [`ManagementError::NoPlan`]; with a
/// given secret [`ManagementError::KeyIdOfAnotherOrg`], [`ManagementError::KeyIdTaken`],
/// [`ManagementError::DigestTaken`]; for signed-in users [`ManagementError::TooManyKeys`] and
/// [`ManagementError::KeyCreationLimited`], and with a given secret [`ManagementError::NotAllowed`].
pub async fn create_key(
    management: &Management,
    actor: &Actor,
    org: &str,
    request: NewKeyRequest<'_>,
    source: SecretSource,
    now: Micros,
) -> Result<NewKey, ManagementError> {
    let by = authorize(management, actor, request.access(org), now).await?;
    if let SecretSource::Given(_) = source {
        require_digests_allowed(actor)?;
    }
    let draft = draft_key(management, actor, org, request, now).await?;
    match source {
        SecretSource::Generated => create_generated(management, draft, by).await,
        SecretSource::Given(secret) => create_given(management, draft, secret, by).await,
    }
}

/// Creates a key whose secret is generated.
async fn create_generated(
    management: &Management,
    draft: KeyDraft,
    by: AuditActor<'_>,
) -> Result<NewKey, ManagementError> {
    let AuditActor { actor, now } = by;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let plain = PlainKey::generate(KeyId::generate(draft.org.tag)?)?;
        let key = draft.record(plain.id(), now);
        let change = Change::CreateKey { key: key.clone(), digest: plain.digest() };
        match apply_change(management, "key.create", Target::of_key(&key), change, by).await {
            Err(ManagementError::Taken("id")) if attempts < MAX_ID_ATTEMPTS => {}
            created => {
                let owned = OwnedKey::new(key, draft.user, draft.org, actor);
                return new_key(management, created, Some(ApiKey::from(&plain)), &owned, now);
            }
        }
    }
}

/// Creates a key whose secret was made offline.
async fn create_given(
    management: &Management,
    draft: KeyDraft,
    secret: GivenSecret,
    by: AuditActor<'_>,
) -> Result<NewKey, ManagementError> {
    let key = draft.record(id_of_new_key(Some(secret.id), &draft.org)?, by.now);
    let (key, created) = create_by_digest(management, NewDigest::created(secret.digest, true), key, by).await;
    if let Err(ManagementError::Taken("digest")) = created {
        return Err(digest_taken(management, &secret.digest, draft.org.tag).await);
    }
    new_key(management, created, None, &OwnedKey::new(key, draft.user, draft.org, by.actor), by.now)
}

/// Looks up the owner of a new key, and validates what was asked for.
pub(super) async fn draft_key(
    management: &Management,
    actor: &Actor,
    org: &str,
    request: NewKeyRequest<'_>,
    now: Micros,
) -> Result<KeyDraft, ManagementError> {
    let (org, user, name) = find_owner(management, actor, org, request.user, request.name).await?;
    let policy = request.policy.into_policy(&user.permissions, &org.policy, now)?;
    check_plan(management, request.plan.as_ref())?;
    Ok(KeyDraft { org, user, name, policy, plan: request.plan })
}

/// The id of a new key: the given one, which has to belong to the organization, or a new one.
pub(super) fn id_of_new_key(given: Option<KeyId>, org: &state::Org) -> Result<KeyId, ManagementError> {
    match given {
        None => Ok(KeyId::generate(org.tag)?),
        Some(id) if id.tag() == org.tag => Ok(id),
        Some(id) => Err(ManagementError::KeyIdOfAnotherOrg { id, tag: org.tag }),
    }
}

/// Creates a key by the digest of its secret. Returns its record, whose id may be another one than before.
///
/// # Errors
/// [`ManagementError::KeyIdTaken`], [`ManagementError::Taken`] with the digest, and others of the state.
pub(super) async fn create_by_digest(
    management: &Management,
    new: NewDigest<'_>,
    mut key: state::Key,
    by: AuditActor<'_>,
) -> (state::Key, Result<(), ManagementError>) {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let change = Change::CreateKey { key: key.clone(), digest: new.digest };
        let target = Target::of_key(&key);
        let created = apply_change_at(management, new.action, new.path, target, change, by).await;
        let is_id_taken = matches!(created, Err(ManagementError::Taken("id")));
        if is_id_taken && new.is_id_given {
            let taken = ManagementError::KeyIdTaken(key.id);
            return (key, Err(taken));
        }
        if !is_id_taken || attempts == MAX_ID_ATTEMPTS {
            return (key, created);
        }
        key.id = match KeyId::generate(key.id.tag()) {
            Ok(id) => id,
            Err(error) => return (key, Err(error.into())),
        };
    }
}

impl NewDigest<'_> {
    /// The creation of a key, which the audit records as one by its digest.
    pub(super) fn created(digest: KeyDigest, is_id_given: bool) -> Self {
        Self { action: "key.create", path: "key.create/digest", is_id_given, digest }
    }
}

impl KeyDraft {
    /// The record of the key under this id.
    pub(super) fn record(&self, id: KeyId, now: Micros) -> state::Key {
        let (policy, plan) = (self.policy.clone(), self.plan.clone());
        state::Key { policy, plan, ..new_record(id, member(&self.user), self.name.clone(), now) }
    }
}

/// The error for a digest that another key has, had or is being given: names a key of the organization with this
/// tag alone.
pub(super) async fn digest_taken(management: &Management, digest: &KeyDigest, tag: OrgTag) -> ManagementError {
    match management.state.key_of(digest).await {
        Ok(key) => ManagementError::DigestTaken(key.filter(|key| key.tag() == tag)),
        Err(unavailable) => unavailable.into(),
    }
}
