//! Keys.

use std::collections::HashMap;
use std::time::Duration;

use super::actor::AuditActor;
use super::recording::Target;
use super::{ApiKey, Key, KeyStatus, LimitUpdate, Management, ManagementError, Reply, checks};
use crate::clock::Micros;
use crate::identity::UserId;
use crate::key::{KeyDigest, KeyId, PlainKey};
use crate::quota::Quota;
use crate::state::{self, Change, Membership};

/// Ids to try before giving up. There are 62^6 under a tag, so the second try is one in thousands of millions already.
const TRIES: usize = 5;
/// Keys that work, of one user, beyond which only the operator makes more.
const KEYS: usize = 100;
/// Name of every session quota key.
const SESSION_QUOTA_KEY_NAME: &str = "web sessions";
/// The longest time that two secrets of a key may be valid.
const OVERLAP: Duration = Duration::from_secs(366 * 24 * 3600);

/// A key and whose it is, as they were when they were read.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) key: state::Key,
    pub(super) user: Option<state::User>,
    pub(super) org: Option<state::Org>,
}

impl Management {
    pub(super) async fn create_key(
        &self,
        org: &str,
        user: &str,
        name: &str,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let (org, user, name) = self.owner(org, user, name).await?;
        if by.actor.org().is_some() {
            self.refuse_too_many(&user).await?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let plain = PlainKey::generate(KeyId::generate(org.tag)?)?;
            let key = record(plain.id(), member(&user), name.clone(), by.now);
            match self.add("key.create", key.clone(), plain.digest(), by).await {
                Err(ManagementError::Taken("id")) if tries < TRIES => {}
                added => return added.map(|()| self.new_key(&plain, &Owned::by(key, user, org))),
            }
        }
    }

    pub(super) async fn import_key(
        &self,
        org: &str,
        user: &str,
        sha256: &str,
        name: &str,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let digest = KeyDigest::from_hex(sha256)?;
        if state::is_session_quota_digest(&digest) {
            return Err(ManagementError::SessionQuotaDigest);
        }
        let (org, user, name) = self.owner(org, user, name).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let new = record(KeyId::generate(org.tag)?, member(&user), name.clone(), by.now);
            let key = state::Key { imported: true, ..new };
            match self.add("key.import", key.clone(), digest, by).await {
                Err(ManagementError::Taken("id")) if tries < TRIES => {}
                Err(ManagementError::Taken("digest")) => return Err(self.present(&digest).await),
                added => return added.map(|()| self.reply_key(&Owned::by(key, user, org))),
            }
        }
    }

    /// Users and the organization are looked up once, not per key.
    pub(super) async fn list_keys(&self, org: &str, by: AuditActor<'_>) -> Result<Reply, ManagementError> {
        let org = self.org(org).await?;
        let users = self.state.users(org.id).await?;
        let users: HashMap<UserId, state::User> = users.into_iter().map(|user| (user.id, user)).collect();
        let keys = self.state.keys(org.id).await?;
        let keys = keys.into_iter().filter(|key| by.actor.only().is_none_or(|only| only == key.user));
        let shown = |key: state::Key| self.shown_key(&key, users.get(&key.user), Some(&org));
        Ok(Reply::Keys { keys: keys.map(shown).collect() })
    }

    pub(super) async fn show_key(&self, id: KeyId) -> Result<Reply, ManagementError> {
        Ok(self.reply_key(&self.owned(id).await?))
    }

    pub(super) async fn revoke_key(&self, id: KeyId, by: AuditActor<'_>) -> Result<Reply, ManagementError> {
        let mut owned = self.owned(id).await?;
        self.change("key.revoke", target(&owned.key), Change::RevokeKey { key: id, at: by.now }, by).await?;
        // The first time stands.
        owned.key.revoked.get_or_insert(by.now);
        Ok(self.reply_key(&owned))
    }

    /// All that the reply shows is read before the change: after it, nothing may keep the new secret from its owner.
    pub(super) async fn rotate_key(
        &self,
        id: KeyId,
        overlap: Option<Duration>,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let overlap = overlap.unwrap_or_default();
        if overlap > OVERLAP {
            return Err(ManagementError::Overlap);
        }
        let mut owned = self.owned(id).await?;
        let plain = PlainKey::generate(id)?;
        let previous_until = by.now.after(overlap);
        let change = Change::RotateKey { key: id, digest: plain.digest(), at: by.now, previous_until };
        self.change("key.rotate", target(&owned.key), change, by).await?;
        owned.key.rotated = Some(by.now);
        owned.key.previous_until = Some(previous_until);
        Ok(self.new_key(&plain, &owned))
    }

    pub(super) async fn limit_key(
        &self,
        id: KeyId,
        limits: Option<LimitUpdate>,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let mut owned = self.owned(id).await?;
        let quota = limits.map(|limits| limits.over(self.quota(&owned.key)).checked()).transpose()?;
        self.change("key.limits", target(&owned.key), Change::LimitKey { key: id, quota }, by).await?;
        owned.key.quota = quota;
        Ok(self.reply_key(&owned))
    }

    /// The organization and the user that a new key is for, and its name.
    async fn owner(
        &self,
        org: &str,
        user: &str,
        name: &str,
    ) -> Result<(state::Org, state::User, String), ManagementError> {
        let name = checks::name(name)?;
        let org = self.org(org).await?;
        let user = self.user(org.id, user).await?;
        Ok((org, user, name))
    }

    /// Each key has a bucket of its own, so people may not make as many as they like.
    async fn refuse_too_many(&self, user: &state::User) -> Result<(), ManagementError> {
        let keys = self.state.keys(user.org).await?;
        let held = keys.iter().filter(|key| key.user == user.id && key.revoked.is_none()).count();
        if held < KEYS { Ok(()) } else { Err(ManagementError::TooManyKeys(KEYS)) }
    }

    /// Returns the change that creates a user's session quota key.
    pub(super) async fn new_session_quota_key(
        &self,
        membership: Membership,
        now: Micros,
    ) -> Result<Change, ManagementError> {
        let missing = || ManagementError::NoOrg(membership.org.to_string());
        let (org, _) = self.state.member(membership.org, membership.user).await?.ok_or_else(missing)?;
        let id = KeyId::generate(org.tag)?;
        let key =
            state::Key { session_quota_key: true, ..record(id, membership, SESSION_QUOTA_KEY_NAME.to_owned(), now) };
        Ok(Change::CreateKey { key, digest: state::session_quota_digest(membership.user) })
    }

    /// Names the key that has, or had, a digest.
    async fn present(&self, digest: &KeyDigest) -> ManagementError {
        match self.state.key_of(digest).await {
            Ok(key) => key.map_or(ManagementError::Taken("digest"), ManagementError::Present),
            Err(unavailable) => unavailable.into(),
        }
    }

    async fn add(
        &self,
        action: &str,
        key: state::Key,
        digest: KeyDigest,
        by: AuditActor<'_>,
    ) -> Result<(), ManagementError> {
        self.change(action, target(&key), Change::CreateKey { key, digest }, by).await
    }

    /// The key with this id, revoked or not, and whose it is.
    pub(super) async fn owned(&self, id: KeyId) -> Result<Owned, ManagementError> {
        let key = self.state.key(id).await?.filter(|key| !key.session_quota_key).ok_or(ManagementError::NoKey(id))?;
        let (org, user) = self.state.member(key.org, key.user).await?.unzip();
        Ok(Owned { key, user, org })
    }

    fn new_key(&self, plain: &PlainKey, owned: &Owned) -> Reply {
        Reply::NewKey { api_key: ApiKey::from(plain), key: self.shown(owned) }
    }

    fn reply_key(&self, owned: &Owned) -> Reply {
        Reply::Key { key: self.shown(owned) }
    }

    /// A key as replies have it.
    pub(super) fn shown(&self, owned: &Owned) -> Key {
        self.shown_key(&owned.key, owned.user.as_ref(), owned.org.as_ref())
    }

    fn shown_key(&self, key: &state::Key, user: Option<&state::User>, org: Option<&state::Org>) -> Key {
        let removed = user.is_none_or(|user| user.removed.is_some());
        let status = status(key, org.is_some_and(|org| org.suspended), removed);
        let email = user.map(|user| user.email.clone()).unwrap_or_default();
        Key::of(key.clone(), email, status, self.quota(key))
    }

    /// The quota in force.
    fn quota(&self, key: &state::Key) -> Quota {
        key.quota.unwrap_or_else(|| self.state.quota())
    }
}

impl Owned {
    fn by(key: state::Key, user: state::User, org: state::Org) -> Self {
        Self { key, user: Some(user), org: Some(org) }
    }
}

impl LimitUpdate {
    /// The quota that these limits make of the one in force.
    fn over(self, quota: Quota) -> Quota {
        Quota {
            requests: self.requests.unwrap_or(quota.requests),
            per: self.per.unwrap_or(quota.per),
            burst: self.burst.or(self.requests).unwrap_or(quota.burst),
        }
    }
}

/// Why a key is not authenticated, in the order in which requests are checked.
fn status(key: &state::Key, org_suspended: bool, user_removed: bool) -> KeyStatus {
    match (key.revoked, user_removed, org_suspended) {
        (Some(_), _, _) => KeyStatus::Revoked,
        (None, true, _) => KeyStatus::UserRemoved,
        (None, false, true) => KeyStatus::OrgSuspended,
        (None, false, false) => KeyStatus::Active,
    }
}

fn member(user: &state::User) -> Membership {
    Membership { org: user.org, user: user.id }
}

/// The record of a new key.
fn record(id: KeyId, owner: Membership, name: String, now: Micros) -> state::Key {
    state::Key {
        id,
        org: owner.org,
        user: owner.user,
        name,
        imported: false,
        session_quota_key: false,
        created: now,
        rotated: None,
        previous_until: None,
        revoked: None,
        quota: None,
        last_used: None,
        uses: 0,
    }
}

fn target(key: &state::Key) -> Target {
    Target { org: key.org, user: Some(key.user), key: Some(key.id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_keep_what_is_not_given() {
        let quota = Quota { requests: 10, per: Duration::from_secs(60), burst: 5 };
        assert_eq!(LimitUpdate::default().over(quota), quota);
        let faster = LimitUpdate { requests: Some(20), ..LimitUpdate::default() }.over(quota);
        assert_eq!((faster.requests, faster.per, faster.burst), (20, quota.per, 20));
        let bursty = LimitUpdate { requests: Some(20), burst: Some(1), ..LimitUpdate::default() }.over(quota);
        assert_eq!((bursty.requests, bursty.burst), (20, 1));
    }
}
