//! Rows of web sessions in the state file.

use rusqlite::{Connection, Row, params};

use super::sessions::{SessionUpdates, Sessions};
use super::sql::{classify_error, execute, exists, for_each_row, integer, invalid, text, time};
use crate::{ChangeError, Session};
use domain::identity::SessionId;
use domain::session::TokenDigest;

/// Creates a session, unless its person has `limit` of them already.
pub(super) fn create(sql: &Connection, session: &Session, digest: &TokenDigest, limit: u32) -> Result<(), ChangeError> {
    if exists(sql, "SELECT 1 FROM sessions WHERE digest = ?1", [digest.as_bytes()])? {
        return Err(ChangeError::Taken("digest"));
    }
    let count = "SELECT count(*) FROM sessions WHERE person = ?1";
    let person = session.person.to_string();
    let mut count = sql.prepare_cached(count).map_err(classify_error)?;
    let count: i64 = count.query_row([&person], |row| row.get(0)).map_err(classify_error)?;
    if count >= i64::from(limit) {
        return Err(ChangeError::TooManySessions(limit));
    }
    let record = record(session);
    let seen = integer(session.seen.0);
    let expires = integer(session.expires.0);
    execute(
        sql,
        "INSERT INTO sessions (id, digest, record, chosen, seen, expires, person) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![session.id.to_string(), digest.as_bytes(), record, session.chosen.to_string(), seen, expires, person],
    )
    .map(drop)
}

pub(super) fn end(sql: &Connection, id: SessionId) -> Result<(), ChangeError> {
    execute(sql, "DELETE FROM sessions WHERE id = ?1", [id.to_string()]).map(drop)
}

/// Writes what can change of a session, but for its last use.
pub(super) fn update(sql: &Connection, session: &Session) -> Result<(), ChangeError> {
    let update = "UPDATE sessions SET record = ?2, chosen = ?3 WHERE id = ?1";
    execute(sql, update, [session.id.to_string(), record(session), session.chosen.to_string()]).map(drop)
}

/// The session with this id, live or not.
pub(super) fn find(sql: &Connection, id: SessionId) -> rusqlite::Result<Session> {
    sql.prepare_cached("SELECT * FROM sessions WHERE id = ?1")?.query_row([id.to_string()], session)
}

fn record(session: &Session) -> String {
    serde_json::to_string(session).expect("a session is text, numbers and lists of them")
}

/// Reads all sessions into memory.
pub(super) fn load(connection: &Connection, sessions: &Sessions) -> rusqlite::Result<()> {
    for_each_row(connection, "SELECT * FROM sessions ORDER BY rowid", |row| {
        sessions.add(session(row)?, TokenDigest::from_bytes(row.get("digest")?));
        Ok(())
    })
}

/// Writes back uses and expiries.
pub(super) fn write_updates(transaction: &Connection, updates: &SessionUpdates) -> rusqlite::Result<()> {
    let mut update = transaction.prepare_cached("UPDATE sessions SET seen = ?2 WHERE digest = ?1")?;
    for (digest, seen) in &updates.seen {
        update.execute(params![digest.as_bytes(), integer(seen.0)])?;
    }
    let mut remove = transaction.prepare_cached("DELETE FROM sessions WHERE digest = ?1")?;
    for digest in &updates.expired {
        remove.execute([digest.as_bytes()])?;
    }
    Ok(())
}

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    let record: String = row.get("record")?;
    let session: Session = serde_json::from_str(&record).map_err(|error| invalid(row, "record", error))?;
    let seen = time(row, "seen")?.unwrap_or_default();
    Ok(Session { chosen: text(row, "chosen")?, seen, ..session })
}
