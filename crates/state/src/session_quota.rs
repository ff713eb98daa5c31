//! Session quota keys: the key records that meter the requests of web sessions.
//!
//! A web session has no key. All sessions of a user share one key record with a bucket of its own, found by a digest
//! that is made from the user's id instead of a secret.

use domain::identity::UserId;
use domain::key::KeyDigest;

/// Prefix of every session quota key's digest. No text with such a SHA-256 is known.
const SESSION_QUOTA_PREFIX: &[u8; 16] = b"keygate.session.";

/// Returns the digest of a user's session quota key. No API key can have it.
pub fn session_quota_digest(user: UserId) -> KeyDigest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(SESSION_QUOTA_PREFIX);
    digest[16..].copy_from_slice(user.as_bytes());
    KeyDigest::from_bytes(digest)
}

/// Returns true for the digest of a session quota key.
pub fn is_session_quota_digest(digest: &KeyDigest) -> bool {
    digest.as_bytes().starts_with(SESSION_QUOTA_PREFIX)
}
