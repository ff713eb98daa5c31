//! Sessions in the file.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::changes::{classified, execute, exists};
use super::sessions::{Aged, Sessions};
use super::store::{each, integer, text, time, unreadable};
use super::tickets;
use crate::clock::Micros;
use crate::identity::{OrgId, SessionId};
use crate::session::TokenDigest;
use crate::state::{ChangeError, Session};

pub(super) fn create(sql: &Connection, session: &Session, digest: &TokenDigest) -> Result<(), ChangeError> {
    if exists(sql, "SELECT 1 FROM sessions WHERE digest = ?1", [digest.as_bytes()])? {
        return Err(ChangeError::Taken("digest"));
    }
    let record = serde_json::to_string(session).expect("a session is text, numbers and lists of them");
    let (seen, expires) = (integer(session.seen.0), integer(session.expires.0));
    execute(
        sql,
        "INSERT INTO sessions (id, digest, record, chosen, seen, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![session.id.to_string(), digest.as_bytes(), record, session.chosen.to_string(), seen, expires],
    )
    .map(drop)
}

pub(super) fn choose(sql: &Connection, id: SessionId, org: OrgId) -> Result<(), ChangeError> {
    let mut query = sql.prepare_cached("SELECT * FROM sessions WHERE id = ?1").map_err(classified)?;
    let found = query.query_row([id.to_string()], session).optional().map_err(classified)?;
    let session = found.ok_or(ChangeError::NoSession(id))?;
    if !session.memberships.iter().any(|membership| membership.org == org) {
        return Err(ChangeError::NoOrg(org));
    }
    let update = "UPDATE sessions SET chosen = ?2 WHERE id = ?1";
    execute(sql, update, [id.to_string(), org.to_string()]).map(drop)
}

pub(super) fn end(sql: &Connection, id: SessionId) -> Result<(), ChangeError> {
    execute(sql, "DELETE FROM sessions WHERE id = ?1", [id.to_string()]).map(drop)
}

/// Reads all of them.
pub(super) fn load(connection: &Connection, sessions: &Sessions) -> rusqlite::Result<()> {
    each(connection, "SELECT * FROM sessions ORDER BY rowid", |row| {
        sessions.add(session(row)?, TokenDigest::from_bytes(row.get("digest")?));
        Ok(())
    })
}

/// Writes what time has changed about sessions, and removes tickets that have expired; all of it or none.
pub(super) fn write_back(connection: &mut Connection, aged: &Aged, now: Micros) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    write_aged(&transaction, aged)?;
    tickets::sweep(&transaction, now)?;
    transaction.commit()
}

fn write_aged(transaction: &Transaction<'_>, aged: &Aged) -> rusqlite::Result<()> {
    let mut update = transaction.prepare_cached("UPDATE sessions SET seen = ?2 WHERE digest = ?1")?;
    for (digest, seen) in &aged.seen {
        update.execute(params![digest.as_bytes(), integer(seen.0)])?;
    }
    let mut remove = transaction.prepare_cached("DELETE FROM sessions WHERE digest = ?1")?;
    for digest in &aged.over {
        remove.execute([digest.as_bytes()])?;
    }
    Ok(())
}

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    let record: String = row.get("record")?;
    let session: Session = serde_json::from_str(&record).map_err(|error| unreadable(row, "record", error))?;
    let seen = time(row, "seen")?.unwrap_or_default();
    Ok(Session { chosen: text(row, "chosen")?, seen, ..session })
}
