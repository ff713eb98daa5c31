//! Indexes of keys by id, by digest and by owner. An entry is a pointer to the record, ordered or hashed by a field of
//! it, so that no index holds a copy of the field.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::listing::KeyPosition;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId};

use super::record::KeyRecord;

/// A key in an index by its id.
pub(crate) struct ById(pub(crate) Arc<KeyRecord>);

/// A key in an index by the digest of its record.
pub(crate) struct ByDigest(pub(crate) Arc<KeyRecord>);

/// A key in a list by creation time and id.
struct ByPosition(Arc<KeyRecord>);

/// Keys of one owner, by creation time and id.
#[derive(Default)]
pub(crate) struct OwnedKeys {
    /// The keys of lists.
    listed: BTreeSet<ByPosition>,
    /// The session quota keys, which lists leave out.
    session_quota_keys: BTreeSet<ByPosition>,
}

macro_rules! index_entry {
    ($entry:ident, $field:ty, $path:ident $(. $inner:ident)?) => {
        impl Borrow<$field> for $entry {
            fn borrow(&self) -> &$field {
                &self.0.$path$(.$inner)?
            }
        }

        impl PartialEq for $entry {
            fn eq(&self, other: &Self) -> bool {
                let own: &$field = self.borrow();
                own == other.borrow()
            }
        }

        impl Eq for $entry {}
    };
}

index_entry!(ById, KeyId, position.id);
index_entry!(ByDigest, KeyDigest, digest);
index_entry!(ByPosition, KeyPosition, position);

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.position.id.hash(state);
    }
}

impl Hash for ByDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest.hash(state);
    }
}

impl Ord for ByPosition {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.position.cmp(&other.0.position)
    }
}

impl PartialOrd for ByPosition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl OwnedKeys {
    pub(crate) fn add(&mut self, record: Arc<KeyRecord>) {
        self.set_of(&record).insert(ByPosition(record));
    }

    /// Adds many keys: to an empty set in less time, and into less memory, than one by one.
    pub(crate) fn add_all(&mut self, records: Vec<Arc<KeyRecord>>) {
        let (session_quota_keys, listed): (Vec<_>, Vec<_>) =
            records.into_iter().map(ByPosition).partition(|key| key.0.session_quota_key);
        self.listed.append(&mut BTreeSet::from_iter(listed));
        self.session_quota_keys.append(&mut BTreeSet::from_iter(session_quota_keys));
    }

    pub(crate) fn remove(&mut self, record: &KeyRecord) {
        self.set_of(record).remove(&record.position);
    }

    #[allow(clippy::mutable_key_type, reason = "the order is that of positions, which never change")]
    fn set_of(&mut self, record: &KeyRecord) -> &mut BTreeSet<ByPosition> {
        if record.session_quota_key { &mut self.session_quota_keys } else { &mut self.listed }
    }

    /// All keys, those of lists first and in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<KeyRecord>> {
        self.listed().chain(self.session_quota_keys.iter().map(|key| &key.0))
    }

    /// The keys of lists, oldest first.
    pub(crate) fn listed(&self) -> impl ExactSizeIterator<Item = &Arc<KeyRecord>> {
        self.listed.iter().map(|key| &key.0)
    }

    /// At most `count` keys of lists behind a position.
    pub(crate) fn read(&self, newest_first: bool, after: Option<KeyPosition>, count: usize) -> Vec<Arc<KeyRecord>> {
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
pub(crate) fn by_owner(parts: &[Vec<Arc<KeyRecord>>]) -> KeysByOwner {
    let mut grouped = KeysByOwner::default();
    for record in parts.iter().flatten() {
        let (org, user) = record.owners();
        grouped.0.entry(org).or_default().push(Arc::clone(record));
        grouped.1.entry(user).or_default().push(Arc::clone(record));
    }
    grouped
}
