//! Records of an export.

use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use super::{ActorName, Key, KeyActors, KeyEvent, User};
use domain::budget::BudgetSubject;
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyDigest;
use domain::quota::Quota;

/// Spending of the subject of a budget, in the last period in which it spent anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpentExport {
    /// The subject.
    pub subject: BudgetSubject,
    /// Its organization.
    pub org: OrgId,
    /// Start of the period, or of the stretch of it that a correction began.
    #[serde(with = "clock::rfc3339")]
    pub start: Micros,
    /// Units that are spent or reserved. At most [`domain::budget::MAX_UNITS`].
    pub units: u64,
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

/// A key with its digests, its bucket and its actors.
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
    /// The actors who created, rotated and revoked it, as far as they are known.
    pub actors: KeyActors,
}

impl KeyExport {
    /// Its bucket under another quota at a time; as it is, when that measures alike: so nothing changes on the way
    /// between states of the same configuration.
    pub fn bucket_under(&self, quota: Quota, now: Micros) -> Bucket {
        let measure = |quota: Quota| (quota.inflow(), quota.per, quota.burst);
        if measure(self.quota) == measure(quota) {
            return self.bucket;
        }
        // Refilled first: the time until now still counts by the quota that it is measured in.
        self.bucket.refill(self.quota, now).convert(self.quota.per_micros(), quota)
    }

    /// The actor of an event that the record has.
    pub fn actor(&self, event: KeyEvent) -> Option<&ActorName> {
        self.actors.find(event, event.time_of(&self.key))
    }

    /// Every digest that the key has or had.
    pub fn digests(&self) -> impl Iterator<Item = &KeyDigest> {
        [&self.digest].into_iter().chain(&self.previous).chain(&self.replaced)
    }
}
