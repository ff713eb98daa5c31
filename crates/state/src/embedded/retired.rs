//! Keys whose revocation is long past: out of the directory, but for what their use is recognized by.
//!
//! - A retired key is in no list, and takes a tenth of the memory of another one. Its row stays in the state file.
//! - Its digests stay known: a request with one is refused, and recorded, as that of a revoked key.

use std::sync::Arc;

use dashmap::DashMap;
use rusqlite::{Connection, params};
use rustc_hash::FxBuildHasher;

use super::Embedded;
use super::sql::{for_each_row, integer, text};
use crate::{Decision, Key};
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId, Principal, PrincipalHeaders, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::refusal::Refusal;

/// Keys retired in one transaction: changes wait for it, so it should take a few milliseconds.
pub(super) const KEYS_PER_ROUND: u32 = 1000;

/// The retired keys by every digest that they have or had.
#[derive(Default)]
pub(super) struct RetiredKeys(DashMap<KeyDigest, RetiredKey, FxBuildHasher>);

/// The owner of a digest that a retired key has or had.
#[derive(Clone, Copy)]
pub(super) struct RetiredKey {
    pub(super) id: KeyId,
    pub(super) user: UserId,
    pub(super) org: OrgId,
}

impl Embedded {
    /// The key that has, or had, this digest.
    pub fn key_of(&self, digest: &KeyDigest) -> Option<KeyId> {
        let retired = || self.directory.retired.find(digest).map(|key| key.id);
        self.directory.by_digest(digest).map(|record| record.id()).or_else(retired)
    }

    /// One key; a retired one is read from the file.
    pub async fn key(&self, id: KeyId) -> Option<Key> {
        match self.directory.key(id) {
            Some(record) => Some(record.view()),
            None => self.read_retired(id).await.map(|(stored, _)| stored.key),
        }
    }
}

impl RetiredKeys {
    pub(super) fn add(&self, digest: KeyDigest, key: RetiredKey) {
        self.0.insert(digest, key);
    }

    /// The retired key that has, or had, this digest.
    pub(super) fn find(&self, digest: &KeyDigest) -> Option<RetiredKey> {
        self.0.get(digest).map(|key| *key)
    }

    /// Returns true when no key was retired.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The decision about a request whose digest is not in the directory.
    pub(super) fn decide(&self, digest: &KeyDigest) -> Decision {
        match self.find(digest) {
            Some(key) => {
                Decision::Denied { refusal: Refusal::Revoked, principal: Some(key.principal()), rate_limit: None }
            }
            None => Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None },
        }
    }
}

impl RetiredKey {
    /// The principal that the audit record of a refused request names.
    fn principal(self) -> Arc<Principal> {
        let Self { id, user, org } = self;
        let headers = PrincipalHeaders::new(user, org, &[]);
        Arc::new(Principal { key_id: Some(id), user_id: user, org_id: org, method: AuthMethod::ApiKey, headers })
    }
}

/// Marks keys as retired that were revoked up to this time, [`KEYS_PER_ROUND`] at most. Returns them.
pub(super) fn retire(connection: &mut Connection, up_to: Micros, now: Micros) -> rusqlite::Result<Vec<KeyId>> {
    let transaction = connection.transaction()?;
    let mut retired = Vec::new();
    {
        let mut update = transaction.prepare_cached(
            "UPDATE keys SET retired = ?2 WHERE rowid IN
               (SELECT rowid FROM keys WHERE revoked <= ?1 AND retired IS NULL LIMIT ?3) RETURNING id",
        )?;
        let mut rows = update.query(params![integer(up_to.0), integer(now.0), KEYS_PER_ROUND])?;
        while let Some(row) = rows.next()? {
            retired.push(text(row, "id")?);
        }
    }
    transaction.commit()?;
    Ok(retired)
}

/// Reads the digests that retired keys had before their rotations.
pub(super) fn load_replaced(connection: &Connection, retired: &RetiredKeys) -> rusqlite::Result<()> {
    // A cross join has SQLite begin with the replaced digests, which are few, and not with all keys.
    let query = "
        SELECT replaced.digest AS digest, keys.id AS id, keys.user AS user, users.org AS org
          FROM replaced CROSS JOIN keys ON keys.id = replaced.key JOIN users ON users.id = keys.user
         WHERE keys.retired IS NOT NULL";
    for_each_row(connection, query, |row| {
        let key = RetiredKey { id: text(row, "id")?, user: text(row, "user")?, org: text(row, "org")? };
        retired.add(KeyDigest::from_bytes(row.get("digest")?), key);
        Ok(())
    })
}
