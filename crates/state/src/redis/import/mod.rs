//! Import of records from another state: typed reads of single records, checked writes of whole batches.
//!
//! The caller (`migration`) compares records and decides what is missing. This module knows how records are named, laid
//! out and committed. Every write names what must still be so; when another writer was faster, it fails with
//! [`ImportError::Conflict`] and writes nothing.

use redis::cmd;

use super::Redis;
use super::directory::{CLAIM_LIFETIME, CommitError, Orgs, Transactions, Users, parse_id};
use super::record_codec::StoredKey;
use crate::import::{DigestOwner, ImportError};
use crate::{CreationBucket, KeyExport, Org, Unavailable, User};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::Quota;
use redis_client::CommandError;

mod confirm;
mod write;

pub use confirm::Confirmation;

/// Reads and writes single records of a Redis state.
#[derive(Clone, Copy)]
pub struct Importer<'a>(&'a Transactions);

impl<'a> Importer<'a> {
    /// Reads and writes of a state.
    pub(crate) fn new(state: &'a Redis) -> Self {
        Self(&state.transactions)
    }
}

impl Importer<'_> {
    /// The quota of keys without one of their own.
    pub fn quota(&self) -> Quota {
        self.0.shared.defaults.load().limits.quota
    }

    /// The organization with a tag.
    pub async fn org(&self, tag: OrgTag) -> Result<Option<Org>, ImportError> {
        Ok(self.0.read_org(tag).await?)
    }

    /// The tag of an organization in the list of all.
    pub async fn tag_of(&self, org: OrgId) -> Result<Option<OrgTag>, ImportError> {
        Ok(Orgs(self.0).find_tag(org).await?)
    }

    /// The id, as text, of the organization with a name.
    pub async fn org_id_by_name(&self, name: &str) -> Result<Option<String>, ImportError> {
        Ok(self.0.read_field(&self.0.shared.names.names(), name).await?)
    }

    /// A user of the organization with a tag.
    pub async fn user(&self, tag: OrgTag, user: UserId) -> Result<Option<User>, ImportError> {
        Ok(self.0.read_user(tag, user).await?)
    }

    /// The quota of the keys that a user creates.
    pub fn key_creation(&self) -> Quota {
        self.0.bounds().key_creation
    }

    /// The bucket of the keys that a user creates; none before the first.
    pub async fn creation_bucket(&self, tag: OrgTag, user: UserId) -> Result<Option<CreationBucket>, ImportError> {
        Ok(Users(self.0).read_creation_bucket(tag, user).await?)
    }

    /// The id, as text, of the user of an organization with an email address.
    pub async fn user_id_by_email(&self, tag: OrgTag, email: &str) -> Result<Option<String>, ImportError> {
        Ok(self.0.read_field(&self.0.shared.names.emails(tag), email).await?)
    }

    /// One key, without the digests that its last two replaced.
    pub async fn key(&self, id: KeyId) -> Result<Option<KeyExport>, ImportError> {
        let Some(stored) = self.0.read_key(id).await? else { return Ok(None) };
        let StoredKey { key, digest, previous, live } = stored;
        Ok(Some(KeyExport { key, digest, previous, replaced: Vec::new(), bucket: live.bucket, quota: live.quota }))
    }

    /// The owner of a digest, as seen from `key`. A claim of the last minute stands, although its key may never be
    /// written.
    pub async fn digest_owner(&self, digest: &KeyDigest, key: KeyId) -> Result<DigestOwner, ImportError> {
        let name = self.0.shared.names.digest(digest);
        let (by, at): (Option<String>, Option<u64>) =
            self.0.client.query(cmd("HMGET").arg(name).arg("key").arg("at")).await?;
        let Some(by) = by else { return Ok(DigestOwner::None) };
        let by: KeyId = parse_id(by)?;
        if by == key {
            return Ok(DigestOwner::Itself);
        }
        let fresh = Micros(at.unwrap_or_default()).after(CLAIM_LIFETIME) > clock::now();
        let held = fresh || self.0.read_key(by).await?.is_some();
        Ok(if held { DigestOwner::Other(by) } else { DigestOwner::Abandoned(by) })
    }
}

impl From<CommandError> for ImportError {
    fn from(failure: CommandError) -> Self {
        Self::Unavailable { reason: Unavailable::from(&failure), failure: Box::new(failure) }
    }
}

impl From<CommitError> for ImportError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Final(error) => Self::NotReplicated(error),
            CommitError::Command(failure) => failure.into(),
            // Without randomness there is no version for the record: the caller tries again, as after a conflict.
            CommitError::Conflict | CommitError::Randomness(_) => Self::Conflict,
        }
    }
}

impl From<getrandom::Error> for ImportError {
    fn from(_: getrandom::Error) -> Self {
        Self::Conflict
    }
}
