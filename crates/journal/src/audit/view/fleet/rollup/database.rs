//! The file of a rollup: the sums, in the tables of an index of a journal, and their reach.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::journal_moves::JournalPlace;
use crate::audit::format::segment::Point;
use crate::audit::index::database;
use crate::audit::index::usage_counts::{HOUR, first_hour_of};
use domain::clock::Micros;

/// Name of the file in the journal's directory.
pub(crate) const FILE: &str = "rollup.db";

/// - `reach`: one row; records from before `until` are added up, those of open uses in part. Hours before `merged` are
///   together in the first ones of their days. Records from before `since` were removed.
/// - `journal`: the journals, up to which place and time they had been delivered at the last refresh.
/// - `records`: the number of records that were added up of each hour in which there are any.
/// - `open`: uses that had not ended when they were added up, by what they are added to.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS reach (
        one INTEGER PRIMARY KEY CHECK (one = 1), until INTEGER NOT NULL, merged INTEGER NOT NULL,
        since INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS journal (
        journal TEXT NOT NULL, gateway TEXT NOT NULL, segment INTEGER NOT NULL, end INTEGER NOT NULL,
        complete_until INTEGER NOT NULL, PRIMARY KEY (journal, gateway)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS records (hour INTEGER PRIMARY KEY, records INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS open (
        id TEXT PRIMARY KEY, time INTEGER NOT NULL, org TEXT NOT NULL, key TEXT, route TEXT, units INTEGER NOT NULL);
";

/// The reach of a rollup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// The time before which records are added up.
    pub(super) until: Micros,
    /// The hour before which hours are together in the first ones of their days.
    pub(super) merged: u64,
    /// The time before which records were removed.
    pub(super) since: Micros,
}

/// A use that had not ended when it was added up.
#[derive(Clone, Debug)]
pub(super) struct OpenRow {
    pub(super) time: Micros,
    pub(super) org: String,
    pub(super) key: Option<String>,
    pub(super) route: Option<String>,
    pub(super) units: u64,
}

impl Reach {
    /// The hours whose sums are together with those of this one.
    pub(super) fn hours_with(&self, hour: u64) -> std::ops::Range<u64> {
        let day = first_hour_of(hour / 24);
        if hour < self.merged { day..day + 24 } else { hour..hour + 1 }
    }

    /// The hour to which the sums of a time belong.
    pub(super) fn hour_of(&self, time: Micros) -> u64 {
        self.hours_with(time.0 / HOUR).start
    }
}

/// Opens the file for writing; an unusable one is replaced.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let opened = database::connect(path).and_then(|found| Ok(database::is_current(&found)?.then_some(found)));
    let database = match opened {
        Ok(Some(found)) => found,
        Ok(None) => database::create(path)?,
        Err(error) if database::is_damage(&error) => database::create(path)?,
        Err(error) => return Err(error),
    };
    database.execute_batch(TABLES)?;
    Ok(database)
}

/// Forgets everything.
pub(super) fn clear(database: &Connection) -> rusqlite::Result<()> {
    database.execute_batch(
        "DELETE FROM usage; DELETE FROM reach; DELETE FROM journal; DELETE FROM records; DELETE FROM open;",
    )
}

/// The reach of the rollup; `None` before the first refresh.
pub(super) fn load_reach(database: &Connection) -> rusqlite::Result<Option<Reach>> {
    let reach = |row: &Row<'_>| {
        Ok(Reach { until: Micros(number(row, 0)?), merged: number(row, 1)?, since: Micros(number(row, 2)?) })
    };
    database.query_row("SELECT until, merged, since FROM reach", [], reach).optional()
}

pub(super) fn store_reach(database: &Connection, reach: Reach) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO reach (one, until, merged, since) VALUES (1, ?1, ?2, ?3)";
    let Reach { until, merged, since } = reach;
    database.execute(sql, params![signed(until.0), signed(merged), signed(since.0)]).map(drop)
}

/// The journals, as of the last refresh.
pub(super) fn load_journals(database: &Connection) -> rusqlite::Result<Vec<JournalPlace>> {
    let place = |row: &Row<'_>| {
        Ok(JournalPlace {
            journal: row.get::<_, String>(0)?.parse().unwrap_or(Uuid::nil()),
            gateway: row.get(1)?,
            position: Point { segment: number(row, 2)?, offset: number(row, 3)? },
            complete_until: Micros(number(row, 4)?),
        })
    };
    let sql = "SELECT journal, gateway, segment, end, complete_until FROM journal";
    database.prepare(sql)?.query_map([], place)?.collect()
}

pub(super) fn store_journals(database: &Connection, journals: &[JournalPlace]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO journal (journal, gateway, segment, end, complete_until) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = database.prepare(sql)?;
    journals.iter().try_for_each(|JournalPlace { journal, gateway, position, complete_until }| {
        let (segment, end) = (signed(position.segment), signed(position.offset));
        insert.execute(params![journal.to_string(), gateway, segment, end, signed(complete_until.0)]).map(drop)
    })
}

/// The number of records that were added up from an hour on, by the hour to which their sums belong.
pub(super) fn load_records(database: &Connection, reach: Reach, from: u64) -> rusqlite::Result<FxHashMap<u64, u64>> {
    let mut records = FxHashMap::default();
    let mut statement = database.prepare("SELECT hour, records FROM records WHERE hour >= ?1")?;
    let mut rows = statement.query([signed(from)])?;
    while let Some(row) = rows.next()? {
        *records.entry(reach.hours_with(number(row, 0)?).start).or_default() += number(row, 1)?;
    }
    Ok(records)
}

/// Adds records to those of their hours.
pub(super) fn add_records(database: &Connection, records: &FxHashMap<u64, u64>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO records (hour, records) VALUES (?1, ?2)
               ON CONFLICT DO UPDATE SET records = records + excluded.records";
    let mut insert = database.prepare_cached(sql)?;
    records.iter().try_for_each(|(hour, records)| insert.execute([signed(*hour), signed(*records)]).map(drop))
}

/// Forgets some hours: their sums, records and open uses.
pub(super) fn forget_hours(database: &Connection, hours: &std::ops::Range<u64>) -> rusqlite::Result<()> {
    let [from, before] = [signed(hours.start), signed(hours.end)];
    database.execute("DELETE FROM usage WHERE hour >= ?1 AND hour < ?2", [from, before])?;
    database.execute("DELETE FROM records WHERE hour >= ?1 AND hour < ?2", [from, before])?;
    let [from, before] = [hours.start, hours.end].map(|hour| signed(hour.saturating_mul(HOUR)));
    database.execute("DELETE FROM open WHERE time >= ?1 AND time < ?2", [from, before]).map(drop)
}

/// Forgets how many records there were before an hour.
pub(super) fn forget_counts(database: &Connection, before: u64) -> rusqlite::Result<()> {
    database.execute("DELETE FROM records WHERE hour < ?1", [signed(before)]).map(drop)
}

/// The uses that had not ended, by their ids.
pub(super) fn load_open(database: &Connection) -> rusqlite::Result<FxHashMap<String, OpenRow>> {
    let open = |row: &Row<'_>| {
        let (time, units) = (Micros(number(row, 1)?), number(row, 5)?);
        Ok((row.get(0)?, OpenRow { time, org: row.get(2)?, key: row.get(3)?, route: row.get(4)?, units }))
    };
    database.prepare("SELECT id, time, org, key, route, units FROM open")?.query_map([], open)?.collect()
}

pub(super) fn store_open(database: &Connection, id: &str, open: &OpenRow) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO open (id, time, org, key, route, units) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let OpenRow { time, org, key, route, units } = open;
    let row = params![id, signed(time.0), org, key, route, signed(*units)];
    database.prepare_cached(sql)?.execute(row).map(drop)
}

pub(super) fn remove_open(database: &Connection, id: &str) -> rusqlite::Result<()> {
    database.prepare_cached("DELETE FROM open WHERE id = ?1")?.execute([id]).map(drop)
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

fn signed(number: u64) -> i64 {
    number.cast_signed()
}
