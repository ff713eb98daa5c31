//! A key as the state file has it.

use super::entitlements::Secrets;
use crate::bucket::Bucket;
use crate::{Key, KeyActors, KeyExport};
use domain::key::KeyDigest;
use domain::quota::Quota;

/// A key as the state file has it.
pub(crate) struct StoredKey {
    pub(super) key: Key,
    /// Its row in the state file; zero for a new key.
    pub(super) row: u32,
    pub(super) secrets: Secrets,
    /// Its bucket, and the `per` in microseconds that the level is measured in; none when it was never written back.
    pub(super) bucket: Option<(Bucket, u64)>,
}

impl StoredKey {
    /// The whole key but for its actors, under the quota in force; `digests` are those that it had before its
    /// rotations.
    pub(super) fn export(self, digests: Vec<KeyDigest>, quota: Quota) -> KeyExport {
        let Self { key, secrets, bucket, .. } = self;
        let previous = secrets.previous.map(|(previous, _)| previous);
        let replaced = digests.into_iter().filter(|digest| Some(*digest) != previous).collect();
        let bucket = bucket.map_or(Bucket::full(quota, key.created), |(bucket, per)| bucket.convert(per, quota));
        let digest = secrets.current;
        KeyExport { key, digest, previous, replaced, bucket, quota, actors: KeyActors::default() }
    }
}
