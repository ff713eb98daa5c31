//! Tickets: in the file only, because each is written once, taken once, and must survive in between.
//!
//! - Whoever takes one has the writer remove it and gets it after the commit: nobody else ever does, also after a crash.
//! - Anybody can cause tickets, so there are never more than [`MOST`].

use rusqlite::{Connection, OptionalExtension as _, params};

use super::Embedded;
use super::changes::{classified, execute};
use super::store::integer;
use crate::clock::Micros;
use crate::session::TokenDigest;
use crate::state::ChangeError;

/// Tickets at a time; of more, those that expire first go. Enough for all who sign in within minutes, and little enough
/// to bound what somebody can have written who only begins to.
const MOST: u32 = 10_000;

impl Embedded {
    /// Takes a ticket. See [`crate::state::State::take_ticket`].
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`] when it could not be removed from the file, and is not handed out therefore;
    /// [`ChangeError::Closed`].
    pub async fn take_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        self.writer.take(*digest, now).await
    }
}

/// Writes one, and removes those that are too many.
pub(super) fn put(sql: &Connection, digest: &TokenDigest, content: &[u8], expires: Micros) -> Result<(), ChangeError> {
    let row = params![digest.as_bytes(), content, integer(expires.0)];
    execute(sql, "INSERT OR REPLACE INTO tickets (digest, content, expires) VALUES (?1, ?2, ?3)", row)?;
    let surplus = "DELETE FROM tickets WHERE digest IN (SELECT digest FROM tickets ORDER BY expires
                   LIMIT max((SELECT count(*) FROM tickets) - ?1, 0))";
    execute(sql, surplus, [MOST]).map(drop)
}

/// Removes one, and says what it was when it is not too late.
pub(super) fn take(sql: &Connection, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
    let remove = "DELETE FROM tickets WHERE digest = ?1 RETURNING content, expires > ?2";
    let mut remove = sql.prepare_cached(remove).map_err(classified)?;
    let taken = remove.query_row(params![digest.as_bytes(), integer(now.0)], |row| Ok((row.get(0)?, row.get(1)?)));
    let taken: Option<(Vec<u8>, bool)> = taken.optional().map_err(classified)?;
    Ok(taken.and_then(|(content, valid)| valid.then_some(content)))
}

/// Removes those that have expired.
pub(super) fn sweep(sql: &Connection, now: Micros) -> rusqlite::Result<()> {
    sql.execute("DELETE FROM tickets WHERE expires <= ?1", [integer(now.0)]).map(drop)
}
