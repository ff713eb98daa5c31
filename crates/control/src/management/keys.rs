//! Keys: import, show, revoke, limit. They are created in `key_creation.rs`.

use super::audited_change::Target;
use super::authorization::Access;
use super::key_creation::NewDigest;
use super::operands::{check_creation, check_digest};
use super::owned_key::{OwnedKey, member, new_record};
use super::{Actor, ApiKey, Key, KeyActor, LimitUpdate, Management, ManagementError, NewKey, PolicyUpdate};
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};
use domain::management_token::TokenScope;
use domain::names;
use domain::quota::Quota;
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
    /// Its policy.
    pub policy: PolicyUpdate,
    /// It is refused until it is enabled.
    pub disabled: bool,
}

impl Management {
    /// Imports a key of an older system, with its limits and its policy, as one change. For the operator.
    ///
    /// # Errors
    /// As [`check_digest`]; [`ManagementError::InvalidQuota`], [`ManagementError::AlreadyImported`],
    /// [`ManagementError::KeyIdOfAnotherOrg`], [`ManagementError::KeyIdTaken`]; others as for
    /// [`Management::create_key`].
    pub async fn import_key(&self, actor: &Actor, import: KeyImport<'_>, now: Micros) -> Result<Key, ManagementError> {
        let KeyImport { org, user, sha256, id, name, limits, policy, disabled } = import;
        let by = self.authorize(actor, Access::OrgOperator(org, TokenScope::KeysCreate), now).await?;
        let digest = check_digest(sha256)?;
        let quota = limits.map(|limits| limits.quota_from(self.state.quota())).transpose()?;
        let (org, user, name) = self.find_owner(actor, org, user, name).await?;
        let policy = policy.into_imported(&user.permissions, &org.policy, disabled, now)?;
        let path = if quota.is_some() { "key.import/limits" } else { "key.import" };
        let new = new_record(self.id_of_new_key(id, &org)?, member(&user), name, now);
        let key = state::Key { imported: id.is_none(), quota, policy, ..new };
        let import = NewDigest { action: "key.import", path, is_id_given: id.is_some(), digest };
        match self.create_by_digest(import, key, by).await {
            (_, Err(ManagementError::Taken("digest"))) => Err(self.already_imported(&digest).await),
            (key, imported) => imported.map(|()| self.show_owned(&OwnedKey::new(key, user, org, actor), now)),
        }
    }

    /// Shows one key.
    ///
    /// # Errors
    /// [`ManagementError::NoKey`].
    pub async fn show_key(&self, actor: &Actor, id: KeyId, now: Micros) -> Result<Key, ManagementError> {
        self.authorize(actor, Access::Key(id, TokenScope::KeysRead), now).await?;
        Ok(self.show_owned(&self.find_key(actor, id).await?, now))
    }

    /// Revokes a key for good: requests with it are refused from the next one on. Revoking it again changes nothing.
    ///
    /// # Errors
    /// [`ManagementError::NoKey`].
    pub async fn revoke_key(&self, actor: &Actor, id: KeyId, now: Micros) -> Result<Key, ManagementError> {
        let by = self.authorize(actor, Access::Key(id, TokenScope::KeysRevoke), now).await?;
        let mut owned = self.find_key(actor, id).await?;
        self.apply_change("key.revoke", Target::of_key(&owned.key), Change::RevokeKey { key: id, at: now }, by).await?;
        // The first revocation stands, as in the state.
        if owned.key.revoked.is_none() {
            owned.key.revoked = Some(now);
            owned.actors.record(KeyEvent::Revoked, now, KeyActor::of(actor));
        }
        Ok(self.show_owned(&owned, now))
    }

    /// Looks up the organization and the user that a new key is for, and checks its name.
    pub(super) async fn find_owner(
        &self,
        actor: &Actor,
        org: &str,
        user: &str,
        name: &str,
    ) -> Result<(state::Org, state::User, String), ManagementError> {
        let name = names::validate_name(name)?;
        let org = self.find_org(org).await?;
        check_creation(actor, &org)?;
        let user = self.find_user(org.id, user).await?;
        Ok((org, user, name))
    }

    /// Returns the change that creates a user's session quota key. A service has none, and no session without one.
    pub(super) async fn new_session_quota_key(
        &self,
        membership: Membership,
        now: Micros,
    ) -> Result<Change, ManagementError> {
        let missing = || ManagementError::NoOrg(membership.org.to_string());
        let (org, user) = self.state.member(membership.org, membership.user).await?.ok_or_else(missing)?;
        if user.is_service() {
            return Err(ManagementError::NotPerson(user.email));
        }
        let id = KeyId::generate(org.tag)?;
        let key = state::Key {
            session_quota_key: true,
            ..new_record(id, membership, SESSION_QUOTA_KEY_NAME.to_owned(), now)
        };
        Ok(Change::CreateKey { key, digest: state::session_quota_digest(membership.user) })
    }

    /// The error that names the key with this digest.
    async fn already_imported(&self, digest: &KeyDigest) -> ManagementError {
        match self.state.key_of(digest).await {
            Ok(key) => key.map_or(ManagementError::Taken("digest"), ManagementError::AlreadyImported),
            Err(unavailable) => unavailable.into(),
        }
    }

    /// Looks up the key with this id, revoked or not, with its user, organization and actors.
    pub(super) async fn find_key(&self, actor: &Actor, id: KeyId) -> Result<OwnedKey, ManagementError> {
        let key = self.state.key(id).await?.filter(|key| !key.session_quota_key).ok_or(ManagementError::NoKey(id))?;
        let (org, user) = self.state.member(key.org, key.user).await?.unzip();
        let responsible = match &user {
            Some(user) => self.find_responsible(user).await?,
            None => None,
        };
        let actors = self.key_actors(actor, key.org, &[id]).await?.pop().unwrap_or_default();
        Ok(OwnedKey { key, user, org, responsible, actors })
    }

    /// The result of a change that gives a key a secret. A secret that replicas have not confirmed is valid: it is
    /// shown with a warning, because a repetition would make another one.
    pub(super) fn new_key(
        &self,
        made: Result<(), ManagementError>,
        api_key: Option<ApiKey>,
        owned: &OwnedKey,
        now: Micros,
    ) -> Result<NewKey, ManagementError> {
        let warning = match made {
            Ok(()) => None,
            Err(ManagementError::Unconfirmed(cause)) => Some(format!("{cause}; look whether the key is still there")),
            Err(error) => return Err(error),
        };
        Ok(NewKey { api_key, key: self.show_owned(owned, now), warning })
    }

    /// A key as results show it at `now`.
    pub(super) fn show_owned(&self, owned: &OwnedKey, now: Micros) -> Key {
        Key::new(&owned.key, owned.user.as_ref(), owned.org.as_ref(), self.quota(&owned.key), now)
            .with_actors(&owned.actors)
            .with_responsible(owned.responsible.clone())
    }

    /// The effective quota for a key.
    pub(super) fn quota(&self, key: &state::Key) -> Quota {
        self.state.quota().in_force(key.quota)
    }
}
