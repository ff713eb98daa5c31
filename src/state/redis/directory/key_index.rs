//! Index of keys by creation time, for pages: written with each key, and completed by the keys that a gateway of an
//! earlier version created without it.
//!
//! Who takes a key from the list of its organization, or from the set of its user, takes it from the index as well.

use std::collections::HashSet;

use redis::{FromRedisValue as _, cmd};

use super::records::{Directory, parse_ids};
use super::transaction::Transaction;
use crate::identity::UserId;
use crate::key::{KeyId, OrgTag};
use crate::state::Key;
use crate::state::redis::client::CommandError;
use crate::state::redis::record_names::{RecordNames, org_slot};

/// Keys that are added to an index at a time: a script of less than a millisecond.
const BATCH: usize = 256;

/// Adds a new key to the indexes of its organization and of its user. A session quota key is not listed, and stands at
/// 0, so that index and list have the same length.
pub(in crate::state::redis) fn list_key<F>(transaction: &mut Transaction<F>, names: &RecordNames, key: &Key) {
    for owner in [None, Some(key.user)] {
        let index = transaction.record(names.listed_keys(key.id.tag(), owner));
        transaction.add_scored(index, score(key), key.id.as_str());
    }
}

/// 0 is for keys that are not listed.
fn score(key: &Key) -> u64 {
    if key.session_quota_key { 0 } else { key.created.0.max(1) }
}

impl Directory {
    /// Adds the keys that an index lacks. What is done stays done when the future is dropped on the way.
    pub(super) async fn complete_key_index(&self, tag: OrgTag, owner: Option<UserId>) -> Result<(), CommandError> {
        let keys = match owner {
            None => self.read_list(org_slot(tag), &self.shared.names.keys(tag)).await?,
            Some(user) => self.read_keys_of(tag, user).await?,
        };
        for batch in keys.chunks(BATCH) {
            self.index_keys(tag, owner, batch).await?;
        }
        Ok(())
    }

    async fn index_keys(&self, tag: OrgTag, owner: Option<UserId>, keys: &[KeyId]) -> Result<(), CommandError> {
        let name = self.shared.names.listed_keys(tag, owner);
        let missing = self.unlisted_keys(tag, &name, keys).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let mut transaction = self.transaction::<()>();
        let index = transaction.record(name);
        let records = self.read_keys(missing.clone()).await?;
        records.iter().for_each(|key| transaction.add_scored(index, score(key), key.id.as_str()));
        // An id without a record counts, and is not listed.
        let found: HashSet<KeyId> = records.iter().map(|key| key.id).collect();
        for id in missing.iter().filter(|id| !found.contains(id)) {
            transaction.add_scored(index, 0, id.as_str());
        }
        self.commit_without_replicas(org_slot(tag), transaction).await.map(drop)
    }

    /// The keys of a user, in no order.
    async fn read_keys_of(&self, tag: OrgTag, user: UserId) -> Result<Vec<KeyId>, CommandError> {
        let mut query = cmd("SMEMBERS");
        query.arg(self.shared.names.keys_of(tag, user));
        parse_ids(self.client.send(org_slot(tag), &query).await?)
    }

    /// The keys among these that an index lacks.
    async fn unlisted_keys(&self, tag: OrgTag, index: &str, keys: &[KeyId]) -> Result<Vec<KeyId>, CommandError> {
        let mut query = cmd("ZMSCORE");
        query.arg(index);
        keys.iter().for_each(|key| {
            query.arg(key.as_str());
        });
        let reply = self.client.send(org_slot(tag), &query).await?;
        let scores = Vec::<Option<f64>>::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(keys.iter().zip(scores).filter(|(_, score)| score.is_none()).map(|(key, _)| *key).collect())
    }
}
