//! Import of records from another state: typed reads of single records, checked writes of whole batches.
//!
//! The caller (`migration`) compares records and decides what is missing. This module knows how records are named, laid
//! out and committed. Every write names what must still be so; when another writer was faster, it fails with
//! [`ImportError::Conflict`] and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue as _, Value, cmd};
use tokio::time::timeout;

use super::Redis;
use super::directory::{CLAIM_LIFETIME, Directory};
use super::record_codec::StoredKey;
use super::record_names::{org_slot, orgs_slot};
use crate::import::{DigestOwner, ImportError, ImportedKey, KeyVersion};
use crate::{CreationBucket, Org, User};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::Quota;
use redis_client::{CommandError, ConnectError, hash_slot};

mod confirm;
mod error;
mod write;

pub use confirm::Confirmation;

/// Time to wait for the servers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads and writes single records of a Redis state.
#[derive(Clone, Copy)]
pub struct Importer<'a>(&'a Directory);

impl<'a> Importer<'a> {
    /// Reads and writes of a state.
    pub(crate) fn new(state: &'a Redis) -> Self {
        Self(&state.directory)
    }
}

impl Importer<'_> {
    /// Waits, for some seconds at most, until every server was reached.
    ///
    /// # Errors
    /// [`ConnectError`] of the last try. A server that neither answers nor fails within that time is no error.
    pub async fn ensure_reachable(&self) -> Result<(), Arc<ConnectError>> {
        timeout(CONNECT_TIMEOUT, self.0.client.wait_connected()).await.unwrap_or(Ok(()))
    }

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
        Ok(self.0.find_tag(org).await?)
    }

    /// The id, as text, of the organization with a name.
    pub async fn org_id_by_name(&self, name: &str) -> Result<Option<String>, ImportError> {
        Ok(self.0.read_field(orgs_slot(), &self.0.shared.names.names(), name).await?)
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
        Ok(self.0.read_creation_bucket(tag, user).await?)
    }

    /// The id, as text, of the user of an organization with an email address.
    pub async fn user_id_by_email(&self, tag: OrgTag, email: &str) -> Result<Option<String>, ImportError> {
        let emails = self.0.shared.names.emails(tag);
        Ok(self.0.read_field(org_slot(tag), &emails, email).await?)
    }

    /// One key.
    pub async fn key(&self, id: KeyId) -> Result<Option<ImportedKey>, ImportError> {
        let Some((stored, metered)) = self.0.read_metered_key(id).await? else { return Ok(None) };
        let quota = stored.live.measured_in(metered, self.quota().in_force(stored.key.quota));
        let StoredKey { key, digest, previous, live } = stored;
        Ok(Some(ImportedKey { key, digest, previous, bucket: live.bucket, quota, version: KeyVersion(live.version) }))
    }

    /// The owner of a digest, as seen from `key`. A claim of the last minute stands, although its key may never be
    /// written.
    pub async fn digest_owner(&self, digest: &KeyDigest, key: KeyId) -> Result<DigestOwner, ImportError> {
        let name = self.0.shared.names.digest(digest);
        let mut get = cmd("HMGET");
        get.arg(&name).arg("key").arg("at");
        let claim = self.0.client.send(hash_slot(&name), &get).await?;
        let claim =
            <(Option<String>, Option<u64>)>::from_redis_value(claim).map_err(|_| CommandError::UnexpectedReply)?;
        let (Some(by), at) = claim else { return Ok(DigestOwner::None) };
        let by: KeyId = by.parse().map_err(|_| CommandError::UnexpectedReply)?;
        if by == key {
            return Ok(DigestOwner::Itself);
        }
        let fresh = Micros(at.unwrap_or_default()).after(CLAIM_LIFETIME) > clock::now();
        let held = fresh || self.0.read_key(by).await?.is_some();
        Ok(if held { DigestOwner::Other(by) } else { DigestOwner::Abandoned(by) })
    }

    /// The list of all organizations.
    pub async fn org_ids(&self) -> Result<Vec<OrgId>, ImportError> {
        Ok(self.0.read_list(orgs_slot(), &self.0.shared.names.orgs()).await?)
    }

    /// The list of an organization's users.
    pub async fn user_ids(&self, tag: OrgTag) -> Result<Vec<UserId>, ImportError> {
        let slot = org_slot(tag);
        Ok(self.0.read_list(slot, &self.0.shared.names.users(tag)).await?)
    }

    /// Returns true when a key is among those of its organization that are listed. One that was revoked long ago need not
    /// be: it leaves the list when the keys of the organization are listed or changed.
    pub async fn is_listed(&self, key: KeyId) -> Result<bool, ImportError> {
        let mut query = cmd("ZSCORE");
        query.arg(self.0.shared.names.listed_keys(key.tag(), None)).arg(key.as_str());
        Ok(self.0.client.send(org_slot(key.tag()), &query).await? != Value::Nil)
    }

    /// Returns true when a key is in the set of its user's keys that are not revoked.
    pub async fn is_among_keys_of_user(&self, key: KeyId, user: UserId) -> Result<bool, ImportError> {
        let mut query = cmd("SISMEMBER");
        query.arg(self.0.shared.names.keys_of(key.tag(), user)).arg(key.as_str());
        let reply = self.0.client.send(org_slot(key.tag()), &query).await?;
        Ok(bool::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?)
    }
}
