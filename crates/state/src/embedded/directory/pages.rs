//! Pages of the directory in memory.

use std::sync::Arc;

use super::Directory;
use crate::embedded::Embedded;
use crate::embedded::key_record::KeyRecord;
use crate::listing::{KeyList, KeyPosition};
use crate::{Key, Org, User};
use domain::identity::OrgId;
use domain::page::Page;

impl Embedded {
    /// Some organizations. See [`crate::State::page_of_orgs`].
    pub fn page_of_orgs(&self, from: u64, limit: usize) -> Page<Org, u64> {
        Page::cut(self.directory.orgs_from(from, limit + 1), limit, |_| from + limit as u64)
    }

    /// Some users of an organization. See [`crate::State::page_of_users`].
    pub fn page_of_users(&self, org: OrgId, from: u64, limit: usize) -> Page<User, u64> {
        Page::cut(self.directory.users_from(org, from, limit + 1), limit, |_| from + limit as u64)
    }

    /// Some keys. See [`crate::State::page_of_keys`].
    pub fn page_of_keys(&self, list: KeyList, after: Option<KeyPosition>, limit: usize) -> Page<Key, KeyPosition> {
        let records = self.directory.listed_keys(list, after, limit + 1);
        Page::cut(records.iter().map(|record| record.view()).collect(), limit, |key| key.into())
    }
}

impl Directory {
    /// At most `count` organizations behind the first `from`.
    fn orgs_from(&self, from: u64, count: usize) -> Vec<Org> {
        let tree = self.read();
        slice(&tree.orgs, from, count).iter().map(|id| tree.org[id].view()).collect()
    }

    /// At most `count` users of an organization behind its first `from`.
    fn users_from(&self, org: OrgId, from: u64, count: usize) -> Vec<User> {
        let tree = self.read();
        let users = tree.org.get(&org).map_or(&[][..], |entry| &entry.users);
        slice(users, from, count).iter().map(|id| tree.user[id].user.clone()).collect()
    }

    /// At most `count` keys of a list behind a position.
    fn listed_keys(&self, list: KeyList, after: Option<KeyPosition>, count: usize) -> Vec<Arc<KeyRecord>> {
        let tree = self.read();
        let keys = match list.owner {
            Some(owner) => tree.user.get(&owner).filter(|entry| entry.user.org == list.org).map(|entry| &entry.keys),
            None => tree.org.get(&list.org).map(|entry| &entry.keys),
        };
        keys.map(|keys| keys.read(list.newest_first, after, count)).unwrap_or_default()
    }
}

fn slice<T>(all: &[T], from: u64, count: usize) -> &[T] {
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(all.len());
    &all[from..from.saturating_add(count).min(all.len())]
}
