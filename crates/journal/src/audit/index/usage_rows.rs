//! Rows of usage: sums by the hour, and the last use and the last refusal of each key.
//!
//! A row of sums has those of all keys of one part of an organization in an hour, or of all routes: hundreds of
//! thousands of keys are some thousand rows a day, which are read fast enough to find the busiest.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::database;
use super::packed_sums::{self, Damaged, Entry, SumsBySubject};
use super::segment_usage::SegmentUsage;
use super::usage_counts::{KeyUsage, LastUseLines, LineRef, UsageCounts};
use super::usage_sums::UsageSums;
use crate::audit::format::lines_at::LinesAt;
use crate::audit::format::route_name::RouteName;
use crate::files;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Keys whose lines are copied at once: some 30 MiB. They are anywhere in the segment, which is read once for each such
/// part of its keys.
const KEYS_AT_ONCE: usize = 1 << 16;

/// Parts of the keys of an organization.
pub(crate) const PARTS: u8 = 64;
/// Number of the part with the routes.
const ROUTES: u8 = PARTS;
/// Hours of a day.
const HOURS_OF_DAY: u64 = 24;

/// Failure to add usage up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    #[error("cannot read the segment")]
    Segment(#[from] io::Error),
    #[error("cannot write the index")]
    Index(#[from] rusqlite::Error),
}

/// Adds the usage of the segment that follows what the rows hold. Damaged lines are left out, as those of
/// removed segments are.
pub(crate) fn add(database: &Connection, directory: &Path, usage: &SegmentUsage) -> Result<(), AddError> {
    let mut lines = LinesAt::new(directory.to_owned());
    for mut counts in usage.slices(KEYS_AT_ONCE) {
        counts.store_lines(|point| {
            Ok::<_, io::Error>(files::if_intact(lines.read(point).map(|line| line.map(<[u8]>::to_vec)))?.flatten())
        })?;
        add_stored(database, &counts)?;
    }
    Ok(())
}

/// Adds usage whose lines were copied.
pub(super) fn add_stored(database: &Connection, counts: &UsageCounts) -> rusqlite::Result<()> {
    add_sums(database, counts)?;
    let mut replace = database.prepare_cached(
        "INSERT OR REPLACE INTO last (org, key, refused, begun, ended, open) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut end =
        database.prepare_cached("UPDATE last SET ended = ?4, open = NULL WHERE org = ?1 AND key = ?2 AND open = ?3")?;
    // In the order of the table, whose pages are then written once.
    let mut keys: Vec<_> = counts.keys.iter().collect();
    keys.sort_unstable_by_key(|(owner, _)| **owner);
    for ((org, key), KeyUsage { last, refusal, .. }) in keys {
        let Some(key) = key else { continue };
        let (org, key) = (org.as_bytes(), key.as_str());
        if let Some((last, begun)) = last.as_ref().and_then(|last| Some((last, last.begun.stored()?))) {
            let ended = last.ended.as_ref().and_then(LineRef::stored);
            replace.execute(params![org, key, false, begun, ended, last.open.map(u128::to_be_bytes)])?;
        }
        if let Some(line) = refusal.as_ref().and_then(LineRef::stored) {
            replace.execute(params![org, key, true, line, None::<&[u8]>, None::<&[u8]>])?;
        }
    }
    // The condition on the id skips outcomes of uses that a later one has replaced.
    for late in &counts.late_outcomes {
        let (org, key) = late.owner;
        if let Some((key, line)) = key.zip(late.line.stored()) {
            end.execute(params![org.as_bytes(), key.as_str(), late.id.to_be_bytes(), line])?;
        }
    }
    Ok(())
}

/// Adds the sums of keys and routes, each part of an organization in an hour in one row.
pub(crate) fn add_sums(database: &Connection, counts: &UsageCounts) -> rusqlite::Result<()> {
    let mut rows: BTreeMap<(OrgId, u8, u64), SumsBySubject> = BTreeMap::new();
    for ((org, key), usage) in &counts.keys {
        let subject = key.map(|key| key.as_bytes().to_vec()).unwrap_or_default();
        for (hour, sums) in usage.hours.iter().filter(|(_, sums)| *sums != UsageSums::default()) {
            rows.entry((*org, part_of(*key), *hour)).or_default().insert(subject.clone(), sums.clone());
        }
    }
    for ((org, route, hour), sums) in &counts.routes {
        let subject = route.map(|route| route.as_str().into()).unwrap_or_default();
        rows.entry((*org, ROUTES, *hour)).or_default().insert(subject, sums.clone());
    }
    let sql = "SELECT org, part, hour, sums, crc FROM usage WHERE org = ?1 AND part = ?2 AND hour = ?3";
    let mut load = database.prepare_cached(sql)?;
    for ((org, part, hour), mut more) in rows {
        let place = params![org.as_bytes(), part, hour.cast_signed()];
        load.query_row(place, |row| unpack(checked(row)?.1, &mut more)).optional()?;
        store_sums(database, (org, part, hour), &more)?;
    }
    Ok(())
}

fn store_sums(
    database: &Connection,
    (org, part, hour): (OrgId, u8, u64),
    sums: &SumsBySubject,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO usage (org, part, hour, sums, crc) VALUES (?1, ?2, ?3, ?4, ?5)";
    let packed = packed_sums::pack(sums);
    let crc = checksum((org, part, hour), &packed);
    database.prepare_cached(sql)?.execute(params![org.as_bytes(), part, hour.cast_signed(), packed, crc]).map(drop)
}

/// The place of a row of sums: the organization, the part of its keys or its routes, and the hour.
type Place = (OrgId, u8, u64);

/// The place and the packed sums of a row `org, part, hour, sums, crc`, by their checksum.
fn checked<'a>(row: &'a Row<'_>) -> rusqlite::Result<(Place, &'a [u8])> {
    let place = (OrgId::from_bytes(row.get(0)?), row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned());
    let sums = row.get_ref(3)?.as_blob()?;
    if row.get::<_, u32>(4)? == checksum(place, sums) { Ok((place, sums)) } else { Err(damaged()) }
}

fn checksum((org, part, hour): Place, sums: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(org.as_bytes());
    hasher.update(&[part]);
    hasher.update(&hour.to_be_bytes());
    hasher.update(sums);
    hasher.finalize()
}

/// Compares all sums with their checksums.
///
/// # Errors
/// If one is damaged, or cannot be read.
pub(crate) fn check(database: &Connection) -> rusqlite::Result<()> {
    let mut all = database.prepare("SELECT org, part, hour, sums, crc FROM usage")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        checked(row)?;
    }
    Ok(())
}

fn unpack(packed: &[u8], to: &mut SumsBySubject) -> rusqlite::Result<()> {
    packed_sums::unpack_into(packed, to).map_err(|Damaged| damaged())
}

fn damaged() -> rusqlite::Error {
    database::damage("sums of usage in the index are damaged")
}

/// The part of a key among those of its organization: by the character after the organization's tag, which is random.
/// Sessions are in the first part.
pub(super) fn part_of(key: Option<KeyId>) -> u8 {
    key.map_or(0, |key| key.as_bytes()[3] % PARTS)
}

/// Puts the hours of each day before an hour together in its first one, and deletes what is from before `first`.
pub(crate) fn tidy(database: &Connection, first: u64, days_before: u64) -> rusqlite::Result<()> {
    database.execute("DELETE FROM usage WHERE hour < ?1", [first.cast_signed()])?;
    let day = days_before - days_before % HOURS_OF_DAY;
    let sql = "SELECT org, part, hour / 24 * 24 FROM usage WHERE hour < ?1 AND hour % 24 > 0 GROUP BY 1, 2, 3";
    let row = |row: &Row<'_>| {
        Ok((OrgId::from_bytes(row.get(0)?), row.get::<_, u8>(1)?, row.get::<_, i64>(2)?.cast_unsigned()))
    };
    let days: Vec<(OrgId, u8, u64)> =
        database.prepare(sql)?.query_map([day.cast_signed()], row)?.collect::<Result<_, _>>()?;
    for (org, part, day) in days {
        let place = params![org.as_bytes(), part, day.cast_signed()];
        let of_day = "FROM usage WHERE org = ?1 AND part = ?2 AND hour BETWEEN ?3 AND ?3 + 23";
        let mut hours = database.prepare_cached(&format!("SELECT org, part, hour, sums, crc {of_day}"))?;
        let mut sums = SumsBySubject::new();
        let mut rows = hours.query(place)?;
        while let Some(row) = rows.next()? {
            unpack(checked(row)?.1, &mut sums)?;
        }
        drop(rows);
        database.prepare_cached(&format!("DELETE {of_day}"))?.execute(place)?;
        store_sums(database, (org, part, day), &sums)?;
    }
    Ok(())
}

/// Loads the usage of some keys of an organization, with the sums from `first_hour` on.
pub(crate) fn load(
    database: &Connection,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first_hour: u64,
) -> rusqlite::Result<UsageCounts> {
    let mut counts = UsageCounts::default();
    let mut last = database.prepare("SELECT refused, begun, ended, open FROM last WHERE org = ?1 AND key = ?2")?;
    let mut parts: BTreeMap<u8, FxHashMap<KeyId, KeyUsage>> = BTreeMap::new();
    for key in keys {
        let mut usage = KeyUsage::default();
        let mut rows = last.query(params![org.as_bytes(), key.as_str()])?;
        while let Some(row) = rows.next()? {
            let lines = load_lines(row)?;
            if row.get(0)? {
                usage.refusal = Some(lines.begun);
            } else {
                usage.last = Some(lines);
            }
        }
        parts.entry(part_of(Some(*key))).or_default().insert(*key, usage);
    }
    for (part, mut keys) in parts {
        for_each_entry(database, (org, part, first_hour), |hour, entry| {
            if let Some(usage) = key_of(entry.subject).and_then(|key| keys.get_mut(&key)) {
                usage.add(hour, &entry.sums().ok_or_else(damaged)?);
            }
            Ok(())
        })?;
        let used = keys.into_iter().filter(|(_, usage)| *usage != KeyUsage::default());
        counts.keys.extend(used.map(|(key, usage)| ((org, Some(key)), usage)));
    }
    Ok(counts)
}

/// Calls `each` with the hour and each entry of a part of an organization, from an hour on.
fn for_each_entry(
    database: &Connection,
    (org, part, first_hour): (OrgId, u8, u64),
    mut each: impl FnMut(u64, &Entry<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let sql = "SELECT org, part, hour, sums, crc FROM usage WHERE org = ?1 AND part = ?2 AND hour >= ?3";
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query(params![org.as_bytes(), part, first_hour.cast_signed()])?;
    while let Some(row) = rows.next()? {
        for_each_of_row(row, |(_, _, hour), entry| each(hour, entry))?;
    }
    Ok(())
}

/// Calls `each` with the place and each entry of a row.
fn for_each_of_row(
    row: &Row<'_>,
    mut each: impl FnMut(Place, &Entry<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let (place, sums) = checked(row)?;
    let mut failed = Ok(());
    let read = packed_sums::for_each(sums, |entry| {
        if failed.is_ok() {
            failed = each(place, &entry);
        }
    });
    read.map_err(|Damaged| damaged()).and(failed)
}

/// The subjects of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subjects {
    /// Keys, and sessions.
    Keys,
    /// Listed routes, and requests of none.
    Routes,
}

/// A subject of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumsOf {
    /// A key; sessions without one.
    Key(Option<KeyId>),
    /// A listed route, or none.
    Route(Option<RouteName>),
}

/// Calls `each` with all sums of keys, or of routes, of one organization or all in some hours, until it fails.
pub(crate) fn for_each_subject(
    database: &Connection,
    (org, of): (Option<OrgId>, Subjects),
    hours: Range<u64>,
    mut each: impl FnMut((OrgId, u64), SumsOf, &UsageSums) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let parts = if of == Subjects::Keys { "part < ?1" } else { "part = ?1" };
    let only = if org.is_some() { "org = ?4" } else { "?4 IS NULL" };
    let sql =
        format!("SELECT org, part, hour, sums, crc FROM usage WHERE {parts} AND hour >= ?2 AND hour < ?3 AND {only}");
    let mut statement = database.prepare(&sql)?;
    let [from, before] = [hours.start, hours.end].map(|hour| i64::try_from(hour).unwrap_or(i64::MAX));
    let mut rows = statement.query(params![ROUTES, from, before, org.as_ref().map(OrgId::as_bytes)])?;
    while let Some(row) = rows.next()? {
        for_each_of_row(row, |(org, _, hour), entry| {
            let subject = match of {
                Subjects::Keys => SumsOf::Key(key_of(entry.subject)),
                Subjects::Routes => SumsOf::Route(route_of(entry.subject)?),
            };
            each((org, hour), subject, &entry.sums().ok_or_else(damaged)?)
        })?;
    }
    Ok(())
}

fn route_of(subject: &[u8]) -> rusqlite::Result<Option<RouteName>> {
    let name = str::from_utf8(subject).map_err(|_| damaged())?;
    Ok(Some(name).filter(|name| !name.is_empty()).and_then(RouteName::of_action))
}

/// Calls `each` with the requests and refusals of the keys of one part, of each hour: of the bytes of a key's id, or of
/// none for sessions. There may be millions.
pub(crate) fn for_each_key(
    database: &Connection,
    (org, part, first_hour): (OrgId, u8, u64),
    mut each: impl FnMut(&[u8], [u64; 2]),
) -> rusqlite::Result<()> {
    for_each_entry(database, (org, part, first_hour), |_, entry| {
        each(entry.subject, [entry.requests, entry.refusals]);
        Ok(())
    })
}

/// Calls `each` with the sums of the routes of an organization, by hour.
pub(crate) fn for_each_route(
    database: &Connection,
    org: OrgId,
    first_hour: u64,
    mut each: impl FnMut(Option<RouteName>, u64, &UsageSums),
) -> rusqlite::Result<()> {
    for_each_entry(database, (org, ROUTES, first_hour), |hour, entry| {
        each(route_of(entry.subject)?, hour, &entry.sums().ok_or_else(damaged)?);
        Ok(())
    })
}

pub(super) fn key_of(subject: &[u8]) -> Option<KeyId> {
    std::str::from_utf8(subject).ok()?.parse().ok()
}

fn load_lines(row: &Row<'_>) -> rusqlite::Result<LastUseLines> {
    let ended: Option<Vec<u8>> = row.get(2)?;
    let open: Option<[u8; 16]> = row.get(3)?;
    Ok(LastUseLines {
        begun: LineRef::Stored(row.get(1)?),
        ended: ended.map(LineRef::Stored),
        open: open.map(u128::from_be_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_sums_are_an_error_and_no_other_sums() {
        let directory = tempfile::tempdir().unwrap();
        let database = database::create(&directory.path().join(database::FILE)).unwrap();
        let (org, mut counts, mut sums) = (OrgId::from_bytes([7; 16]), UsageCounts::default(), UsageSums::default());
        sums.begin(5, 5);
        counts.routes.insert((org, None, 100), sums);
        add_stored(&database, &counts).unwrap();
        let read = || {
            let mut found = 0;
            for_each_route(&database, org, 0, |_, _, sums| found += sums.requests).map(|()| found)
        };
        check(&database).unwrap();
        assert_eq!(read().unwrap(), 5);
        let whole: Vec<u8> = database.query_row("SELECT sums FROM usage", [], |row| row.get(0)).unwrap();
        for bit in 0..8 * whole.len() {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            database.execute("UPDATE usage SET sums = ?1", [changed]).unwrap();
            assert!(read().is_err() && check(&database).is_err(), "bit {bit}");
        }
        database.execute("UPDATE usage SET sums = ?1, hour = 101", [whole]).unwrap();
        assert!(read().is_err() && check(&database).is_err(), "a sum of another hour");
    }
}
