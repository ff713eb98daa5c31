//! Queries of readers to the index.

use std::ops::Range;
use std::path::Path;

use rusqlite::Connection;
use rustc_hash::FxHashSet;

use super::live_index::LiveIndex;
use super::segment_parts::SegmentParts;
use super::usage_counts::UsageCounts;
pub(crate) use super::usage_rows::{Subjects, SumsOf};
use super::usage_sums::UsageSums;
use super::{database, usage_rows};
use crate::audit::filter::Filter;
use crate::audit::format::route_name::RouteName;
use crate::audit::format::segment::{self, Block, Point, Segment};
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Blocks of a segment, and the offset up to which they are all that may hold records for a filter.
type Candidates = (Vec<Block>, u64);

/// Finds the blocks that may hold records for a filter, oldest first: those that the index of each segment names, and
/// everything that is not indexed.
pub(crate) fn candidate_blocks(
    directory: &Path,
    live: Option<&LiveIndex>,
    segments: &[Segment],
    filter: &Filter,
) -> Vec<Block> {
    // Asked before the database: a segment leaves the memory only when it is there.
    let mut in_memory = live.map(|live| live.candidates(filter)).unwrap_or_default();
    let stored = stored_candidates(directory, segments, filter, live.is_some());
    let mut blocks = Vec::new();
    for (segment, stored) in segments.iter().zip(stored) {
        let indexed = in_memory
            .remove(&segment.number)
            // Lines may have been written since the segments were listed.
            .map(|(blocks, end)| (blocks, end.min(segment.length)))
            .or(stored)
            // An index that reaches further belongs to another journal.
            .filter(|(_, end)| *end <= segment.length);
        let (candidates, end) = indexed.unwrap_or_default();
        blocks.extend(candidates);
        blocks.extend(segment::blocks(segment.number, end, segment.length));
    }
    blocks
}

/// The candidates of each segment by the database; `None` where nothing is stored that can be used. The process that
/// writes the journal finds damage by itself, and mends it.
fn stored_candidates(
    directory: &Path,
    segments: &[Segment],
    filter: &Filter,
    is_writer: bool,
) -> Vec<Option<Candidates>> {
    let report = |error: &rusqlite::Error, segment: u64| {
        if is_writer || !database::is_damage(error) {
            tracing::debug!(%error, segment, "the index of the audit journal cannot be read; reading segments");
        } else {
            tracing::warn!(%error, segment, "the index of the audit journal cannot be read; reading segments");
        }
    };
    let none = || vec![None; segments.len()];
    let read = |connection: Option<Connection>| {
        let Some(mut connection) = connection else { return Ok(none()) };
        // One transaction, so that the rows of a segment belong together.
        let transaction = connection.transaction()?;
        let of_segment = |segment: &Segment| {
            let parts = SegmentParts::load(&transaction, segment.number)?;
            let fitting = parts.filter(|parts| parts.length == segment.length);
            fitting.map(|parts| Ok((parts.candidates(&transaction, filter)?, segment.length))).transpose()
        };
        let found = segments.iter().map(|segment| {
            of_segment(segment).unwrap_or_else(|error| {
                report(&error, segment.number);
                None
            })
        });
        Ok(found.collect())
    };
    database::open_for_reading(directory).and_then(read).unwrap_or_else(|error| {
        report(&error, 0);
        none()
    })
}

/// Loads the stored usage of some keys of an organization, with the counts from `first_hour` on, and the point up to
/// which it is counted. `None` when nothing is stored.
///
/// # Errors
/// If there is no index, or it is damaged; the caller then counts from the beginning.
pub(crate) fn load_usage(
    directory: &Path,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first_hour: u64,
) -> rusqlite::Result<Option<(UsageCounts, Point)>> {
    let Some(mut connection) = database::open_for_reading(directory)? else { return Ok(None) };
    // One transaction, so that rows and covered point belong together.
    let transaction = connection.transaction()?;
    let Some(point) = database::load_covered(&transaction)? else { return Ok(None) };
    Ok(Some((usage_rows::load(&transaction, org, keys, first_hour)?, point)))
}

/// The stored usage, and the point up to which it is: one transaction, so that both belong together.
pub(crate) struct StoredUsage {
    database: Option<Connection>,
    pub(crate) covered: Point,
    /// The time from which on all uses are counted.
    pub(crate) since: Micros,
    /// Number of damaged lines that are not counted.
    pub(crate) damaged: u64,
}

/// Opens the stored usage. Nothing is stored before the first segment is closed.
///
/// # Errors
/// If there is no index, or it is damaged.
pub(crate) fn stored_usage(directory: &Path) -> rusqlite::Result<StoredUsage> {
    let none = StoredUsage { database: None, covered: Point::START, since: Micros(0), damaged: 0 };
    let Some(database) = database::open_for_reading(directory)? else { return Ok(none) };
    database.execute_batch("BEGIN")?;
    let Some(covered) = database::load_covered(&database)? else { return Ok(none) };
    let (since, damaged) = database::load_completeness(&database)?;
    Ok(StoredUsage { database: Some(database), covered, since, damaged })
}

impl StoredUsage {
    /// The usage in a database that is open for reading, in a transaction.
    pub(crate) fn new(database: Connection, since: Micros) -> Self {
        Self { database: Some(database), covered: Point::START, since, damaged: 0 }
    }

    /// The parts of the keys of an organization.
    pub(crate) fn parts() -> Range<u8> {
        0..usage_rows::PARTS
    }

    /// The part of a key.
    pub(crate) fn part_of(key: Option<KeyId>) -> u8 {
        usage_rows::part_of(key)
    }

    /// The usage of some keys of an organization, with the sums from an hour on.
    pub(crate) fn load(&self, org: OrgId, keys: &FxHashSet<KeyId>, first_hour: u64) -> rusqlite::Result<UsageCounts> {
        let Some(database) = &self.database else { return Ok(UsageCounts::default()) };
        usage_rows::load(database, org, keys, first_hour)
    }

    /// Calls `each` with the sums of the routes of an organization, by hour.
    pub(crate) fn for_each_route(
        &self,
        org: OrgId,
        first_hour: u64,
        each: impl FnMut(Option<RouteName>, u64, &UsageSums),
    ) -> rusqlite::Result<()> {
        self.database.as_ref().map_or(Ok(()), |database| usage_rows::for_each_route(database, org, first_hour, each))
    }

    /// Calls `each` with all sums of keys, or of routes, of one organization or all in some hours, until it fails.
    pub(crate) fn for_each_subject(
        &self,
        of: (Option<OrgId>, Subjects),
        hours: Range<u64>,
        each: impl FnMut((OrgId, u64), SumsOf, &UsageSums) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.database.as_ref().map_or(Ok(()), |database| usage_rows::for_each_subject(database, of, hours, each))
    }

    /// The key whose id has these bytes; `None` of sessions, which have no bytes.
    pub(crate) fn key_of(subject: &[u8]) -> Option<KeyId> {
        usage_rows::key_of(subject)
    }

    /// Calls `each` with the requests and refusals of the keys of one part, of each hour, by the bytes of their ids.
    pub(crate) fn for_each_key(
        &self,
        part: (OrgId, u8, u64),
        each: impl FnMut(&[u8], [u64; 2]),
    ) -> rusqlite::Result<()> {
        self.database.as_ref().map_or(Ok(()), |database| usage_rows::for_each_key(database, part, each))
    }
}

/// The length of a segment that its stored parts are of; `None` when there are none.
pub(crate) fn indexed_length(directory: &Path, segment: u64) -> Option<u64> {
    let connection = database::open_for_reading(directory).ok()??;
    Some(SegmentParts::load(&connection, segment).ok()??.length)
}
