//! A key as the state file has it.

use super::entitlements::Secrets;
use crate::Key;
use crate::bucket::Bucket;

/// A key as the state file has it.
pub(super) struct StoredKey {
    pub(super) key: Key,
    /// Its row in the state file; zero for a new key.
    pub(super) row: u32,
    pub(super) secrets: Secrets,
    /// Its bucket, and the `per` in microseconds that the level is measured in; none when it was never written back.
    pub(super) bucket: Option<(Bucket, u64)>,
}
