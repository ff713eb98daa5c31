//! The rows of what keys did: counts by the hour, and the last use of each.

use rusqlite::{Connection, Error, OptionalExtension as _, Row, params};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::audit::format::event::Glance;
use crate::audit::index::usage_counts::{Counts, Last, Tally, Whose};
use crate::identity::OrgId;
use crate::key::KeyId;

/// Adds what a stretch of the journal has, which follows on what the rows have.
pub(crate) fn add(database: &Connection, tally: &Tally) -> rusqlite::Result<()> {
    let mut count = database.prepare_cached(
        "INSERT INTO hour (org, key, hour, requests, refusals) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
         SET requests = requests + excluded.requests, refusals = refusals + excluded.refusals",
    )?;
    for (((org, key), hour), Counts { requests, refusals }) in &tally.hours {
        let [hour, requests, refusals] = [*hour, *requests, *refusals].map(u64::cast_signed);
        count.execute(params![org.as_bytes(), key.as_str(), hour, requests, refusals])?;
    }
    let mut used = database
        .prepare_cached("INSERT OR REPLACE INTO last (org, key, use, begun, ended) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for ((org, key), last) in &tally.last {
        used.execute(params![org.as_bytes(), key.as_str(), last.id.to_be_bytes(), last.begun, last.ended])?;
    }
    let mut ended = database.prepare_cached("UPDATE last SET ended = ?1 WHERE org = ?2 AND key = ?3 AND use = ?4")?;
    for ((org, key), id, line) in &tally.ended {
        ended.execute(params![line, org.as_bytes(), key.as_str(), id.to_be_bytes()])?;
    }
    Ok(())
}

/// Removes the hours before one.
pub(crate) fn forget_before(database: &Connection, hour: u64) -> rusqlite::Result<()> {
    database.execute("DELETE FROM hour WHERE hour < ?1", [hour.cast_signed()]).map(drop)
}

/// The last uses that have not ended.
pub(crate) fn open(database: &Connection) -> rusqlite::Result<FxHashMap<u128, Whose>> {
    let mut statement = database.prepare("SELECT begun FROM last WHERE ended IS NULL")?;
    let mut rows = statement.query([])?;
    let mut open = FxHashMap::default();
    while let Some(row) = rows.next()? {
        let begun = glance(row.get_ref(0)?.as_blob()?)?;
        if begun.outcome.is_none() {
            open.extend(begun.key().map(|whose| (begun.id.as_u128(), whose)));
        }
    }
    Ok(open)
}

/// What the rows have of these keys of an organization, from an hour on. Each is found by the tables' primary keys.
pub(crate) fn of(database: &Connection, org: OrgId, keys: &FxHashSet<KeyId>, first: u64) -> rusqlite::Result<Tally> {
    let mut tally = Tally::new(first, FxHashMap::default());
    let mut hours =
        database.prepare("SELECT hour, requests, refusals FROM hour WHERE org = ?1 AND key = ?2 AND hour >= ?3")?;
    let mut last = database.prepare("SELECT begun, ended FROM last WHERE org = ?1 AND key = ?2")?;
    for key in keys {
        let mut rows = hours.query(params![org.as_bytes(), key.as_str(), first.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let counts = Counts { requests: number(1)?, refusals: number(2)? };
            tally.hours.insert(((org, *key), number(0)?), counts);
        }
        let used = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        if let Some((begun, ended)) = last.query_row(params![org.as_bytes(), key.as_str()], used).optional()? {
            carry_on(&mut tally, (org, *key), begun, ended)?;
        }
    }
    Ok(tally)
}

/// Takes a stored last use into a tally; one that has not ended may end in what follows.
fn carry_on(tally: &mut Tally, whose: Whose, begun: Vec<u8>, ended: Option<Vec<u8>>) -> rusqlite::Result<()> {
    let known = glance(&begun)?;
    let id = known.id.as_u128();
    if known.outcome.is_none() && ended.is_none() {
        tally.open.insert(id, whose);
    }
    tally.last.insert(whose, Last { id, begun, ended });
    Ok(())
}

/// A line as it was stored: what does not check now is damage to the index.
fn glance(line: &[u8]) -> rusqlite::Result<Glance> {
    Glance::at(line).ok_or(Error::InvalidQuery)
}
