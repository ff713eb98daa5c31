//! Full export of a state: the input of a migration to another state, and of a backup. Sessions and tickets are left out:
//! people sign in again.

use super::bucket::Bucket;
use super::{Key, Org, User};
use domain::clock::Micros;
use domain::key::KeyDigest;
use domain::quota::Quota;

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
    pub users: Vec<UserExport>,
    /// Its keys, revoked ones and session quota keys too.
    pub keys: Vec<KeyExport>,
}

/// A user, and the bucket of the keys that the user creates.
#[derive(Clone, Debug)]
pub struct UserExport {
    /// The record.
    pub user: User,
    /// The bucket; none before the user has created a key.
    pub creation: Option<CreationBucket>,
}

/// The bucket of the keys that a user creates and rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationBucket {
    /// The bucket.
    pub bucket: Bucket,
    /// The `per` that its level is measured in, in microseconds.
    pub per_us: u64,
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

impl CreationBucket {
    /// Its level under a quota, at a time.
    pub fn level_at(&self, quota: Quota, now: Micros) -> i64 {
        self.bucket.convert(self.per_us, quota).refill(quota, now).level
    }
}

impl KeyExport {
    /// Its bucket under another quota at a time; as it is, when that measures alike: so nothing changes on the way between
    /// states of the same configuration.
    pub fn bucket_under(&self, quota: Quota, now: Micros) -> Bucket {
        bucket_under(self.bucket, self.quota, quota, now)
    }

    /// Every digest that the key has or had.
    pub fn digests(&self) -> impl Iterator<Item = &KeyDigest> {
        [&self.digest].into_iter().chain(&self.previous).chain(&self.replaced)
    }
}

/// A bucket that is measured in `from`, under the quota `to`; as it is, when both measure alike.
pub(super) fn bucket_under(bucket: Bucket, from: Quota, to: Quota, now: Micros) -> Bucket {
    let measure = |quota: Quota| (quota.inflow(), quota.per, quota.burst);
    if measure(from) == measure(to) {
        return bucket;
    }
    // Refilled first: the time until now still counts by the quota that it is measured in.
    bucket.refill(from, now).convert(from.per_micros(), to)
}
