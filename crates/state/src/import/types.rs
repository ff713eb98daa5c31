//! Types of an import that both variants of the state share.

use std::collections::HashMap;

use crate::{ChangeError, CreationBucket, KeyExport, Unavailable, User};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;

/// Users by id, as the target has them.
pub type Users = HashMap<UserId, User>;

/// The owner of a digest, as seen from one key.
pub enum DigestOwner {
    /// No key has claimed the digest.
    None,
    /// The key in question.
    Itself,
    /// A key that claimed the digest over a minute ago and was never written: the digest can be claimed again.
    Abandoned(KeyId),
    /// Another key.
    Other(KeyId),
}

/// A digest to be claimed for a key.
#[derive(Clone, Copy)]
pub struct DigestClaim {
    /// The digest.
    pub digest: KeyDigest,
    /// The key that claims it.
    pub key: KeyId,
    /// The key that abandoned the digest; none when no key has claimed it before.
    pub abandoned_by: Option<KeyId>,
}

/// A write to a user's record.
#[derive(Clone, Copy)]
pub struct UserWrite<'a> {
    /// The user.
    pub user: &'a User,
    /// True to create the record; the user exists otherwise.
    pub create: bool,
    /// The bucket of the keys that the user creates. An existing user's is not to be fuller than this one.
    pub creation: Option<CreationBucket>,
}

/// A write to a key's record.
#[derive(Clone, Copy)]
pub enum KeyWrite<'a> {
    /// Creates the record, and adds it to the lists.
    Create(&'a KeyExport),
    /// Takes over more uses, a later Last Used and an emptier bucket, each by itself.
    Merge {
        /// The uses and the bucket to compare with.
        export: &'a KeyExport,
        /// The target's own quota of the key.
        own: Option<Quota>,
    },
}

/// Reason why a step of an import did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Another writer changed the same records meanwhile; nothing was written. Read them again.
    #[error("another writer changed the same records")]
    Conflict,
    /// The records are written, but too few replicas confirmed them.
    #[error(transparent)]
    NotReplicated(ChangeError),
    /// The state refused the write, and would again.
    #[error(transparent)]
    Refused(ChangeError),
    /// Redis did not answer, or answered with an error; records may have been written.
    #[error("{failure}")]
    Unavailable {
        /// Kind of the failure.
        reason: Unavailable,
        /// The failure of the command.
        failure: Box<dyn std::error::Error + Send + Sync>,
    },
}
