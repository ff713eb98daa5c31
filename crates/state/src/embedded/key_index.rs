//! Entries of the indexes of keys: a pointer to the record, ordered or hashed by a field of it, so that no index holds
//! a copy of the field.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::key_record::KeyRecord;
use crate::listing::KeyPosition;
use domain::key::{KeyDigest, KeyId};

/// A key in an index by its id.
pub(super) struct ById(pub(super) Arc<KeyRecord>);

/// A key in an index by the digest of its record.
pub(super) struct ByDigest(pub(super) Arc<KeyRecord>);

/// A key in a list by creation time and id.
pub(super) struct ByPosition(pub(super) Arc<KeyRecord>);

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
