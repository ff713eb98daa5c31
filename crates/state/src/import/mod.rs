//! Import of records from another state, into any state: reads of single records, checked writes of whole batches.
//!
//! The caller (`migration`) compares records and decides what is missing. A write names what must still be so; when
//! another writer was faster, it fails with [`ImportError::Conflict`] and writes nothing.

use super::{ChangeError, CreationBucket, FederationRule, KeyExport, Org, SpentExport, Unavailable, User};
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::ManagementToken;

mod importer;

pub use importer::Importer;

/// A record of another state, on its way into this one.
pub enum Import {
    /// Creates an organization. On Redis it is found by its tag only until [`Importer::list_orgs`] lists it.
    Org(Org),
    /// Creates a user, who may be removed, with the bucket of the keys that the user creates. The email address of one
    /// who is not removed is claimed.
    User {
        /// Tag of the user's organization.
        tag: OrgTag,
        /// The user.
        user: User,
        /// The bucket.
        creation: Option<CreationBucket>,
    },
    /// Creates a key, whose user exists, with its usage, and adds it to the lists.
    Key(Box<KeyExport>),
    /// Adds a digest that no key had when it was looked at. On Redis the key itself may be written afterwards.
    Digest(DigestClaim),
    /// Creates a federation rule, whose user is a service of the organization, removed or not.
    Rule {
        /// Tag of the organization.
        tag: OrgTag,
        /// The rule.
        rule: Box<FederationRule>,
    },
    /// Creates a management token, which may be revoked, and removes some that have expired. On Redis it is written by
    /// itself.
    Token {
        /// The token.
        token: Box<ManagementToken>,
        /// Time of the import.
        now: Micros,
    },
    /// Replaces what the subject of a budget has spent, where that began earlier. The record of the subject exists.
    Spent {
        /// Tag of the organization.
        tag: OrgTag,
        /// The spending.
        spent: SpentExport,
    },
}

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
