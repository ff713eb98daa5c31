//! Index of keys by creation time, for lists: written with each key.

use super::transaction::Transaction;
use crate::Key;
use crate::redis::record_names::RecordNames;

/// Adds a key to the indexes of its organization and of its user.
pub(super) fn list_key<F>(transaction: &mut Transaction<F>, names: &RecordNames, key: &Key) {
    for owner in [None, Some(key.user)] {
        let index = transaction.record(names.listed_keys(key.id.tag(), owner));
        transaction.add_scored(index, key.created.0.max(1), key.id.as_str());
    }
}

/// Removes a key from both.
pub(super) fn unlist_key<F>(transaction: &mut Transaction<F>, names: &RecordNames, key: &Key) {
    for owner in [None, Some(key.user)] {
        let index = transaction.record(names.listed_keys(key.id.tag(), owner));
        transaction.remove_scored(index, key.id.as_str());
    }
}
