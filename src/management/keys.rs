//! Keys.

use std::collections::HashMap;
use std::time::Duration;

use super::recording::Subject;
use super::{ApiKey, Key, KeyStatus, Limits, Management, ManagementError, Reply, checks};
use crate::clock::Micros;
use crate::identity::UserId;
use crate::key::{KeyDigest, KeyId, PlainKey};
use crate::quota::Quota;
use crate::state::{self, Change};

/// Ids to try before giving up. There are 62^6 under a tag, so the second try is one in thousands of millions already.
const TRIES: usize = 5;
/// The longest time that two secrets of a key may be valid.
const OVERLAP: Duration = Duration::from_secs(366 * 24 * 3600);

impl Management {
    pub(super) async fn create_key(
        &self,
        org: &str,
        user: &str,
        name: &str,
        now: Micros,
    ) -> Result<Reply, ManagementError> {
        let (org, user, name) = self.owner(org, user, name)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let plain = PlainKey::generate(KeyId::generate(org.tag)?)?;
            let key = record(plain.id(), &user, name.clone(), false, now);
            match self.add("key.create", key.clone(), plain.digest(), now).await {
                Err(ManagementError::Taken("id")) if tries < TRIES => {}
                added => return added.and_then(|()| self.new_key(&plain, now)),
            }
        }
    }

    pub(super) async fn import_key(
        &self,
        org: &str,
        user: &str,
        sha256: &str,
        name: &str,
        now: Micros,
    ) -> Result<Reply, ManagementError> {
        let digest = KeyDigest::from_hex(sha256)?;
        let (org, user, name) = self.owner(org, user, name)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let key = record(KeyId::generate(org.tag)?, &user, name.clone(), true, now);
            match self.add("key.import", key.clone(), digest, now).await {
                Err(ManagementError::Taken("id")) if tries < TRIES => {}
                Err(ManagementError::Taken("digest")) => return Err(self.present(&digest)),
                added => return added.and_then(|()| self.show_key(key.id, now)),
            }
        }
    }

    /// Users and the organization are looked up once, not per key.
    pub(super) fn list_keys(&self, org: &str, now: Micros) -> Result<Reply, ManagementError> {
        let org = self.org(org)?;
        let users: HashMap<UserId, state::User> =
            self.state.users(org.id).into_iter().map(|user| (user.id, user)).collect();
        let shown = |key: state::Key| self.shown(key, org.suspended, |id| users.get(&id).cloned(), now);
        Ok(Reply::Keys { keys: self.state.keys(org.id).into_iter().map(shown).collect() })
    }

    pub(super) fn show_key(&self, id: KeyId, now: Micros) -> Result<Reply, ManagementError> {
        Ok(Reply::Key { key: self.current(id, now)? })
    }

    pub(super) async fn revoke_key(&self, id: KeyId, now: Micros) -> Result<Reply, ManagementError> {
        let key = self.key(id)?;
        self.change("key.revoke", subject(&key), Change::RevokeKey { key: id, at: now }, now).await?;
        self.show_key(id, now)
    }

    pub(super) async fn rotate_key(
        &self,
        id: KeyId,
        overlap: Option<Duration>,
        now: Micros,
    ) -> Result<Reply, ManagementError> {
        let overlap = overlap.unwrap_or_default();
        if overlap > OVERLAP {
            return Err(ManagementError::Overlap);
        }
        let key = self.key(id)?;
        let plain = PlainKey::generate(id)?;
        let previous_until = now.after(overlap);
        let change = Change::RotateKey { key: id, digest: plain.digest(), at: now, previous_until };
        self.change("key.rotate", subject(&key), change, now).await?;
        self.new_key(&plain, now)
    }

    pub(super) async fn limit_key(
        &self,
        id: KeyId,
        limits: Option<Limits>,
        now: Micros,
    ) -> Result<Reply, ManagementError> {
        let key = self.key(id)?;
        let quota = limits.map(|limits| limits.over(self.quota(&key, now)).checked()).transpose()?;
        self.change("key.limits", subject(&key), Change::LimitKey { key: id, quota }, now).await?;
        self.show_key(id, now)
    }

    /// The organization and the user that a new key is for, and its name.
    fn owner(&self, org: &str, user: &str, name: &str) -> Result<(state::Org, state::User, String), ManagementError> {
        let name = checks::name(name)?;
        let org = self.org(org)?;
        let user = self.user(org.id, user)?;
        Ok((org, user, name))
    }

    /// Names the key that has, or had, a digest.
    fn present(&self, digest: &KeyDigest) -> ManagementError {
        self.state.key_of(digest).map_or(ManagementError::Taken("digest"), ManagementError::Present)
    }

    async fn add(&self, action: &str, key: state::Key, digest: KeyDigest, now: Micros) -> Result<(), ManagementError> {
        self.change(action, subject(&key), Change::CreateKey { key, digest }, now).await
    }

    fn new_key(&self, plain: &PlainKey, now: Micros) -> Result<Reply, ManagementError> {
        Ok(Reply::NewKey { api_key: ApiKey::from(plain), key: self.current(plain.id(), now)? })
    }

    /// A key as it is now.
    pub(super) fn current(&self, id: KeyId, now: Micros) -> Result<Key, ManagementError> {
        let key = self.key(id)?;
        let suspended = self.state.orgs().iter().any(|org| org.id == key.org && org.suspended);
        let user = |id| self.state.users(key.org).into_iter().find(|user| user.id == id);
        Ok(self.shown(key.clone(), suspended, user, now))
    }

    fn shown(
        &self,
        key: state::Key,
        org_suspended: bool,
        user: impl FnOnce(UserId) -> Option<state::User>,
        now: Micros,
    ) -> Key {
        let quota = self.quota(&key, now);
        let user = user(key.user);
        let removed = user.as_ref().is_none_or(|user| user.removed.is_some());
        let status = status(&key, org_suspended, removed);
        Key::of(key, user.map(|user| user.email).unwrap_or_default(), status, quota)
    }

    /// The quota in force.
    fn quota(&self, key: &state::Key, now: Micros) -> Quota {
        let configured = || self.state.standing(key.id, now).map(|standing| standing.quota);
        key.quota.or_else(configured).unwrap_or(Quota::DEFAULT)
    }
}

impl Limits {
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

/// The record of a new key.
fn record(id: KeyId, user: &state::User, name: String, imported: bool, now: Micros) -> state::Key {
    state::Key {
        id,
        org: user.org,
        user: user.id,
        name,
        imported,
        created: now,
        rotated: None,
        previous_until: None,
        revoked: None,
        quota: None,
        last_used: None,
        uses: 0,
    }
}

fn subject(key: &state::Key) -> Subject {
    Subject { org: key.org, user: Some(key.user), key: Some(key.id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_keep_what_is_not_given() {
        let quota = Quota { requests: 10, per: Duration::from_secs(60), burst: 5 };
        assert_eq!(Limits::default().over(quota), quota);
        let faster = Limits { requests: Some(20), ..Limits::default() }.over(quota);
        assert_eq!((faster.requests, faster.per, faster.burst), (20, quota.per, 20));
        let bursty = Limits { requests: Some(20), burst: Some(1), ..Limits::default() }.over(quota);
        assert_eq!((bursty.requests, bursty.burst), (20, 1));
    }
}
