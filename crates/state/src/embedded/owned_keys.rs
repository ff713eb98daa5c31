//! Keys of an organization or of a user.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::key_index::ByPosition;
use super::key_record::KeyRecord;
use crate::listing::KeyPosition;
use domain::identity::{OrgId, UserId};

/// Keys of one owner, by creation time and id.
#[derive(Default)]
pub(super) struct OwnedKeys {
    /// The keys of lists.
    listed: BTreeSet<ByPosition>,
    /// The session quota keys, which lists leave out.
    session_quota_keys: BTreeSet<ByPosition>,
}

impl OwnedKeys {
    pub(super) fn add(&mut self, record: Arc<KeyRecord>) {
        self.set_of(&record).insert(ByPosition(record));
    }

    /// Adds many keys: to an empty set in less time, and into less memory, than one by one.
    pub(super) fn add_all(&mut self, records: Vec<Arc<KeyRecord>>) {
        let (session_quota_keys, listed): (Vec<_>, Vec<_>) =
            records.into_iter().map(ByPosition).partition(|key| key.0.session_quota_key);
        self.listed.append(&mut BTreeSet::from_iter(listed));
        self.session_quota_keys.append(&mut BTreeSet::from_iter(session_quota_keys));
    }

    pub(super) fn remove(&mut self, record: &KeyRecord) {
        self.set_of(record).remove(&record.position);
    }

    #[allow(clippy::mutable_key_type, reason = "the order is that of positions, which never change")]
    fn set_of(&mut self, record: &KeyRecord) -> &mut BTreeSet<ByPosition> {
        if record.session_quota_key { &mut self.session_quota_keys } else { &mut self.listed }
    }

    /// All keys, those of lists first and in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<KeyRecord>> {
        self.listed().chain(self.session_quota_keys.iter().map(|key| &key.0))
    }

    /// The keys of lists, oldest first.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Arc<KeyRecord>> {
        self.listed.iter().map(|key| &key.0)
    }

    /// At most `count` keys of lists behind a position.
    pub(super) fn read(&self, newest_first: bool, after: Option<KeyPosition>, count: usize) -> Vec<Arc<KeyRecord>> {
        let bound = after.map_or(Unbounded, Excluded);
        if newest_first {
            let keys = self.listed.range::<KeyPosition, _>((Unbounded, bound)).rev();
            keys.take(count).map(|key| Arc::clone(&key.0)).collect()
        } else {
            let keys = self.listed.range::<KeyPosition, _>((bound, Unbounded));
            keys.take(count).map(|key| Arc::clone(&key.0)).collect()
        }
    }
}

/// Keys by their organizations, and by their users.
type KeysByOwner = (FxHashMap<OrgId, Vec<Arc<KeyRecord>>>, FxHashMap<UserId, Vec<Arc<KeyRecord>>>);

/// Groups keys by their owners.
pub(super) fn by_owner(parts: &[Vec<Arc<KeyRecord>>]) -> KeysByOwner {
    let mut grouped = KeysByOwner::default();
    for record in parts.iter().flatten() {
        let (org, user) = record.owners();
        grouped.0.entry(org).or_default().push(Arc::clone(record));
        grouped.1.entry(user).or_default().push(Arc::clone(record));
    }
    grouped
}
