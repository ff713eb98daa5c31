//! Keeping of the index by the maintenance thread.
//!
//! - When a segment is closed, its index goes from memory to the database, in one transaction; one that is missing is
//!   built from the segment. So is what a kill has left.
//! - The usage of a segment is added up once, in the order of the segments; the database has the point up to which it
//!   is. Its parts may be stored again.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::live_index::LiveIndex;
use super::members::{self, Members};
use super::segment_index::{self, SegmentIndex};
use super::segment_parts::{self, SegmentParts};
use super::usage_counts;
use super::usage_rows::AddError;
use super::{database, usage_rows};
use crate::audit::format::open_uses;
use crate::audit::format::segment::{self, Point, Segment};
use domain::clock::Micros;

/// Hours before the current one whose sums are kept by the hour: the 23 that readers show, and one for a reader whose
/// hour has just ended. Before, they are kept by the day.
const HOURS_KEPT: u64 = 24;
/// Time by which a segment may be created later than the first of its records began.
const CREATED_LATE: Duration = Duration::from_secs(1);
/// Days before the present one whose sums are kept at least: the 90 that readers show, and one for a reader whose day
/// has just ended. They are kept as long as the journal has lines of theirs.
const DAYS_KEPT: u64 = 91;

/// Rounds of the maintenance thread, one a second, between two checks of an index: each file is read again within
/// hours, and an idle gateway does next to nothing for it.
const ROUNDS_BETWEEN_CHECKS: u32 = 10;

/// Behind the number of any segment: the places of its parts begin with it, in an `i64`.
const LAST_SEGMENT: u64 = 1 << 30;

/// Writer of the index.
#[derive(Debug)]
pub(crate) struct Indexer {
    directory: PathBuf,
    /// Length of the parts of a segment, for segments that are indexed from their lines.
    part: u64,
    /// `None` after a failure: the next round opens it again.
    database: Option<Connection>,
    /// The point up to which usage is added up.
    covered: Point,
    /// All closed segments up to this one have an index.
    checked_to: u64,
    /// The segment whose index is checked again next, and the rounds without a check.
    next_check: (u64, u32),
    /// The first hour whose counts are kept, as of the last check of the database.
    first_hour: u64,
}

impl Indexer {
    /// Opens the index of a journal that ends at `end`, without reading the journal.
    pub(crate) fn new(directory: &Path, end: Point, segment_size: u64) -> Self {
        let mut indexer = Self {
            directory: directory.to_owned(),
            part: members::part_length(segment_size),
            database: None,
            covered: Point::START,
            checked_to: 0,
            next_check: (0, 0),
            first_hour: 0,
        };
        indexer.reopen(end).unwrap_or_else(|error| indexer.discard_after_error(&error));
        indexer
    }

    /// The index of the last segment of a journal that ends at `end`, where uses are open or not. It is what the last
    /// gateway left when it was closed, or made from the segment.
    pub(crate) fn recover(&self, end: Point, has_open_uses: bool) -> io::Result<SegmentIndex> {
        // Few are open but at a hand-over, whose uses began a moment ago.
        let open_uses =
            || if has_open_uses { segment_index::open_places(&self.directory, end) } else { Ok(FxHashMap::default()) };
        let segment = Segment { number: end.segment, length: end.offset };
        let left = if self.covered == end { self.load_members(&segment) } else { None };
        if let Some(members) = left.filter(|members| members.part == self.part) {
            let empty = SegmentIndex::new(end.segment, self.part, open_uses()?);
            return Ok(SegmentIndex { members, length: end.offset, counted_from: end.offset, ..empty });
        }
        let from = self.counted_from(end.segment);
        let built = SegmentIndex::build(&self.directory, &segment, (self.part, from), || true)?;
        built.map_or_else(|| Ok(SegmentIndex::new(end.segment, self.part, open_uses()?)), Ok)
    }

    /// Stores what is in memory for the next start, when the journal is closed: also the index of the open segment.
    pub(crate) fn leave(&mut self, live: &LiveIndex) {
        for index in live.take_all() {
            // After a segment that is not counted, nothing can be added up.
            if self.checked_to + 1 != index.segment {
                return;
            }
            let follows = index.counted_from == self.counted_from(index.segment);
            if let Err(error) = self.store(&index, follows) {
                self.passes_over(&error, index.segment);
            }
            if self.covered != index.end() {
                return;
            }
            self.checked_to = index.segment;
        }
    }

    fn reopen(&mut self, end: Point) -> rusqlite::Result<()> {
        let path = self.directory.join(database::FILE);
        let found = database::open(&path).and_then(|connection| {
            let covered = database::load_covered(&connection)?.unwrap_or(Point::START);
            if covered <= end {
                return Ok((covered, connection));
            }
            // It covers more than there is: lines were lost, or it belongs to another journal. New lines come where the
            // lost ones were, and parts of these would tell that the new ones lack some.
            segment_parts::remove(&connection, end.segment..LAST_SEGMENT)?;
            database::clear_usage(&connection)?;
            Ok((Point::START, connection))
        });
        let (covered, connection) = match found {
            Err(error) if !database::is_out_of_space(&error) => (Point::START, database::create(&path)?),
            found => found?,
        };
        if covered != self.covered {
            // All that follows is counted again.
            self.checked_to = 0;
        }
        self.covered = covered;
        self.database = Some(connection);
        Ok(())
    }

    /// Deletes the database; the next round makes it again. On a full disk it stays as it is: it is right, only late.
    fn discard_after_error(&mut self, error: &rusqlite::Error) {
        if database::is_out_of_space(error) {
            tracing::debug!(%error, path = %self.directory.display(), "no space for the index of the audit journal");
            return;
        }
        tracing::warn!(%error, path = %self.directory.display(),
            "the index of the audit journal failed; rebuilding it");
        self.database = None;
        database::delete(&self.directory.join(database::FILE));
    }

    /// True when a segment before `end` was closed since the last round, or when an index is missing.
    pub(crate) fn has_unindexed(&self, end: Point) -> bool {
        self.database.is_none() || self.checked_to + 1 < end.segment
    }

    /// Sees to it that the closed segments of a journal that ends at `end` have an index each. `proceed` is asked
    /// before each piece of work.
    pub(crate) fn index_closed(
        &mut self,
        live: &LiveIndex,
        segments: &[Segment],
        end: Point,
        proceed: impl Fn() -> bool,
    ) {
        if self.database.is_none() {
            self.reopen(end).unwrap_or_else(|error| self.discard_after_error(&error));
        }
        if self.database.is_none() {
            return;
        }
        let unchecked = self.checked_to + 1..end.segment;
        for segment in segments.iter().filter(|segment| unchecked.contains(&segment.number)) {
            let indexed = self.index_segment(live, segment, &proceed);
            if !indexed.unwrap_or_else(|error| self.passes_over(&error, segment.number)) {
                return;
            }
            self.checked_to = segment.number;
            live.forget_to(segment.number);
        }
        self.checked_to = end.segment.saturating_sub(1);
    }

    /// Sees to it that a closed segment has an index, and that its usage is counted. Returns false when there was no
    /// time for it, or no database.
    fn index_segment(
        &mut self,
        live: &LiveIndex,
        segment: &Segment,
        proceed: &impl Fn() -> bool,
    ) -> Result<bool, AddError> {
        let is_counted = self.covered >= Point { segment: segment.number, offset: segment.length };
        let from = self.counted_from(segment.number);
        let fits =
            |index: &Arc<SegmentIndex>| index.length == segment.length && (is_counted || index.counted_from == from);
        let mut index = live.closed(segment.number).filter(fits);
        if index.is_none() {
            if is_counted && self.load_members(segment).is_some() {
                return Ok(true);
            }
            index = SegmentIndex::build(&self.directory, segment, (self.part, from), proceed)?.map(Arc::new);
        }
        index.map_or(Ok(false), |index| self.store(&index, !is_counted))
    }

    /// Handles a failure to index a segment; returns whether the next one may be indexed.
    fn passes_over(&mut self, error: &AddError, segment: u64) -> bool {
        match error {
            AddError::Segment(error) => {
                tracing::debug!(%error, segment, "cannot index a closed audit segment yet");
                // A damaged segment stays without an index; readers report the damage.
                error.kind() == io::ErrorKind::InvalidData
            }
            AddError::Index(error) => {
                self.discard_after_error(error);
                false
            }
        }
    }

    /// Stores the parts of a segment and, if it follows what was counted, adds its usage up. Returns false without a
    /// database.
    fn store(&mut self, index: &SegmentIndex, follows: bool) -> Result<bool, AddError> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let end = index.end();
        // A crash in between leaves all rows and the covered point as they were.
        let transaction = database.transaction()?;
        segment_parts::store(&transaction, index)?;
        let adds_up = follows && self.covered < end;
        if adds_up {
            usage_rows::add(&transaction, &self.directory, &index.usage)?;
            let since = first_time(&self.directory, index.segment)?;
            database::store_covered(&transaction, end, since, index.damaged)?;
            // The segments between were lost, or cannot be read.
            if index.segment > self.covered.segment + 1 {
                database::advance_since(&transaction, since)?;
            }
        }
        transaction.commit()?;
        if adds_up {
            self.covered = end;
        }
        database::shrink_log(database);
        Ok(true)
    }

    /// The stored parts of a segment of this length; `None` when there are none that are whole.
    fn load_members(&self, segment: &Segment) -> Option<Members> {
        let load = |database| {
            let parts = SegmentParts::load(database, segment.number)?;
            parts.filter(|parts| parts.length == segment.length).map(|parts| parts.members(database)).transpose()
        };
        load(self.database.as_ref()?).unwrap_or_else(|error| {
            tracing::error!(%error, segment = segment.number, path = %self.directory.display(),
                "the index of an audit segment cannot be used, and is made again from the segment; check the disk");
            None
        })
    }

    /// The offset in a segment from which its usage is to be counted.
    fn counted_from(&self, segment: u64) -> u64 {
        if segment == self.covered.segment { self.covered.offset } else { 0 }
    }

    /// Checks the index of one closed segment again, now and then. One that was damaged or removed meanwhile is made
    /// again by the next round, and so is a database whose file was deleted.
    pub(crate) fn recheck(&mut self) {
        if !self.directory.join(database::FILE).exists() {
            self.close_database();
            return;
        }
        let (segment, rounds) = self.next_check;
        if rounds < ROUNDS_BETWEEN_CHECKS {
            self.next_check.1 += 1;
            return;
        }
        let next = self.first_indexed(segment);
        self.next_check = (next.map_or(0, |next| next + 1), 0);
        let Some(next) = next else { return };
        let is_good = self.database.as_ref().is_some_and(|database| {
            let parts = SegmentParts::load(database, next).ok().flatten();
            parts.is_some_and(|parts| parts.members(database).is_ok())
        });
        if !is_good {
            self.checked_to = next - 1;
        }
    }

    /// The first closed segment with an index from this one on.
    fn first_indexed(&self, from: u64) -> Option<u64> {
        let files = segment::list_files(&self.directory).ok()?;
        files.iter().map(|file| file.number).find(|number| (from.max(1)..=self.checked_to).contains(number))
    }

    /// True when the usage of this segment, which is to be removed, is added up.
    pub(crate) fn has_counted(&self, segment: u64) -> bool {
        self.covered.segment >= segment
    }

    /// Once an hour, checks the structure of the database, adds the hours of days that are over up, and deletes what
    /// no reader shows: days before those that are kept, and before the journal's first segment.
    pub(crate) fn check_and_clean(&mut self, now: Micros) {
        let first = usage_counts::hour_of(now).saturating_sub(HOURS_KEPT);
        if self.database.is_none() || self.first_hour == first {
            return;
        }
        let first_segment =
            segment::list_files(&self.directory).ok().and_then(|files| files.first().map(|file| file.number));
        let of_journal = first_segment.and_then(|first| first_time(&self.directory, first).ok()).unwrap_or_default();
        let Some(database) = &mut self.database else { return };
        match clean(database, now, first, of_journal) {
            Ok(()) => {
                database::shrink_log(database);
                self.first_hour = first;
            }
            Err(error) => self.discard_after_error(&error),
        }
    }

    /// Removes the parts of these segments. The usage of keys that was counted from them stays.
    pub(crate) fn remove_segments(&mut self, segments: Range<u64>) {
        let removed = self.database.as_ref().map_or(Ok(()), |database| segment_parts::remove(database, segments));
        removed.unwrap_or_else(|error| self.discard_after_error(&error));
    }

    /// Closes the database, which another process may change meanwhile; the next round opens it again.
    pub(crate) fn close_database(&mut self) {
        self.database = None;
    }
}

/// The time from which on a journal has all records that begins with this segment; 0 when it had no segment before.
fn first_time(directory: &Path, segment: u64) -> io::Result<Micros> {
    let header = if segment > 1 { open_uses::read_header(directory, segment)? } else { None };
    // Records that follow may have times that were read before that of the segment.
    Ok(header.map_or(Micros(0), |header| header.created.after(CREATED_LATE)))
}

fn clean(database: &mut Connection, now: Micros, first_hour: u64, of_journal: Micros) -> rusqlite::Result<()> {
    database::check(database)?;
    usage_rows::check(database)?;
    let kept = usage_counts::day_of(now).saturating_sub(DAYS_KEPT).min(usage_counts::day_of(of_journal));
    let transaction = database.transaction()?;
    usage_rows::tidy(&transaction, usage_counts::first_hour_of(kept), first_hour)?;
    database::advance_since(
        &transaction,
        Micros(usage_counts::first_hour_of(kept).saturating_mul(usage_counts::HOUR)),
    )?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::audit::format::event::OpenUse;
    use crate::audit::index::live_index::PlacedEvent;
    use crate::audit::index::{IndexedEvent, IndexedUse};
    use domain::identity::OrgId;

    /// A journal of closed segments of nothing but a line that is no event.
    struct Indexed {
        directory: tempfile::TempDir,
        end: Point,
        live: LiveIndex,
        indexer: Indexer,
    }

    impl Indexed {
        fn new(count: u64) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let end = Point { segment: count + 1, offset: 0 };
            (1..=count + 1).for_each(|number| std::fs::write(segment::path(directory.path(), number), "x\n").unwrap());
            let live = LiveIndex::new(SegmentIndex::new(count + 1, 1 << 18, FxHashMap::default()));
            let indexer = Indexer::new(directory.path(), end, 1 << 20);
            Self { directory, end, live, indexer }
        }

        fn index(&mut self) {
            let segments = segment::list(self.directory.path()).unwrap();
            self.indexer.index_closed(&self.live, &segments, self.end, || true);
            assert!(!self.indexer.has_unindexed(self.end));
        }

        /// Each segment has its turn within so many rounds; true when one is found to be without its index.
        fn recheck_all(&mut self) -> bool {
            let rounds = u64::from(ROUNDS_BETWEEN_CHECKS + 1) * (self.end.segment + 1);
            (0..rounds).any(|_| {
                self.indexer.recheck();
                self.indexer.has_unindexed(self.end)
            })
        }

        fn rows(&self) -> Vec<(u64, Option<Members>)> {
            let segment = |number| Segment { number, length: 2 };
            (1..self.end.segment).map(|number| (number, self.indexer.load_members(&segment(number)))).collect()
        }
    }

    /// A use of one key in each segment before `end`.
    fn live_with_uses(end: Point) -> LiveIndex {
        let live = LiveIndex::new(SegmentIndex::new(1, 1 << 18, FxHashMap::default()));
        for segment in 1..end.segment {
            let open = OpenUse {
                id: Uuid::from_u128(segment.into()),
                segment,
                listed_by: 0,
                is_by_key: true,
                time: Micros(1),
                number: None,
                key_id: Some("abcdef001".parse().unwrap()),
                user_id: None,
                org_id: Some(OrgId::from_bytes([7; 16])),
                is_change: false,
                route: None,
                units: 1,
            };
            let event = IndexedEvent::Use(IndexedUse::from_open(&open));
            live.add_batch(Point { segment, offset: 0 }, 2, &[PlacedEvent { event, at: 1 }]);
        }
        live.add_batch(end, 0, &[]);
        live
    }

    #[test]
    fn parts_that_are_damaged_or_removed_later_are_stored_again() {
        let mut indexed = Indexed::new(5);
        indexed.index();
        let whole = indexed.rows();
        assert!(whole.iter().all(|(_, members)| members.is_some()));
        for change in [
            "UPDATE part SET sets = x'000101' WHERE place = 3 << 32",
            "UPDATE part SET next = 17 WHERE place = 3 << 32",
            "DELETE FROM part WHERE place = 3 << 32",
            "UPDATE segment SET times = zeroblob(24) WHERE number = 3",
            "UPDATE segment SET part = 1 WHERE number = 3",
            "DELETE FROM segment WHERE number = 3",
        ] {
            assert_eq!(indexed.indexer.database.as_ref().unwrap().execute(change, []).unwrap(), 1, "{change}");
            assert!(indexed.recheck_all(), "{change}");
            indexed.index();
            assert!(indexed.rows() == whole, "{change}");
        }
        assert!(!indexed.recheck_all());
        std::fs::remove_file(indexed.directory.path().join(database::FILE)).unwrap();
        assert!(indexed.recheck_all(), "the file was deleted");
        indexed.index();
        assert!(indexed.rows() == whole && indexed.directory.path().join(database::FILE).exists());
    }

    #[test]
    fn parts_of_lines_that_were_lost_are_removed_before_new_ones_come() {
        let mut indexed = Indexed::new(5);
        indexed.index();
        let end = Point { segment: 3, offset: 0 };
        indexed.indexer = Indexer::new(indexed.directory.path(), end, 1 << 20);
        let there = indexed.rows().into_iter().filter(|(_, members)| members.is_some());
        assert_eq!(there.map(|(number, _)| number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn usage_is_added_up_once_when_another_process_has_done_so() {
        let mut indexed = Indexed::new(5);
        indexed.live = live_with_uses(indexed.end);
        indexed.indexer.close_database();
        let mut other = Indexer::new(indexed.directory.path(), indexed.end, 1 << 20);
        let segments = segment::list(indexed.directory.path()).unwrap();
        other.index_closed(&live_with_uses(indexed.end), &segments, indexed.end, || true);
        drop(other);
        indexed.index();
        let (org, keys) = (OrgId::from_bytes([7; 16]), ["abcdef001".parse().unwrap()].into_iter().collect());
        let counts = usage_rows::load(indexed.indexer.database.as_ref().unwrap(), org, &keys, 0).unwrap();
        let requests: u64 = counts.keys.values().flat_map(|usage| &usage.hours).map(|(_, sums)| sums.requests).sum();
        assert_eq!((requests, indexed.indexer.covered), (5, Point { segment: 5, offset: 2 }));
    }
}
