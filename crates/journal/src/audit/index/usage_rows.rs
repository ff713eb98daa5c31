//! Rows of key usage: counts by the hour, and the last use and the last refusal of each key.

use std::io;
use std::path::Path;

use rusqlite::{Connection, Row, params};
use rustc_hash::FxHashSet;

use super::segment_usage::SegmentUsage;
use super::usage_counts::{HourCounts, KeyUsage, LastUseLines, LineRef, UsageCounts};
use crate::audit::format::lines_at::LinesAt;
use crate::files;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Keys whose lines are copied at once: some 30 MiB. They are anywhere in the segment, which is read once for each such
/// part of its keys.
const KEYS_AT_ONCE: usize = 1 << 16;

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
    let mut count = database.prepare_cached(
        "INSERT INTO usage (org, key, hour, requests, refusals) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
         SET requests = requests + excluded.requests, refusals = refusals + excluded.refusals",
    )?;
    let mut replace = database.prepare_cached(
        "INSERT OR REPLACE INTO last (org, key, refused, begun, ended, open) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut end =
        database.prepare_cached("UPDATE last SET ended = ?4, open = NULL WHERE org = ?1 AND key = ?2 AND open = ?3")?;
    // In the order of the tables, whose pages are then written once.
    let mut keys: Vec<_> = counts.keys.iter().collect();
    keys.sort_unstable_by_key(|(owner, _)| **owner);
    for ((org, key), KeyUsage { hours, last, refusal }) in keys {
        let (org, key) = (org.as_bytes(), key.as_str());
        for (hour, HourCounts { requests, refusals }) in hours {
            let [hour, requests, refusals] = [*hour, *requests, *refusals].map(u64::cast_signed);
            count.execute(params![org, key, hour, requests, refusals])?;
        }
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
        if let Some(line) = late.line.stored() {
            end.execute(params![org.as_bytes(), key.as_str(), late.id.to_be_bytes(), line])?;
        }
    }
    Ok(())
}

/// Deletes the counts of the hours before one.
pub(crate) fn delete_hours_before(database: &Connection, hour: u64) -> rusqlite::Result<()> {
    database.execute("DELETE FROM usage WHERE hour < ?1", [hour.cast_signed()]).map(drop)
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
        database.prepare("SELECT hour, requests, refusals FROM usage WHERE org = ?1 AND key = ?2 AND hour >= ?3")?;
    let mut last = database.prepare("SELECT refused, begun, ended, open FROM last WHERE org = ?1 AND key = ?2")?;
    for key in keys {
        let mut usage = KeyUsage::default();
        let mut rows = hours.query(params![org.as_bytes(), key.as_str(), first_hour.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            usage.hours.push((number(0)?, HourCounts { requests: number(1)?, refusals: number(2)? }));
        }
        let mut rows = last.query(params![org.as_bytes(), key.as_str()])?;
        while let Some(row) = rows.next()? {
            let lines = load_lines(row)?;
            if row.get(0)? {
                usage.refusal = Some(lines.begun);
            } else {
                usage.last = Some(lines);
            }
        }
        if usage != KeyUsage::default() {
            counts.keys.insert((org, *key), usage);
        }
    }
    Ok(counts)
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
