//! Keys of an organization or of a user in the order of lists.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::key_record::KeyRecord;
use crate::state::listing::KeyPosition;

/// Keys by creation time and id, without session quota keys.
#[derive(Default)]
pub(super) struct ListedKeys(BTreeMap<KeyPosition, Arc<KeyRecord>>);

impl ListedKeys {
    pub(super) fn add(&mut self, position: KeyPosition, record: &Arc<KeyRecord>) {
        if !record.session_quota_key {
            self.0.insert(position, Arc::clone(record));
        }
    }

    pub(super) fn remove(&mut self, position: KeyPosition) {
        self.0.remove(&position);
    }

    /// At most `count` keys behind a position.
    pub(super) fn read(&self, newest_first: bool, after: Option<KeyPosition>, count: usize) -> Vec<Arc<KeyRecord>> {
        let bound = after.map_or(Unbounded, Excluded);
        if newest_first {
            self.0.range((Unbounded, bound)).rev().take(count).map(|(_, record)| Arc::clone(record)).collect()
        } else {
            self.0.range((bound, Unbounded)).take(count).map(|(_, record)| Arc::clone(record)).collect()
        }
    }
}
