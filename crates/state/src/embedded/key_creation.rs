//! Bounds of the keys that people create, checked in the transaction that creates or rotates one.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::sql::{classify_error, execute, integer, micros};
use crate::bucket::Bucket;
use crate::{Bounds, Change, ChangeError, CreationBucket};
use domain::clock::Micros;
use domain::identity::UserId;
use domain::quota::Quota;

/// Checks a change that a person asked for and that is written already: the caller rolls it back after an error.
pub(super) fn check(sql: &Connection, person: UserId, change: &Change, bounds: &Bounds) -> Result<(), ChangeError> {
    match change.as_made() {
        Change::CreateKey { key, .. } => {
            check_count(sql, key.user, bounds.keys_per_user)?;
            draw(sql, person, bounds.key_creation, key.created)
        }
        Change::RotateKey { at, .. } => draw(sql, person, bounds.key_creation, *at),
        _ => Ok(()),
    }
}

/// Checks the number of a user's keys that are not revoked, the new one included, those of federation rules apart.
fn check_count(sql: &Connection, user: UserId, limit: u32) -> Result<(), ChangeError> {
    let query = "SELECT count(*) FROM keys WHERE user = ?1 AND revoked IS NULL AND NOT session_quota_key
                 AND id NOT IN (SELECT key FROM federation_keys)";
    let mut query = sql.prepare_cached(query).map_err(classify_error)?;
    let count: i64 = query.query_row([user.to_string()], |row| row.get(0)).map_err(classify_error)?;
    if count > i64::from(limit) { Err(ChangeError::TooManyKeys(limit)) } else { Ok(()) }
}

/// Takes a token from a person's bucket.
fn draw(sql: &Connection, person: UserId, quota: Quota, now: Micros) -> Result<(), ChangeError> {
    let stored = read(sql, person).map_err(classify_error)?;
    let bucket = stored.map_or(Bucket::full(quota, now), |stored| stored.bucket.convert(stored.per_us, quota));
    let taken = bucket.try_take(quota, 1, now).map_err(|wait| ChangeError::KeyCreationLimited { wait_us: wait })?;
    write(sql, person, &CreationBucket { bucket: taken, per_us: quota.per_micros() })
}

/// The bucket of a person; none before the person has created a key.
pub(super) fn read(sql: &Connection, person: UserId) -> rusqlite::Result<Option<CreationBucket>> {
    let mut query = sql.prepare_cached("SELECT level, per, at FROM key_creation WHERE user = ?1")?;
    let read = query.query_row([person.to_string()], |row| {
        let bucket = Bucket { level: row.get("level")?, at: micros(row.get("at")?) };
        Ok(CreationBucket { bucket, per_us: micros(row.get("per")?).0 })
    });
    read.optional()
}

/// Sets a person's bucket.
pub(super) fn write(sql: &Connection, person: UserId, creation: &CreationBucket) -> Result<(), ChangeError> {
    let CreationBucket { bucket, per_us } = creation;
    let write = "INSERT OR REPLACE INTO key_creation (user, level, per, at) VALUES (?1, ?2, ?3, ?4)";
    let per = integer(*per_us);
    let at = integer(bucket.at.0);
    execute(sql, write, params![person.to_string(), bucket.level, per, at]).map(drop)
}
