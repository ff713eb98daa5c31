//! Tickets: in the file only, because each is written once, taken once, and must survive in between.
//!
//! - The writer removes a ticket and hands it out after the commit: it is handed out once, also after a crash.
//! - Clients that are not signed in can cause tickets, so there are never more than [`MAX_TICKETS`].

use rusqlite::{Connection, OptionalExtension as _, params};

use super::Embedded;
use super::sql::{classify_error, execute, integer};
use crate::clock::Micros;
use crate::session::TokenDigest;
use crate::state::ChangeError;

/// Tickets at a time; beyond it, those that expire first are removed. Enough for all sign-ins within minutes, and little
/// enough to bound what clients that never finish a sign-in can have written.
const MAX_TICKETS: u32 = 10_000;

impl Embedded {
    /// Takes a ticket. See [`crate::state::State::take_ticket`].
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`] when it could not be removed from the file, and so is not handed out;
    /// [`ChangeError::Closed`].
    pub async fn take_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        self.writer.take_ticket(*digest, now).await
    }
}

/// Writes a ticket, and removes those beyond [`MAX_TICKETS`].
pub(super) fn put(sql: &Connection, digest: &TokenDigest, content: &[u8], expires: Micros) -> Result<(), ChangeError> {
    let row = params![digest.as_bytes(), content, integer(expires.0)];
    execute(sql, "INSERT OR REPLACE INTO tickets (digest, content, expires) VALUES (?1, ?2, ?3)", row)?;
    let surplus = "DELETE FROM tickets WHERE digest IN (SELECT digest FROM tickets ORDER BY expires
                   LIMIT max((SELECT count(*) FROM tickets) - ?1, 0))";
    execute(sql, surplus, [MAX_TICKETS]).map(drop)
}

/// Removes a ticket and returns its content, unless it has expired.
pub(super) fn take(sql: &Connection, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
    let remove = "DELETE FROM tickets WHERE digest = ?1 RETURNING content, expires > ?2";
    let mut remove = sql.prepare_cached(remove).map_err(classify_error)?;
    let taken = remove.query_row(params![digest.as_bytes(), integer(now.0)], |row| Ok((row.get(0)?, row.get(1)?)));
    let taken: Option<(Vec<u8>, bool)> = taken.optional().map_err(classify_error)?;
    Ok(taken.and_then(|(content, valid)| valid.then_some(content)))
}

/// Removes expired tickets.
pub(super) fn remove_expired(sql: &Connection, now: Micros) -> rusqlite::Result<()> {
    sql.execute("DELETE FROM tickets WHERE expires <= ?1", [integer(now.0)]).map(drop)
}
