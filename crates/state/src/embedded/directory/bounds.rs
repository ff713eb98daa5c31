//! Bounds of what people create, keys that leave the directory, and look-ups over all organizations.

use std::sync::PoisonError;
use std::time::Duration;

use super::{Directory, OrgEntry};
use crate::embedded::Embedded;
use crate::embedded::key_index::ById;
use crate::embedded::retired::RetiredKey;
use crate::{Bounds, Org, User};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;

impl Embedded {
    /// The bounds of what people create.
    pub fn bounds(&self) -> Bounds {
        self.directory.bounds()
    }

    /// Replaces the bounds of what people create. See [`crate::State::set_bounds`].
    pub fn set_bounds(&self, bounds: Bounds) {
        self.directory.set_bounds(bounds);
        // Keys whose time is over by these bounds leave before the next change.
        self.writer.retire();
    }

    /// The users with an email address. See [`crate::State::users_by_email`].
    pub fn users_by_email(&self, email: &str) -> Vec<User> {
        self.directory.users_by_email(email)
    }

    /// The organization with a name. See [`crate::State::org_by_name`].
    pub fn org_by_name(&self, name: &str) -> Option<Org> {
        self.directory.org_by_name(name)
    }
}

impl Directory {
    /// The effective bounds.
    pub(crate) fn bounds(&self) -> Bounds {
        (*self.bounds.read().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
    }

    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = Some(bounds);
    }

    /// The time for which revoked keys are listed; none when it was not set, so that no key retires by a default.
    pub(crate) fn keep_revoked(&self) -> Option<Duration> {
        self.bounds.read().unwrap_or_else(PoisonError::into_inner).map(|bounds| bounds.keep_revoked)
    }

    pub(crate) fn users_by_email(&self, email: &str) -> Vec<User> {
        let tree = self.read();
        tree.email.get(email).into_iter().flatten().map(|id| tree.user[id].user.clone()).collect()
    }

    pub(crate) fn org_by_name(&self, name: &str) -> Option<Org> {
        self.read().org.values().find(|entry| entry.org.name == name).map(OrgEntry::view)
    }

    /// Takes a key out of the lists and the index; its digests stay known as those of a revoked key.
    pub(crate) fn retire(&self, id: KeyId) {
        let mut guard = self.write();
        let tree = &mut *guard;
        let Some(ById(record)) = tree.key.take(&id) else { return };
        let key = record.view();
        if let Some(org) = tree.org.get_mut(&key.org) {
            org.keys.remove(&record);
        }
        if let Some(user) = tree.user.get_mut(&key.user) {
            user.keys.remove(&record);
        }
        drop(guard);
        for digest in record.digests() {
            // Known as retired before it leaves the index: a request in between is refused either way.
            self.retired.add(digest, RetiredKey { id, user: key.user, org: key.org });
            self.by_digest.remove(&digest);
            self.by_other_digest.remove(&digest);
        }
    }

    pub(crate) fn user_by_email(&self, org: OrgId, email: &str) -> Option<User> {
        let tree = self.read();
        let mut users = tree.email.get(email)?.iter().map(|id| &tree.user[id].user);
        users.find(|user| user.org == org && user.removed.is_none()).cloned()
    }

    pub(crate) fn member(&self, org: OrgId, user: UserId) -> Option<(Org, User)> {
        let tree = self.read();
        let user = tree.user.get(&user).filter(|entry| entry.user.org == org)?;
        Some((tree.org.get(&org)?.view(), user.user.clone()))
    }
}
