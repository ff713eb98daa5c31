//! Rows of key usage: counts by the hour, and the last use and the last refusal of each key.

use rusqlite::{Connection, Error, OptionalExtension as _, Row, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::{IndexedUse, KeyOwner};
use super::usage_counts::{HourCounts, LastUseLines, UsageCounts};
use crate::identity::OrgId;
use crate::key::KeyId;

/// Adds the usage of the stretch of the journal that follows what the rows hold.
pub(crate) fn add(database: &Connection, counts: &UsageCounts) -> rusqlite::Result<()> {
    let mut count = database.prepare_cached(
        "INSERT INTO hour (org, key, hour, requests, refusals) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
         SET requests = requests + excluded.requests, refusals = refusals + excluded.refusals",
    )?;
    for (((org, key), hour), HourCounts { requests, refusals }) in &counts.hours {
        let [hour, requests, refusals] = [*hour, *requests, *refusals].map(u64::cast_signed);
        count.execute(params![org.as_bytes(), key.as_str(), hour, requests, refusals])?;
    }
    let mut used = database
        .prepare_cached("INSERT OR REPLACE INTO last (org, key, use, begun, ended) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for ((org, key), last) in &counts.last_uses {
        used.execute(params![org.as_bytes(), key.as_str(), last.id.to_be_bytes(), last.begun, last.ended])?;
    }
    let mut refused = database.prepare_cached("INSERT OR REPLACE INTO refusal (org, key, line) VALUES (?1, ?2, ?3)")?;
    for ((org, key), line) in &counts.last_refusals {
        refused.execute(params![org.as_bytes(), key.as_str(), line])?;
    }
    // The condition on `use` skips outcomes of uses that a later one has replaced.
    let mut ended = database.prepare_cached("UPDATE last SET ended = ?1 WHERE org = ?2 AND key = ?3 AND use = ?4")?;
    for ((org, key), id, line) in &counts.late_outcomes {
        ended.execute(params![line, org.as_bytes(), key.as_str(), id.to_be_bytes()])?;
    }
    Ok(())
}

/// Deletes the counts of the hours before one.
pub(crate) fn delete_hours_before(database: &Connection, hour: u64) -> rusqlite::Result<()> {
    database.execute("DELETE FROM hour WHERE hour < ?1", [hour.cast_signed()]).map(drop)
}

/// Loads the last uses that have not ended.
pub(crate) fn load_open(database: &Connection) -> rusqlite::Result<FxHashMap<u128, KeyOwner>> {
    let mut statement = database.prepare("SELECT begun FROM last WHERE ended IS NULL")?;
    let mut rows = statement.query([])?;
    let mut open = FxHashMap::default();
    while let Some(row) = rows.next()? {
        let begun = parse_stored(row.get_ref(0)?.as_blob()?)?;
        if begun.outcome.is_none() {
            open.extend(begun.key_owner().map(|owner| (begun.id.as_u128(), owner)));
        }
    }
    Ok(open)
}

/// Loads the usage of some keys of an organization, with the counts from `first_hour` on. Each row is found by the
/// primary key of its table.
pub(crate) fn load(
    database: &Connection,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first_hour: u64,
) -> rusqlite::Result<UsageCounts> {
    let mut counts = UsageCounts::new(first_hour, FxHashMap::default());
    let mut hours =
        database.prepare("SELECT hour, requests, refusals FROM hour WHERE org = ?1 AND key = ?2 AND hour >= ?3")?;
    let mut last = database.prepare("SELECT begun, ended FROM last WHERE org = ?1 AND key = ?2")?;
    let mut refusal = database.prepare("SELECT line FROM refusal WHERE org = ?1 AND key = ?2")?;
    for key in keys {
        let mut rows = hours.query(params![org.as_bytes(), key.as_str(), first_hour.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let hour = HourCounts { requests: number(1)?, refusals: number(2)? };
            counts.hours.insert(((org, *key), number(0)?), hour);
        }
        let lines = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        if let Some((begun, ended)) = last.query_row(params![org.as_bytes(), key.as_str()], lines).optional()? {
            insert_last_use(&mut counts, (org, *key), begun, ended)?;
        }
        let line = refusal.query_row(params![org.as_bytes(), key.as_str()], |row| row.get(0)).optional()?;
        counts.last_refusals.extend(line.map(|line: Vec<u8>| ((org, *key), line)));
    }
    Ok(counts)
}

/// Inserts a stored last use. One that has not ended may end in the lines that are counted next, so it counts as open.
fn insert_last_use(
    counts: &mut UsageCounts,
    owner: KeyOwner,
    begun: Vec<u8>,
    ended: Option<Vec<u8>>,
) -> rusqlite::Result<()> {
    let stored = parse_stored(&begun)?;
    let id = stored.id.as_u128();
    if stored.outcome.is_none() && ended.is_none() {
        counts.open_uses.insert(id, owner);
    }
    counts.last_uses.insert(owner, LastUseLines { id, begun, ended });
    Ok(())
}

/// Parses a stored line. It was good when it was stored, so a failure means that the index is damaged.
fn parse_stored(line: &[u8]) -> rusqlite::Result<IndexedUse> {
    IndexedUse::from_line(line).ok_or(Error::InvalidQuery)
}
