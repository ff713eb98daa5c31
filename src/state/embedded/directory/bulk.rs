//! Bulk loading of the directory at start: many keys at once, and journaled uses.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Directory;
use crate::identity::{OrgId, UserId};
use crate::state::embedded::key_index::{ByDigest, ById};
use crate::state::embedded::key_record::{DirtyKeys, KeyRecord};
use crate::state::embedded::stored_key::StoredKey;
use crate::state::embedded::{JournaledUse, UsedKey};
use crate::state::session_quota_digest;

/// Keys of each owner that are in no list yet.
type Unlisted<I> = FxHashMap<I, Vec<Arc<KeyRecord>>>;

impl Directory {
    /// The organization of each user.
    pub(in crate::state::embedded) fn orgs_of_users(&self) -> FxHashMap<UserId, OrgId> {
        self.read().user.iter().map(|(id, entry)| (*id, entry.user.org)).collect()
    }

    /// Adds the keys of the state file; none of them may be in the directory.
    ///
    /// # Errors
    /// The first of the batches that is one.
    pub(in crate::state::embedded) fn add_stored_keys<E>(
        &self,
        batches: impl IntoIterator<Item = Result<Vec<StoredKey>, E>>,
    ) -> Result<(), E> {
        let mut guard = self.write();
        let tree = &mut *guard;
        let (mut of_orgs, mut of_users) = (Unlisted::<OrgId>::default(), Unlisted::<UserId>::default());
        for batch in batches {
            for stored in batch? {
                let (org, user) = (stored.key.org, stored.key.user);
                let Some(record) = tree.new_record(stored) else { continue };
                of_orgs.entry(org).or_default().push(Arc::clone(&record));
                of_users.entry(user).or_default().push(Arc::clone(&record));
                tree.key.insert(ById(Arc::clone(&record)));
                self.by_digest.insert(ByDigest(record));
            }
        }
        for (org, keys) in of_orgs {
            if let Some(entry) = tree.org.get_mut(&org) {
                entry.keys.add_all(keys);
            }
        }
        for (user, keys) in of_users {
            if let Some(entry) = tree.user.get_mut(&user) {
                entry.keys.add_all(keys);
            }
        }
        Ok(())
    }

    /// Counts the uses, sorted by key and number, that the state file lacks; returns their number.
    pub(in crate::state::embedded) fn replay(&self, uses: &[JournaledUse]) -> u64 {
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
