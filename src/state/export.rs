//! Everything that a state holds for long, as lists: what is carried from one variant to another. Sessions and tickets are
//! not: people sign in again.

use super::bucket::Bucket;
use super::{Key, Org, User};
use crate::key::KeyDigest;

/// Everything that a state holds, at a moment when nobody changes or uses it.
///
/// - All lists are in the order of creation.
#[derive(Clone, Debug, Default)]
pub struct StateExport {
    /// The organizations.
    pub orgs: Vec<OrgExport>,
}

/// An organization with all that belongs to it.
#[derive(Clone, Debug)]
pub struct OrgExport {
    /// Its record.
    pub org: Org,
    /// Its users, removed ones too.
    pub users: Vec<User>,
    /// Its keys, revoked ones too, and session quota keys.
    pub keys: Vec<KeyExport>,
}

/// A key with all that it is recognized by, and its bucket.
#[derive(Clone, Debug)]
pub struct KeyExport {
    /// Its record.
    pub key: Key,
    /// The digest it is recognized by.
    pub digest: KeyDigest,
    /// The digest before the last rotation; none when there was no overlap.
    pub previous: Option<KeyDigest>,
    /// All other digests that it had, in no order.
    pub replaced: Vec<KeyDigest>,
    /// Its bucket.
    pub bucket: Bucket,
    /// The `per` that the bucket's level is measured in, in microseconds.
    pub per_us: u64,
}

impl KeyExport {
    /// Every digest that the key has or had.
    pub fn digests(&self) -> impl Iterator<Item = &KeyDigest> {
        [&self.digest].into_iter().chain(&self.previous).chain(&self.replaced)
    }
}
