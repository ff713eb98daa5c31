//! Rows of key usage: counts by the hour, and the last use and the last refusal of each key.

use rusqlite::{Connection, Error, OptionalExtension as _, Row, params};
use rustc_hash::FxHashSet;

use super::indexed_use::{IndexedUse, KeyOwner};
use super::usage_counts::{HourCounts, KeyUsage, LastUseLines, LineRef, UsageCounts};
use crate::audit::format::line;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Adds the usage of the stretch of the journal that follows what the rows hold. Lines that are no longer there are
/// left out, so `counts` must have copies of all others.
pub(crate) fn add(database: &Connection, counts: &UsageCounts) -> rusqlite::Result<()> {
    let mut count = database.prepare_cached(
        "INSERT INTO hour (org, key, hour, requests, refusals) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
         SET requests = requests + excluded.requests, refusals = refusals + excluded.refusals",
    )?;
    let mut used = database
        .prepare_cached("INSERT OR REPLACE INTO last (org, key, use, begun, ended) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut refused = database.prepare_cached("INSERT OR REPLACE INTO refusal (org, key, line) VALUES (?1, ?2, ?3)")?;
    // In the order of the tables, whose pages are then written once.
    let mut keys: Vec<_> = counts.keys.iter().collect();
    keys.sort_unstable_by_key(|(owner, _)| **owner);
    for ((org, key), usage) in keys {
        let KeyUsage { hours, last, refusal } = &**usage;
        for (hour, HourCounts { requests, refusals }) in hours {
            let [hour, requests, refusals] = [*hour, *requests, *refusals].map(u64::cast_signed);
            count.execute(params![org.as_bytes(), key.as_str(), hour, requests, refusals])?;
        }
        if let Some((last, begun)) = last.as_ref().and_then(|last| Some((last, last.begun.stored()?))) {
            let ended = last.ended.as_ref().and_then(LineRef::stored);
            let id = line::event_id(begun).map(u128::to_be_bytes);
            used.execute(params![org.as_bytes(), key.as_str(), id, begun, ended])?;
        }
        if let Some(line) = refusal.as_ref().and_then(LineRef::stored) {
            refused.execute(params![org.as_bytes(), key.as_str(), line])?;
        }
    }
    add_late_outcomes(database, counts)
}

/// Adds the outcomes of stored last uses. The condition on `use` skips outcomes of uses that a later one has replaced.
fn add_late_outcomes(database: &Connection, counts: &UsageCounts) -> rusqlite::Result<()> {
    let mut ended = database.prepare_cached("UPDATE last SET ended = ?1 WHERE org = ?2 AND key = ?3 AND use = ?4")?;
    for late in &counts.late_outcomes {
        let (org, key) = late.owner;
        if let Some(line) = late.line.stored() {
            ended.execute(params![line, org.as_bytes(), key.as_str(), late.id.to_be_bytes()])?;
        }
    }
    Ok(())
}

/// Deletes the counts of the hours before one.
pub(crate) fn delete_hours_before(database: &Connection, hour: u64) -> rusqlite::Result<()> {
    database.execute("DELETE FROM hour WHERE hour < ?1", [hour.cast_signed()]).map(drop)
}

/// Loads the usage of some keys of an organization, with the counts from `first_hour` on. Each row is found by the
/// primary key of its table.
pub(crate) fn load(
    database: &Connection,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first_hour: u64,
) -> rusqlite::Result<UsageCounts> {
    let mut counts = UsageCounts::default();
    let mut hours =
        database.prepare("SELECT hour, requests, refusals FROM hour WHERE org = ?1 AND key = ?2 AND hour >= ?3")?;
    let mut last = database.prepare("SELECT begun, ended FROM last WHERE org = ?1 AND key = ?2")?;
    let mut refusal = database.prepare("SELECT line FROM refusal WHERE org = ?1 AND key = ?2")?;
    for key in keys {
        let mut usage = KeyUsage::default();
        let mut rows = hours.query(params![org.as_bytes(), key.as_str(), first_hour.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            *usage.hour(number(0)?) = HourCounts { requests: number(1)?, refusals: number(2)? };
        }
        let lines = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        if let Some((begun, ended)) = last.query_row(params![org.as_bytes(), key.as_str()], lines).optional()? {
            usage.last = Some(load_last_use(&mut counts, (org, *key), begun, ended)?);
        }
        let line = refusal.query_row(params![org.as_bytes(), key.as_str()], |row| row.get(0)).optional()?;
        usage.refusal = line.map(LineRef::Stored);
        if usage != KeyUsage::default() {
            counts.keys.insert((org, *key), Box::new(usage));
        }
    }
    Ok(counts)
}

/// A stored last use. One that has not ended may end in the lines that are counted next, so it counts as open.
fn load_last_use(
    counts: &mut UsageCounts,
    owner: KeyOwner,
    begun: Vec<u8>,
    ended: Option<Vec<u8>>,
) -> rusqlite::Result<LastUseLines> {
    // It was good when it was stored, so a failure means that the index is damaged.
    let stored = IndexedUse::from_line(&begun).ok_or(Error::InvalidQuery)?;
    let open = (stored.outcome.is_none() && ended.is_none()).then_some(stored.id.as_u128());
    if let Some(id) = open {
        counts.open_uses.insert(id, owner);
    }
    Ok(LastUseLines { begun: LineRef::Stored(begun), ended: ended.map(LineRef::Stored), open })
}
