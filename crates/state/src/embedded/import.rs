//! Look-ups and writes for an import from another state. See [`crate::import::Importer`].

use futures_util::future::join_all;

use super::Embedded;
use super::key::StoredKey;
use super::load;
use super::operation::Operation;
use crate::import::{Import, ImportError};
use crate::{ChangeError, KeyExport};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId, OrgTag};

impl Embedded {
    /// The user with an email address, unless removed.
    pub(crate) fn user_id_by_email(&self, tag: OrgTag, email: &str) -> Option<UserId> {
        let tree = self.tree();
        let org = tree.org_by_tag(tag)?;
        tree.users.by_email_of(org.id, email).map(|user| user.id)
    }

    /// One key with its digests and its bucket, retired or not.
    pub(crate) async fn imported_key(&self, id: KeyId) -> Option<KeyExport> {
        match self.directory.key(id) {
            Some(record) => Some(record.export()),
            // No message to the writer for every key that is new.
            None if self.directory.retired.is_empty() => None,
            None => {
                let (stored, digests) = self.read_retired(id).await?;
                Some(self.directory.export_retired(stored, digests))
            }
        }
    }

    /// The retired key with this id, and the digests that it had before.
    pub(super) async fn read_retired(&self, id: KeyId) -> Option<(StoredKey, Vec<KeyDigest>)> {
        logged(self.writer.read(move |sql| load::read_retired(sql, id)).await, "retired keys")
    }

    /// Submits all at once, so that one transaction commits them, in this order.
    pub(crate) async fn import(&self, imports: Vec<Import>) -> Result<(), ImportError> {
        let results = join_all(imports.into_iter().map(|import| self.writer.submit(Operation::Import(import)))).await;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(refused))
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
        ChangeError::Taken(_) | ChangeError::NoUser(_) | ChangeError::NoOrg(_) | ChangeError::TooManyTokens(_) => {
            ImportError::Conflict
        }
        error => ImportError::Refused(error),
    }
}
