//! Import of records from another state: typed reads of single records, checked writes of whole batches.
//!
//! The caller (`migration`) compares records and decides what is missing. A write names what must still be so; when
//! another writer was faster, it fails with [`ImportError::Conflict`] and writes nothing.

use super::{Change, ChangeError, CreationBucket, Embedded, KeyExport, Org, Redis, State, User, redis};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::Quota;

mod types;

pub use types::{DigestClaim, DigestOwner, ImportError, KeyWrite, UserWrite, Users};

/// Reads and writes single records of a state.
#[derive(Clone, Copy)]
pub enum Importer<'a> {
    /// Of the embedded state.
    Embedded(&'a Embedded),
    /// Of a Redis state.
    Redis(redis::import::Importer<'a>, &'a Redis),
}

impl State {
    /// Reads and writes of single records, for an import from another state.
    pub fn importer(&self) -> Importer<'_> {
        match self {
            Self::Embedded(state) => Importer::Embedded(state),
            Self::Redis(state) => Importer::Redis(redis::import::Importer::new(state), state),
        }
    }
}

/// Calls the same method of the variant: synchronous look-ups in memory, commands to Redis.
macro_rules! either {
    ($self:ident, $state:ident => $embedded:expr, $redis:ident => $remote:expr) => {
        match $self {
            Self::Embedded($state) => $embedded,
            Self::Redis($redis, _) => $remote,
        }
    };
}

impl Importer<'_> {
    /// The quota of keys without one of their own.
    pub fn quota(&self) -> Quota {
        either!(self, state => state.quota(), redis => redis.quota())
    }

    /// The organization with a tag.
    pub async fn org(&self, tag: OrgTag) -> Result<Option<Org>, ImportError> {
        either!(self, state => Ok(state.tree().org_by_tag(tag)), redis => redis.org(tag).await)
    }

    /// The tag of an organization in the list of all.
    pub async fn tag_of(&self, org: OrgId) -> Result<Option<OrgTag>, ImportError> {
        either!(self, state => Ok(state.tree().org(org).map(|org| org.tag)), redis => redis.tag_of(org).await)
    }

    /// The id, as text, of the organization with a name.
    pub async fn org_id_by_name(&self, name: &str) -> Result<Option<String>, ImportError> {
        either!(
            self,
            state => Ok(state.tree().org_by_name(name).map(|org| org.id.to_string())),
            redis => redis.org_id_by_name(name).await
        )
    }

    /// A user of the organization with a tag.
    pub async fn user(&self, tag: OrgTag, user: UserId) -> Result<Option<User>, ImportError> {
        either!(self, state => Ok(state.tree().users.find(user)), redis => redis.user(tag, user).await)
    }

    /// The quota of the keys that a user creates.
    pub fn key_creation(&self) -> Quota {
        either!(self, state => state.bounds().key_creation, redis => redis.key_creation())
    }

    /// The bucket of the keys that a user creates; none before the first.
    pub async fn creation_bucket(&self, tag: OrgTag, user: UserId) -> Result<Option<CreationBucket>, ImportError> {
        either!(
            self,
            state => Ok(state.creation_bucket(user).await),
            redis => redis.creation_bucket(tag, user).await
        )
    }

    /// The id, as text, of the user of an organization with an email address.
    pub async fn user_id_by_email(&self, tag: OrgTag, email: &str) -> Result<Option<String>, ImportError> {
        either!(
            self,
            state => Ok(state.user_id_by_email(tag, email).map(|user| user.to_string())),
            redis => redis.user_id_by_email(tag, email).await
        )
    }

    /// One key, without the digests that its last two replaced.
    pub async fn key(&self, id: KeyId) -> Result<Option<KeyExport>, ImportError> {
        either!(self, state => Ok(state.imported_key(id).await), redis => redis.key(id).await)
    }

    /// The owner of a digest, as seen from `key`. A claim of the last minute stands, although its key may never be
    /// written.
    pub async fn digest_owner(&self, digest: &KeyDigest, key: KeyId) -> Result<DigestOwner, ImportError> {
        let owner = |owner: Option<KeyId>| match owner {
            None => DigestOwner::None,
            Some(owner) if owner == key => DigestOwner::Itself,
            Some(other) => DigestOwner::Other(other),
        };
        either!(self, state => Ok(owner(state.key_of(digest))), redis => redis.digest_owner(digest, key).await)
    }

    /// Creates the record of an organization. On Redis it is found by its tag only until [`Importer::list_orgs`] lists
    /// it.
    pub async fn create_org(&self, org: &Org) -> Result<(), ImportError> {
        either!(self, state => state.import_org(org).await, redis => redis.create_org(org).await)
    }

    /// Adds organizations to the list of all, in this order, and claims their names.
    pub async fn list_orgs(&self, orgs: impl Iterator<Item = &Org>) -> Result<(), ImportError> {
        // The embedded state's list is the table that the record is in.
        either!(self, _state => Ok(()), redis => redis.list_orgs(orgs).await)
    }

    /// Writes users of an organization, in this order. The email addresses of new ones that are not removed are
    /// claimed.
    pub async fn write_users(
        &self,
        tag: OrgTag,
        writes: impl Iterator<Item = UserWrite<'_>>,
    ) -> Result<(), ImportError> {
        either!(self, state => state.import_users(writes).await, redis => redis.write_users(tag, writes).await)
    }

    /// Claims a digest that no key had when it was looked at. On Redis the key itself may be written afterwards.
    pub async fn claim_digest(&self, claim: DigestClaim) -> Result<(), ImportError> {
        either!(self, state => state.import_digest(claim).await, redis => redis.claim_digest(claim).await)
    }

    /// Returns true when the list of organizations is in the order in which their records are created.
    pub fn is_ordered_by_creation(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }

    /// Returns true when the digests of a new key are written with its record, and not claimed before.
    pub fn writes_digests_with_keys(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }

    /// Writes keys of one organization, whose users exist.
    pub async fn write_keys(&self, writes: &[KeyWrite<'_>]) -> Result<(), ImportError> {
        either!(self, state => state.import_keys(writes).await, redis => redis.write_keys(writes).await)
    }

    /// Makes a change that withdraws something: it takes the way of every other change, through the log of revocations.
    pub async fn withdraw(&self, change: Change) -> Result<(), ImportError> {
        let changed = match self {
            Self::Embedded(state) => state.change(change).await,
            Self::Redis(_, state) => state.change(change).await,
        };
        changed.map_err(|error| match error {
            ChangeError::NotReplicated { .. } => ImportError::NotReplicated(error),
            error => ImportError::Refused(error),
        })
    }

    /// Returns the writes after which replicas have all records of these organizations, and these keys; none when no
    /// replica is waited for.
    pub fn confirmations(&self, orgs: &[(OrgId, OrgTag)], keys: &[&KeyExport]) -> Vec<redis::import::Confirmation> {
        either!(self, _state => Vec::new(), redis => redis.confirmations(orgs, keys))
    }

    /// Writes a field once more and waits for the configured replicas.
    ///
    /// # Errors
    /// [`ImportError::NotReplicated`] when too few replicas confirmed it in time.
    pub async fn confirm(&self, confirmation: &redis::import::Confirmation) -> Result<(), ImportError> {
        either!(self, _state => Ok(()), redis => redis.confirm(confirmation).await)
    }
}
