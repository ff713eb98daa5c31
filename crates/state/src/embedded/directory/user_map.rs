//! Users in memory: by id, by email address and by person.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::User;
use crate::embedded::key::{OwnedKeys, UserEntitlements};
use domain::identity::{OrgId, PersonId, UserId, Voucher};

/// The users of all organizations.
#[derive(Default)]
pub(crate) struct UserMap {
    entries: FxHashMap<UserId, UserEntry>,
    /// The users with each email address, in all organizations, removed ones too; in the order of their creation.
    by_email: FxHashMap<String, Vec<UserId>>,
    /// The users for whom a provider has vouched as a person, also those for whom another one has since.
    by_person: FxHashMap<PersonId, BTreeSet<UserId>>,
}

pub(super) struct UserEntry {
    pub(super) user: User,
    pub(super) entitlements: Arc<UserEntitlements>,
    pub(super) keys: OwnedKeys,
}

impl UserMap {
    pub(super) fn entry(&self, id: UserId) -> Option<&UserEntry> {
        self.entries.get(&id)
    }

    pub(super) fn entry_mut(&mut self, id: UserId) -> Option<&mut UserEntry> {
        self.entries.get_mut(&id)
    }

    pub(super) fn add(&mut self, user: User, entitlements: UserEntitlements) {
        self.by_email.entry(user.email.clone()).or_default().push(user.id);
        if let Some(voucher) = &user.vouched_by {
            self.add_person(user.id, voucher);
        }
        let entitlements = Arc::new(entitlements);
        let keys = OwnedKeys::default();
        self.entries.insert(user.id, UserEntry { user, entitlements, keys });
    }

    /// Notes the person for whom a provider vouches. The entry of an earlier person stays: it only proposes.
    pub(super) fn add_person(&mut self, user: UserId, voucher: &Voucher) {
        self.by_person.entry(voucher.person).or_default().insert(user);
    }

    /// These users, in this order.
    pub(super) fn list<'a>(&self, ids: impl Iterator<Item = &'a UserId>) -> Vec<User> {
        ids.map(|id| self.entries[id].user.clone()).collect()
    }

    /// One user, removed or not.
    pub(crate) fn find(&self, id: UserId) -> Option<User> {
        self.entry(id).map(|entry| entry.user.clone())
    }

    /// The users with an email address, in all organizations, removed ones too.
    pub(crate) fn by_email(&self, email: &str) -> Vec<User> {
        self.list(self.by_email.get(email).into_iter().flatten())
    }

    /// The user of an organization with an email address, unless removed.
    pub(crate) fn by_email_of(&self, org: OrgId, email: &str) -> Option<User> {
        let mut users = self.by_email.get(email)?.iter().map(|id| &self.entries[id].user);
        users.find(|user| user.org == org && user.removed.is_none()).cloned()
    }

    /// The users for whom a provider has vouched as a person.
    pub(crate) fn by_person(&self, person: &PersonId) -> Vec<User> {
        let mut users = self.list(self.by_person.get(person).into_iter().flatten());
        users.retain(|user| user.vouched_by.as_ref().is_some_and(|voucher| voucher.person == *person));
        users
    }
}
