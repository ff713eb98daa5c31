//! Records of the embedded state, for an export.

use super::Embedded;
use super::{key_creation, load};
use crate::{KeyExport, StateExport, StorageError, UserExport};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};

impl Embedded {
    /// Exports all records at once, to be copied to another state. The state must not be changed or used meanwhile.
    pub async fn export(&self) -> StateExport {
        let creation = self.writer.read(|sql| key_creation::read(sql, None)).await.unwrap_or_default();
        self.directory.export(self.read_retired(None).await, &creation)
    }

    /// The ids of an organization's users, in the order of their creation.
    pub(crate) fn exported_user_ids(&self, org: OrgId) -> Vec<UserId> {
        self.directory.user_ids(org)
    }

    /// Users with the buckets of the keys that they create.
    ///
    /// # Errors
    /// [`StorageError::Sqlite`].
    pub(crate) async fn exported_users(&self, ids: &[UserId]) -> Result<Vec<UserExport>, StorageError> {
        let wanted = ids.to_vec();
        let read = move |sql: &rusqlite::Connection| {
            let each = wanted.iter().map(|id| Ok(key_creation::read(sql, Some(*id))?.remove(id)));
            each.collect::<rusqlite::Result<Vec<_>>>()
        };
        let creation = self.writer.read(read).await?;
        let users = ids.iter().zip(creation);
        Ok(users.filter_map(|(id, creation)| Some(UserExport { user: self.directory.user(*id)?, creation })).collect())
    }

    /// The ids of all keys of an organization in their order: listed ones, retired ones, session quota keys.
    ///
    /// # Errors
    /// [`StorageError::Sqlite`].
    pub(crate) async fn exported_key_ids(&self, org: OrgId, tag: OrgTag) -> Result<Vec<KeyId>, StorageError> {
        // The retired ones last: a key that retires in between is found twice, and not missed.
        let mut ids = self.directory.key_ids(org);
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
            let retired = self.writer.read(move |sql| load::read_retired(sql, Some(id))).await?;
            keys.extend(retired.into_iter().map(|(stored, digests)| self.directory.export_retired(stored, digests)));
        }
        Ok(keys)
    }
}
