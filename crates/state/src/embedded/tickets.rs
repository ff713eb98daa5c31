//! Tickets: in the file only, because each is written once, taken once, and must survive in between.
//!
//! - The writer removes a ticket and hands it out after the commit: it is handed out once, also after a crash.
//! - Clients that are not signed in can cause tickets, so these are bounded: of one address, and of all together, where
//!   those of the address with the most go first. They never remove a link of the operator, or a claim of the gateway:
//!   a period has at most one of these for each budget.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::Embedded;
use super::operation::Operation;
use super::sql::{classify_error, execute, integer};
use crate::{ChangeError, TicketSource};
use domain::clock::Micros;
use domain::identity::client_prefix;
use domain::session::TokenDigest;

/// Sign-in links at a time: far more than an operator creates within their five minutes.
const MAX_LINKS: u32 = 10_000;
/// Sign-ins under way at a time. Enough for all within minutes, and little enough to bound what clients that never
/// finish one can have written.
const MAX_SIGN_INS: u32 = 10_000;
/// Sign-ins under way of one address: what the default of `limits.sign_ins` lets begin within the ten minutes of one.
const MAX_SIGN_INS_OF_ADDRESS: u32 = 1000;
/// Sign-ins that make room when there are too many: several, because finding them reads all.
const REMOVED_AT_ONCE: u32 = 100;

impl Embedded {
    /// Takes a ticket. See [`crate::State::take_ticket`].
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`] when it could not be removed from the file, and so is not handed out;
    /// [`ChangeError::Closed`].
    pub async fn take_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        self.writer.submit(Operation::TakeTicket(*digest, now)).await
    }
}

/// Writes a ticket, and removes those beyond the bounds.
pub(super) fn put(
    sql: &Connection,
    digest: &TokenDigest,
    content: &[u8],
    expires: Micros,
    source: TicketSource,
) -> Result<(), ChangeError> {
    let source = match source {
        TicketSource::Operator => None,
        TicketSource::Gateway => return claim(sql, digest, content, expires),
        TicketSource::Visitor(ip) => Some(ip.map(client_prefix).map_or_else(String::new, |prefix| prefix.to_string())),
    };
    let row = params![digest.as_bytes(), content, integer(expires.0), source];
    execute(sql, "INSERT OR REPLACE INTO tickets (digest, content, expires, source) VALUES (?1, ?2, ?3, ?4)", row)?;
    let Some(source) = source else {
        return remove_surplus(sql, "source IS NULL", None, MAX_LINKS);
    };
    remove_surplus(sql, "source = ?2", Some(&source), MAX_SIGN_INS_OF_ADDRESS)?;
    // The address with the most goes first: no visitor is driven out by one who begins many.
    let most = "source = (SELECT source FROM tickets WHERE source <> 'gateway'
                          GROUP BY source ORDER BY count(*) DESC, min(expires) LIMIT 1)";
    if count(sql, "source <> 'gateway'", None)? <= MAX_SIGN_INS {
        return Ok(());
    }
    let of_most = count(sql, most, None)?;
    remove_surplus(sql, most, None, of_most.saturating_sub(REMOVED_AT_ONCE))
}

/// Writes a ticket of the gateway, unless there is one with other content.
fn claim(sql: &Connection, digest: &TokenDigest, content: &[u8], expires: Micros) -> Result<(), ChangeError> {
    let claim = "INSERT INTO tickets (digest, content, expires, source) VALUES (?1, ?2, ?3, 'gateway')
                 ON CONFLICT (digest) DO UPDATE SET expires = excluded.expires WHERE content = excluded.content";
    let written = execute(sql, claim, params![digest.as_bytes(), content, integer(expires.0)])?;
    if written == 0 { Err(ChangeError::Taken("ticket")) } else { Ok(()) }
}

/// Number of tickets that meet a condition, in which `?2` is the source. Each statement uses both parameters, because
/// SQLite counts them.
fn count(sql: &Connection, condition: &str, source: Option<&str>) -> Result<u32, ChangeError> {
    let query = format!("SELECT count(*) + ?1 FROM tickets WHERE {condition} AND ?2 IS ?2");
    let mut query = sql.prepare_cached(&query).map_err(classify_error)?;
    query.query_row(params![0, source], |row| row.get(0)).map_err(classify_error)
}

/// Removes those tickets that expire first, of those that meet a condition, until `most` are left.
fn remove_surplus(sql: &Connection, condition: &str, source: Option<&str>, most: u32) -> Result<(), ChangeError> {
    let surplus = count(sql, condition, source)?.saturating_sub(most);
    if surplus == 0 {
        return Ok(());
    }
    let remove = format!(
        "DELETE FROM tickets WHERE digest IN
         (SELECT digest FROM tickets WHERE {condition} AND ?2 IS ?2 ORDER BY expires LIMIT ?1)"
    );
    execute(sql, &remove, params![surplus, source]).map(drop)
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
