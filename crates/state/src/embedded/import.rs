//! Look-ups and writes for an import from another state. See [`crate::import::Importer`].

use futures_util::future::join_all;

use super::Embedded;
use super::imports::Import;
use super::key_creation;
use super::load;
use super::stored_key::StoredKey;
use crate::import::{DigestClaim, ImportError, ImportedKey, KeyVersion, KeyWrite, UserWrite};
use crate::{ChangeError, CreationBucket, KeyExport, Org, User};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId, OrgTag};

impl Embedded {
    /// The organization with a tag.
    pub(crate) fn org_by_tag(&self, tag: OrgTag) -> Option<Org> {
        self.directory.org_by_tag(tag)
    }

    /// One user, removed or not.
    pub(crate) fn user(&self, user: UserId) -> Option<User> {
        self.directory.user(user)
    }

    /// The user with an email address, unless removed.
    pub(crate) fn user_id_by_email(&self, tag: OrgTag, email: &str) -> Option<UserId> {
        let mut users = self.users_by_email(email).into_iter().filter(|user| user.removed.is_none());
        users.find(|user| self.org(user.org).is_some_and(|org| org.tag == tag)).map(|user| user.id)
    }

    /// The ids of the users of an organization, in the order of their creation.
    pub(crate) fn user_ids_by_tag(&self, tag: OrgTag) -> Vec<UserId> {
        self.org_by_tag(tag).map(|org| self.directory.user_ids(org.id)).unwrap_or_default()
    }

    /// Returns true for a key that is listed.
    pub(crate) fn has_key(&self, id: KeyId) -> bool {
        self.directory.key(id).is_some()
    }

    /// One key with its digests and its bucket, retired or not.
    pub(crate) async fn imported_key(&self, id: KeyId) -> Option<ImportedKey> {
        let export = match self.directory.key(id) {
            Some(record) => record.export(),
            // No message to the writer for every key that is new.
            None if self.directory.retired.is_empty() => return None,
            None => {
                let (stored, digests) = self.read_retired(Some(id)).await.pop()?;
                self.directory.export_retired(stored, digests)
            }
        };
        let KeyExport { key, digest, previous, bucket, quota, .. } = export;
        Some(ImportedKey { key, digest, previous, bucket, quota, version: KeyVersion::default() })
    }

    /// The bucket of the keys that a user creates; none before the first.
    pub(crate) async fn creation_bucket(&self, user: UserId) -> Option<CreationBucket> {
        let read = self.writer.read(move |sql| key_creation::read(sql, Some(user))).await;
        logged(read, "the buckets of key creation").remove(&user)
    }

    /// Retired keys with the digests that each had before: the one with this id, or all of them.
    pub(super) async fn read_retired(&self, id: Option<KeyId>) -> Vec<(StoredKey, Vec<KeyDigest>)> {
        logged(self.writer.read(move |sql| load::read_retired(sql, id)).await, "retired keys")
    }

    /// Creates an organization.
    pub(crate) async fn import_org(&self, org: &Org) -> Result<(), ImportError> {
        self.writer.import(Import::Org(org.clone())).await.map_err(refused)
    }

    /// Writes users in this order.
    pub(crate) async fn import_users(&self, writes: impl Iterator<Item = UserWrite<'_>>) -> Result<(), ImportError> {
        let imports = writes.filter_map(|UserWrite { user, create, creation }| match create {
            true => Some(Import::User(user.clone(), creation)),
            false => creation.map(|creation| Import::Creation(user.id, creation)),
        });
        self.import_all(imports).await
    }

    /// Writes keys, whose users exist.
    pub(crate) async fn import_keys(&self, writes: &[KeyWrite<'_>]) -> Result<(), ImportError> {
        let imports = writes.iter().map(|write| match *write {
            KeyWrite::Create(export) => Import::Key(Box::new(export.clone())),
            KeyWrite::CatchUp { export, .. } | KeyWrite::Merge { export, .. } => {
                Import::Usage(Box::new(export.clone()))
            }
        });
        self.import_all(imports).await
    }

    /// Adds a digest that an existing key had.
    pub(crate) async fn import_digest(&self, claim: DigestClaim) -> Result<(), ImportError> {
        self.writer.import(Import::Digest(claim.key, claim.digest)).await.map_err(refused)
    }

    /// Submits all at once, so that one transaction commits them, in this order.
    async fn import_all(&self, imports: impl Iterator<Item = Import>) -> Result<(), ImportError> {
        let results = join_all(imports.map(|import| self.writer.import(import))).await;
        results.into_iter().try_for_each(|result| result.map_err(refused))
    }
}

/// The records that were read; none, and a line in the log, when SQLite failed.
fn logged<T: Default>(read: rusqlite::Result<T>, what: &str) -> T {
    read.unwrap_or_else(|error| {
        tracing::error!(%error, "cannot read {what} from the state file");
        T::default()
    })
}

/// Another writer was faster, or the file refuses the record.
fn refused(error: ChangeError) -> ImportError {
    match error {
        ChangeError::Taken(_) | ChangeError::NoUser(_) | ChangeError::NoOrg(_) => ImportError::Conflict,
        error => ImportError::Refused(error),
    }
}
