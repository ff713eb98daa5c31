//! Bounds of what people create, which can change while a gateway runs. The operator is not bound.

use std::time::Duration;

use domain::quota::Quota;

/// Bounds of the keys and sessions of people, and the time for which revoked keys are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Keys that one person may create and rotate: a bucket for each. A new key begins with a full bucket of its own,
    /// so this bounds how many such buckets a person gets.
    pub key_creation: Quota,
    /// Keys of one user that are not revoked.
    pub keys_per_user: u32,
    /// Web sessions of one person at a time.
    pub sessions_per_person: u32,
    /// Time after its revocation for which a key is listed. Later its digest is still known, and its use refused and
    /// recorded as that of a revoked key.
    pub keep_revoked: Duration,
    /// Time without a use after which a key is disabled; none: never. An organization may have another one.
    pub unused_keys: Option<Duration>,
}

impl Bounds {
    /// The bounds of an empty configuration.
    pub const DEFAULT: Self = Self {
        // A person sets up the keys of a team of services on one day, and a few an hour on others.
        key_creation: Quota { requests: 20, per: Duration::from_secs(3600), burst: 100, strict: false },
        keys_per_user: 100,
        // Several browsers on several devices, and some that were never signed out.
        sessions_per_person: 50,
        // A quarter: as long as a review of keys looks back.
        keep_revoked: Duration::from_secs(90 * 24 * 3600),
        unused_keys: None,
    };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}
