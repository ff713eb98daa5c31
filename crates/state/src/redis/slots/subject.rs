//! Subject of a slot lease.

use crate::redis::record_names::RecordNames;
use crate::redis::slot_numbers::org_slot;
use domain::key::{KeyId, OrgTag};

/// The organization or key whose slots a lease is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSubject {
    /// An organization.
    Org(OrgTag),
    /// A key with a limit of requests in flight of its own.
    Key(KeyId),
}

impl SlotSubject {
    /// The tag of the organization, also of the key's.
    pub fn tag(self) -> OrgTag {
        match self {
            Self::Org(tag) => tag,
            Self::Key(key) => key.tag(),
        }
    }

    pub(super) fn hash_slot(self) -> u16 {
        org_slot(self.tag())
    }

    /// Name of the record that has the leases.
    pub(super) fn record(self, names: &RecordNames) -> Box<[u8]> {
        let name = match self {
            Self::Org(tag) => names.org(tag),
            Self::Key(key) => names.key_slots(key),
        };
        name.into_bytes().into()
    }

    /// Name of the key's record; none for an organization.
    pub(super) fn key_record(self, names: &RecordNames) -> Option<Box<[u8]>> {
        match self {
            Self::Org(_) => None,
            Self::Key(key) => Some(names.key(key).into_bytes().into()),
        }
    }
}
