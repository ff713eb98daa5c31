//! Records of the embedded state, for an export.

use super::Embedded;
use super::{key_creation, load};
use crate::{KeyExport, StorageError, UserExport};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};

impl Embedded {
    /// The ids of an organization's users, in the order of their creation.
    pub(crate) fn exported_user_ids(&self, org: OrgId) -> Vec<UserId> {
        self.directory.tree().user_ids(org).to_vec()
    }

    /// Users with the buckets of the keys that they create.
    ///
    /// # Errors
    /// [`StorageError::Sqlite`].
    pub(crate) async fn exported_users(&self, ids: &[UserId]) -> Result<Vec<UserExport>, StorageError> {
        let wanted = ids.to_vec();
        let read = move |sql: &rusqlite::Connection| {
            wanted.iter().map(|id| key_creation::read(sql, *id)).collect::<rusqlite::Result<Vec<_>>>()
        };
        let creation = self.writer.read(read).await?;
        let tree = self.directory.tree();
        let users = ids.iter().zip(creation);
        Ok(users.filter_map(|(id, creation)| Some(UserExport { user: tree.users.find(*id)?, creation })).collect())
    }

    /// The ids of all keys of an organization in their order: listed ones, retired ones, session quota keys.
    ///
    /// # Errors
    /// [`StorageError::Sqlite`].
    pub(crate) async fn exported_key_ids(&self, org: OrgId, tag: OrgTag) -> Result<Vec<KeyId>, StorageError> {
        // The retired ones last: a key that retires in between is found twice, and not missed.
        let mut ids = self.directory.tree().key_ids(org);
        ids.extend(self.writer.read(move |sql| load::read_retired_ids(sql, tag)).await?);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Keys with their digests and buckets.
    ///
    /// # Errors
    /// [`StorageError::Sqlite`].
    pub(crate) async fn exported_keys(&self, ids: &[KeyId]) -> Result<Vec<KeyExport>, StorageError> {
        let mut keys = Vec::with_capacity(ids.len());
        for id in ids.iter().copied() {
            if let Some(record) = self.directory.key(id) {
                keys.push(record.export());
                continue;
            }
            let retired = self.writer.read(move |sql| load::read_retired(sql, id)).await?;
            keys.extend(retired.into_iter().map(|(stored, digests)| self.directory.export_retired(stored, digests)));
        }
        Ok(keys)
    }
}
