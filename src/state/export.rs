//! Full export of a state, as lists: the input of a migration to another state. Sessions and tickets are left out: people
//! sign in again.

use super::bucket::Bucket;
use super::{Key, Org, User};
use crate::key::KeyDigest;
use crate::quota::Quota;

/// All lasting records of a state, at a moment when it is neither changed nor used.
///
/// - All lists are in the order of creation.
#[derive(Clone, Debug, Default)]
pub struct StateExport {
    /// The organizations.
    pub orgs: Vec<OrgExport>,
}

/// An organization with its users and keys.
#[derive(Clone, Debug)]
pub struct OrgExport {
    /// Its record.
    pub org: Org,
    /// Its users, removed ones too.
    pub users: Vec<User>,
    /// Its keys, revoked ones and session quota keys too.
    pub keys: Vec<KeyExport>,
}

/// A key with its digests and its bucket.
#[derive(Clone, Debug)]
pub struct KeyExport {
    /// Its record.
    pub key: Key,
    /// Digest of the current secret.
    pub digest: KeyDigest,
    /// Digest before the last rotation; none when there was no overlap.
    pub previous: Option<KeyDigest>,
    /// All other digests that it had, in no order.
    pub replaced: Vec<KeyDigest>,
    /// Its bucket.
    pub bucket: Bucket,
    /// The quota that the bucket is measured in.
    pub quota: Quota,
}

impl KeyExport {
    /// Every digest that the key has or had.
    pub fn digests(&self) -> impl Iterator<Item = &KeyDigest> {
        [&self.digest].into_iter().chain(&self.previous).chain(&self.replaced)
    }
}
