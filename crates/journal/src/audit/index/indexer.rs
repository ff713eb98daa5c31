//! Keeping of the index by the maintenance thread.
//!
//! - When a segment is closed, its index goes from memory to a file; one that is missing is built from the segment.
//! - Usage is added up in the database when that of many segments has gathered in memory, before their segments are
//!   removed, and when the journal is closed or handed over. What a kill has left is counted from the segments.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::index_file::{self, IndexFile};
use super::indexed_use::KeyOwner;
use super::live_index::{LiveIndex, WaitingUsage};
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_counts;
use super::{database, usage_rows};
use crate::audit::format::lines_at::LinesAt;
use crate::audit::format::segment::{self, Point, Segment};
use crate::files;
use domain::clock::Micros;

/// Closed segments whose usage is not added up yet, beyond which it is: adding up costs the more the more often it is
/// done, and a killed process leaves as many segments to be read again.
const MAX_WAITING: usize = 16;
/// Keys that are added up at once, with copies of their lines: some 60 MiB. The lines of each such part of the keys are
/// anywhere in the segments, which are read once for each.
const KEYS_AT_ONCE: usize = 1 << 17;
/// Hours before the current one whose counts are kept: the 23 that readers show, and one for a reader whose hour has
/// just ended.
const HOURS_KEPT: u64 = 24;

/// Rounds of the maintenance thread, one a second, between two checks of an index: each file is read again within
/// hours, and an idle gateway does next to nothing for it.
const ROUNDS_BETWEEN_CHECKS: u32 = 10;

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
        };
        indexer.reopen(end).unwrap_or_else(|error| indexer.discard_after_error(&error));
        indexer
    }

    /// The index of the last segment of a journal that ends at `end`, where these uses are open. It is read from the
    /// file that the last gateway left when it was closed, or made from the segment.
    pub(crate) fn recover(&self, end: Point, open_uses: FxHashMap<u128, KeyOwner>) -> io::Result<SegmentIndex> {
        let fits = |file: &IndexFile| self.covered == end && file.part() == self.part;
        let file = IndexFile::open(&self.directory, end.segment, end.offset);
        match file.and_then(|file| file.filter(fits).map(|file| file.members()).transpose()) {
            Ok(Some(members)) => {
                let empty = SegmentIndex::new(end.segment, self.part, open_uses);
                return Ok(SegmentIndex { members, length: end.offset, counted_from: end.offset, ..empty });
            }
            Err(error) => self.log_damage(&error, end.segment),
            Ok(None) => {}
        }
        let segment = Segment { number: end.segment, length: end.offset };
        let counted_from = counted_from(self.covered, end.segment);
        let built = SegmentIndex::build(&self.directory, &segment, (self.part, counted_from), || true)?;
        Ok(built.unwrap_or_else(|| SegmentIndex::new(end.segment, self.part, open_uses)))
    }

    /// The point up to which usage is added up.
    pub(crate) fn covered(&self) -> Point {
        self.covered
    }

    /// Writes what is in memory for the next start, when the journal is closed: also the index of the open segment.
    pub(crate) fn leave(&mut self, live: &LiveIndex, now: Micros) {
        for index in live.all() {
            // After a segment that is not counted, nothing can be added up.
            let follows = index.counted_from == counted_from(live.counted_to(), index.segment);
            if follows && self.checked_to + 1 == index.segment {
                live.add_waiting(&index);
                self.checked_to = index.segment;
            }
            index_file::write(&self.directory, &index).unwrap_or_else(
                |error| tracing::debug!(%error, "cannot leave the index of the last segments to the next start"),
            );
        }
        self.add_up(live, now);
    }

    fn reopen(&mut self, end: Point) -> rusqlite::Result<()> {
        let path = self.directory.join(database::FILE);
        let found = database::open(&path).and_then(|connection| Ok((database::load_covered(&connection)?, connection)));
        let (covered, connection) = match found {
            // An index that covers more than there is belongs to another journal, or to one that was put back.
            Ok((covered, connection)) if covered.is_none_or(|covered| covered <= end) => (covered, connection),
            Err(error) if database::is_out_of_space(&error) => return Err(error),
            _ => (None, database::create(&path)?),
        };
        let covered = covered.unwrap_or(Point::START);
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
            if live.covered() != self.covered {
                live.set_covered(self.covered);
            }
        }
        let unchecked = self.checked_to + 1..end.segment;
        for segment in segments.iter().filter(|segment| unchecked.contains(&segment.number)) {
            let indexed = self.index_segment(live, segment, &proceed).unwrap_or_else(|error| {
                tracing::debug!(%error, segment = segment.number, "cannot index a closed audit segment yet");
                // A damaged segment stays without an index; readers report the damage.
                error.kind() == io::ErrorKind::InvalidData
            });
            if !indexed {
                return;
            }
            self.checked_to = segment.number;
            live.forget_to(segment.number);
        }
        self.checked_to = end.segment.saturating_sub(1);
    }

    /// Sees to it that a closed segment has an index, and that its usage is counted. Returns false when there was no
    /// time for it.
    fn index_segment(&self, live: &LiveIndex, segment: &Segment, proceed: &impl Fn() -> bool) -> io::Result<bool> {
        let counted = live.counted_to();
        let is_counted = counted >= Point { segment: segment.number, offset: segment.length };
        let from = counted_from(counted, segment.number);
        let fits =
            |index: &Arc<SegmentIndex>| index.length == segment.length && (is_counted || index.counted_from == from);
        let mut index = live.closed(segment.number).filter(fits);
        if index.is_none() {
            if is_counted && self.has_file(segment) {
                return Ok(true);
            }
            index = SegmentIndex::build(&self.directory, segment, (self.part, from), proceed)?.map(Arc::new);
        }
        let Some(index) = index else { return Ok(false) };
        index_file::write(&self.directory, &index)?;
        if !is_counted {
            live.add_waiting(&index);
        }
        Ok(true)
    }

    /// True when the index of a segment is in a file that is whole.
    fn has_file(&self, segment: &Segment) -> bool {
        let file = IndexFile::open(&self.directory, segment.number, segment.length);
        let members = file.and_then(|file| file.map(|file| file.members()).transpose());
        members.inspect_err(|error| self.log_damage(error, segment.number)).is_ok_and(|members| members.is_some())
    }

    fn log_damage(&self, error: &io::Error, segment: u64) {
        tracing::error!(%error, segment, path = %self.directory.display(),
            "the index of an audit segment cannot be used, and is made again from the segment; check the disk");
    }

    /// Checks the index of one closed segment again, now and then. One that was damaged or removed meanwhile is made
    /// again by the next round.
    pub(crate) fn recheck(&mut self) {
        let (segment, rounds) = self.next_check;
        if rounds < ROUNDS_BETWEEN_CHECKS {
            self.next_check.1 += 1;
            return;
        }
        let next = self.first_indexed(segment);
        self.next_check = (next.map_or(0, |next| next + 1), 0);
        let Some(next) = next else { return };
        let checked = IndexFile::open_any(&self.directory, next);
        let is_good = checked.and_then(|file| file.map(|file| file.members()).transpose());
        if !matches!(is_good, Ok(Some(_))) {
            self.checked_to = next - 1;
        }
    }

    /// The first closed segment with an index from this one on.
    fn first_indexed(&self, from: u64) -> Option<u64> {
        let files = segment::list_files(&self.directory).ok()?;
        files.iter().map(|file| file.number).find(|number| (from.max(1)..=self.checked_to).contains(number))
    }

    /// Adds up the usage of the closed segments when that of many is waiting.
    pub(crate) fn add_up_many(&mut self, live: &LiveIndex, now: Micros) {
        if live.waiting_segments() > MAX_WAITING {
            self.add_up(live, now);
        }
    }

    /// Adds up the usage of the closed segments up to this one, which are to be removed. Returns false when it could
    /// not be added up.
    pub(crate) fn add_up_to(&mut self, live: &LiveIndex, segment: u64, now: Micros) -> bool {
        if self.covered.segment < segment {
            self.add_up(live, now);
        }
        self.covered.segment >= segment
    }

    /// Adds up the usage of all closed segments.
    pub(crate) fn add_up(&mut self, live: &LiveIndex, now: Micros) {
        if live.waiting_segments() > 0 {
            self.add(live.waiting(), now).unwrap_or_else(|error| self.discard_after_error(&error));
            // Without space it goes on waiting.
            if self.covered == live.counted_to() {
                live.set_covered(self.covered);
            }
        }
    }

    fn add(&mut self, waiting: WaitingUsage, now: Micros) -> rusqlite::Result<()> {
        let Some(database) = &mut self.database else { return Ok(()) };
        let to = waiting.to;
        let mut lines = LinesAt::new(self.directory.clone());
        // Rows and covered point change in one transaction: a crash in between leaves both as they were.
        let transaction = database.transaction()?;
        for mut counts in waiting.into_run().slices(KEYS_AT_ONCE) {
            // Damaged lines are left out, as those of removed segments are.
            let copied = counts.store_lines(|point| {
                Ok::<_, io::Error>(files::if_intact(lines.read(point).map(|line| line.map(<[u8]>::to_vec)))?.flatten())
            });
            if let Err(error) = copied {
                tracing::warn!(%error, path = %self.directory.display(),
                    "cannot read the lines of closed audit segments");
                return Ok(());
            }
            usage_rows::add(&transaction, &counts)?;
        }
        usage_rows::delete_hours_before(&transaction, usage_counts::hour_of(now).saturating_sub(HOURS_KEPT))?;
        database::store_covered(&transaction, to)?;
        transaction.commit()?;
        self.covered = to;
        database::shrink_log(database);
        Ok(())
    }

    /// Removes the index of a segment that was removed. The usage of keys that was counted from it stays.
    pub(crate) fn remove_segment(&self, number: u64) {
        index_file::remove(&self.directory, number);
    }
}

/// The offset in a segment from which its usage is to be counted, after this point.
fn counted_from(counted: Point, segment: u64) -> u64 {
    if segment == counted.segment { counted.offset } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::index::segment_index;

    /// Closed segments of nothing but a line that is no event, each with its index.
    fn indexed(directory: &Path, count: u64) -> Indexer {
        let end = Point { segment: count + 1, offset: 0 };
        (1..=count + 1).for_each(|number| std::fs::write(segment::path(directory, number), "x\n").unwrap());
        let mut indexer = Indexer::new(directory, end, 1 << 20);
        let live =
            LiveIndex::new(SegmentIndex::new(count + 1, 1 << 18, segment_index::owners([].iter())), Point::START);
        indexer.index_closed(&live, &segment::list(directory).unwrap(), end, || true);
        assert!(!indexer.has_unindexed(end));
        indexer
    }

    #[test]
    fn index_that_is_damaged_or_removed_later_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let count = 5;
        let mut indexer = indexed(directory.path(), 5);
        let end = Point { segment: count + 1, offset: 0 };
        let live = LiveIndex::new(SegmentIndex::new(count + 1, 1 << 18, FxHashMap::default()), indexer.covered());
        let path = index_file::path(directory.path(), 3);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        for bytes in [Some(damaged), None] {
            match bytes {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            // Each file has its turn within so many rounds.
            let rounds = u64::from(ROUNDS_BETWEEN_CHECKS + 1) * (count + 1);
            assert!((0..rounds).any(|_| {
                indexer.recheck();
                indexer.has_unindexed(end)
            }));
            indexer.index_closed(&live, &segment::list(directory.path()).unwrap(), end, || true);
            assert!(std::fs::read(&path).unwrap() == whole && !indexer.has_unindexed(end));
        }
        let rounds = u64::from(ROUNDS_BETWEEN_CHECKS + 1) * (count + 1);
        assert!((0..rounds).all(|_| {
            indexer.recheck();
            !indexer.has_unindexed(end)
        }));
    }
}
