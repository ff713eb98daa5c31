//! Users in memory: by organization, by email address and by person.

use std::sync::Arc;

use super::{Directory, UserEntry};
use crate::User;
use crate::embedded::Embedded;
use crate::embedded::entitlements::UserEntitlements;
use crate::embedded::owned_keys::OwnedKeys;
use domain::identity::{Permission, PersonId, UserId, Voucher};

impl Embedded {
    /// The users for whom a provider has vouched as a person. See [`crate::State::users_by_person`].
    pub fn users_by_person(&self, person: &PersonId) -> Vec<User> {
        self.directory.users_by_person(person)
    }
}

impl Directory {
    fn users_by_person(&self, person: &PersonId) -> Vec<User> {
        let tree = self.read();
        let users = tree.person.get(person).into_iter().flatten().filter_map(|id| tree.user.get(id));
        let is_person = |user: &&User| user.vouched_by.as_ref().is_some_and(|voucher| voucher.person == *person);
        users.map(|entry| &entry.user).filter(is_person).cloned().collect()
    }

    pub(crate) fn add_user(&self, user: User) {
        let mut tree = self.write();
        let Some(entry) = tree.org.get_mut(&user.org) else { return };
        entry.users.push(user.id);
        let entitlements = Arc::new(UserEntitlements::new(&user, Arc::clone(&entry.record)));
        tree.email.entry(user.email.clone()).or_default().push(user.id);
        if let Some(voucher) = &user.vouched_by {
            tree.person.entry(voucher.person).or_default().insert(user.id);
        }
        tree.user.insert(user.id, UserEntry { user, entitlements, keys: OwnedKeys::default() });
    }

    pub(super) fn permit_user(&self, user: UserId, permissions: Vec<Permission>, vouched_by: Option<Voucher>) {
        if let Some(voucher) = &vouched_by {
            // The entry of an earlier person stays: it only proposes.
            self.write().person.entry(voucher.person).or_default().insert(user);
        }
        self.with_user(user, |user| {
            user.permissions = permissions;
            user.withdrawn = None;
            user.vouched_by = vouched_by.or(user.vouched_by.take());
        });
    }

    /// Changes a user, and applies the change to the user's keys.
    pub(super) fn with_user(&self, user: UserId, change: impl FnOnce(&mut User)) {
        let mut guard = self.write();
        let tree = &mut *guard;
        let Some(entry) = tree.user.get_mut(&user) else { return };
        let Some(org) = tree.org.get(&entry.user.org) else { return };
        change(&mut entry.user);
        entry.entitlements = Arc::new(UserEntitlements::new(&entry.user, Arc::clone(&org.record)));
        for key in entry.keys.iter() {
            key.apply_user(&entry.entitlements);
        }
    }
}
