//! Preconditions of changes, checked in the transaction of the change: entity tags (`If-Match`) and idempotency
//! records.
//!
//! - A change before it in the same transaction counts.
//! - Idempotency records have a table of their own. They are in the file only, written with the change of their
//!   request.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::sql::{classify_error, execute, integer};
use super::{Embedded, load};
use crate::change::Target;
use crate::{Change, ChangeError, ETag, IdempotencyRecord, IdempotentRequest};
use domain::clock::Micros;

/// The table, made when the file is opened. The version of the schema stays: gateways of before read the file as well,
/// and know of no records.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS idempotency (
  id BLOB PRIMARY KEY, token TEXT NOT NULL, body BLOB NOT NULL, status INTEGER NOT NULL, resource TEXT NOT NULL,
  expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_token ON idempotency (token, expires);
CREATE INDEX IF NOT EXISTS idempotency_expires ON idempotency (expires);
";
/// Expired records that one change removes: more than it adds, so that they become fewer.
const REMOVED_AT_ONCE: u32 = 20;
/// Expired records that one write-back of the sessions removes.
const REMOVED_IN_BACKGROUND: u32 = 10_000;

impl Embedded {
    /// The live record of a request. See [`crate::State::idempotency_record`].
    pub async fn idempotency_record(&self, id: &[u8; 32], now: Micros) -> Option<IdempotencyRecord> {
        let id = *id;
        self.writer.read(move |sql| find(sql, &id, now)).await.unwrap_or_else(|error| {
            // The change finds it as well.
            tracing::error!(%error, "cannot read idempotency records from the state file");
            None
        })
    }
}

/// Makes the table, if the file has none.
pub(super) fn create_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)
}

/// Checks that the record that a change changes has this tag. A record that is missing is left to the change.
///
/// # Errors
/// [`ChangeError::Stale`].
pub(super) fn check_etag(sql: &Connection, change: &Change, etag: ETag) -> Result<(), ChangeError> {
    let current = match change.target() {
        None => return Err(ChangeError::Stale),
        Some(Target::Org(org)) => load::read_org(sql, org).map(|org| org.map(|org| org.etag())),
        Some(Target::User(_, user)) => load::read_user(sql, user).map(|user| user.map(|user| user.etag())),
        Some(Target::Key(key)) => load::read_key(sql, key).map(|key| key.map(|key| key.etag())),
    };
    let current = current.map_err(classify_error)?;
    if current.is_none_or(|current| current == etag) { Ok(()) } else { Err(ChangeError::Stale) }
}

/// Writes the record of a request, before its change in the same savepoint. Beyond the bound of its caller a change
/// that withdraws something is made without one.
///
/// # Errors
/// [`ChangeError::Repeated`]; [`ChangeError::TooManyIdempotencyKeys`].
pub(super) fn write_record(sql: &Connection, request: &IdempotentRequest, withdraws: bool) -> Result<(), ChangeError> {
    let IdempotentRequest { id, caller, body, status, resource, now, expires, max_live } = request;
    if let Some(record) = find(sql, id, *now).map_err(classify_error)? {
        return Err(ChangeError::Repeated(record));
    }
    remove_expired(sql, *now, REMOVED_AT_ONCE).map_err(classify_error)?;
    if count(sql, caller, *now, *max_live)? >= *max_live {
        return if withdraws { Ok(()) } else { Err(ChangeError::TooManyIdempotencyKeys(*max_live)) };
    }
    let expires = now.0.saturating_add(IdempotentRequest::MAX_LIFETIME_US).min(expires.0);
    // Replaced where it has expired and is not removed yet.
    let insert = "INSERT OR REPLACE INTO idempotency (id, token, body, status, resource, expires)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    execute(sql, insert, params![id, caller, body, status, resource, integer(expires)]).map(drop)
}

fn find(sql: &Connection, id: &[u8; 32], now: Micros) -> rusqlite::Result<Option<IdempotencyRecord>> {
    let query = "SELECT body, status, resource FROM idempotency WHERE id = ?1 AND expires > ?2";
    let mut query = sql.prepare_cached(query)?;
    let read = query.query_row(params![id, integer(now.0)], |row| {
        Ok(IdempotencyRecord { body: row.get(0)?, status: row.get(1)?, resource: row.get(2)? })
    });
    read.optional()
}

/// Number of live records of a caller, up to `most`.
fn count(sql: &Connection, caller: &str, now: Micros, most: u32) -> Result<u32, ChangeError> {
    let query = "SELECT count(*) FROM (SELECT 1 FROM idempotency WHERE token = ?1 AND expires > ?2 LIMIT ?3)";
    let mut query = sql.prepare_cached(query).map_err(classify_error)?;
    query.query_row(params![caller, integer(now.0), most], |row| row.get(0)).map_err(classify_error)
}

/// Removes expired records, in bounded work.
pub(super) fn remove_expired_in_background(sql: &Connection, now: Micros) -> rusqlite::Result<()> {
    remove_expired(sql, now, REMOVED_IN_BACKGROUND)
}

fn remove_expired(sql: &Connection, now: Micros, most: u32) -> rusqlite::Result<()> {
    let remove = "DELETE FROM idempotency WHERE id IN
                  (SELECT id FROM idempotency WHERE expires <= ?1 ORDER BY expires LIMIT ?2)";
    sql.prepare_cached(remove)?.execute(params![integer(now.0), most]).map(drop)
}
