//! Bulk loading of the directory at start: many keys at once, and journaled uses.

use std::sync::{Arc, RwLockReadGuard};
use std::thread;

use rustc_hash::FxHashMap;

use super::{Directory, OrgEntry, Tree, UserEntry};
use crate::embedded::key_index::{ByDigest, ById};
use crate::embedded::key_record::{DirtyKeys, KeyRecord};
use crate::embedded::stored_key::StoredKey;
use crate::embedded::{JournaledUse, UsedKey};
use crate::session_quota_digest;
use domain::identity::{OrgId, UserId};

/// Keys of each owner that are in no list yet.
type Unlisted<I> = FxHashMap<I, Vec<Arc<KeyRecord>>>;

/// Makes the records of stored keys. No user changes meanwhile: it holds the lock of the tree.
pub(crate) struct RecordBuilder<'a>(RwLockReadGuard<'a, Tree>);

impl RecordBuilder<'_> {
    /// The organization of a user.
    pub(crate) fn org(&self, user: UserId) -> Option<OrgId> {
        self.0.user.get(&user).map(|entry| entry.user.org)
    }

    /// The record of a key, which is in no index yet; none when its user is not known.
    pub(crate) fn build(&self, stored: StoredKey) -> Option<Arc<KeyRecord>> {
        self.0.new_record(stored)
    }
}

impl Directory {
    pub(crate) fn record_builder(&self) -> RecordBuilder<'_> {
        RecordBuilder(self.read())
    }

    /// Adds many records, which are in no index yet, to all indexes: to the lists of their owners beside the others.
    pub(crate) fn add_records(&self, parts: &[Vec<Arc<KeyRecord>>]) {
        let mut guard = self.write();
        let Tree { org, user, key, .. } = &mut *guard;
        thread::scope(|scope| {
            scope.spawn(|| add_to_owners(org, user, parts));
            for record in parts.iter().flatten() {
                key.insert(ById(Arc::clone(record)));
                self.by_digest.insert(ByDigest(Arc::clone(record)));
            }
        });
    }

    /// Counts the uses, sorted by key and number, that the state file lacks; returns their number.
    pub(crate) fn replay(&self, uses: &[JournaledUse]) -> u64 {
        let record = |key: UsedKey| match key {
            UsedKey::Key(key) => self.key(key),
            UsedKey::SessionQuotaKey(user) => self.by_digest(&session_quota_digest(user)),
        };
        // Marked dirty all at once: a write-back of a part would count for the whole, which a crash could then lose.
        let dirty = DirtyKeys::default();
        let counted = |replayed: &&JournaledUse| {
            record(replayed.key).is_some_and(|record| record.replay(replayed.time, replayed.number, &dirty))
        };
        let count = uses.iter().filter(counted).count() as u64;
        self.dirty.append(dirty);
        count
    }
}

/// Adds keys to the lists of their organizations and users.
fn add_to_owners(
    orgs: &mut FxHashMap<OrgId, OrgEntry>,
    users: &mut FxHashMap<UserId, UserEntry>,
    parts: &[Vec<Arc<KeyRecord>>],
) {
    let (mut of_orgs, mut of_users) = (Unlisted::<OrgId>::default(), Unlisted::<UserId>::default());
    for record in parts.iter().flatten() {
        let (org, user) = record.owners();
        of_orgs.entry(org).or_default().push(Arc::clone(record));
        of_users.entry(user).or_default().push(Arc::clone(record));
    }
    for (org, keys) in of_orgs {
        if let Some(entry) = orgs.get_mut(&org) {
            entry.keys.add_all(keys);
        }
    }
    for (user, keys) in of_users {
        if let Some(entry) = users.get_mut(&user) {
            entry.keys.add_all(keys);
        }
    }
}
