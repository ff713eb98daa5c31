//! Keeping of the index by the maintenance thread.
//!
//! - When a segment is closed, its index goes from memory to a file; one that is missing is built from the segment.
//! - The usage in these files is added up in the database when many have gathered, and before their segments are removed.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::index_file::{self, IndexFile};
use super::indexed_use::KeyOwner;
use super::live_index::{LiveIndex, Stretch};
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_counts::{self, UsageCounts};
use super::{block_rows, database, usage_rows};
use crate::audit::format::lines_at::LinesAt;
use crate::audit::format::segment::{Point, Segment};
use crate::clock::Micros;

/// Index files whose usage is not added up yet, beyond which it is: readers of usage read these files, and adding up costs
/// the more the more often it is done.
const MAX_FILES: usize = 64;
/// Hours before the current one whose counts are kept: the 23 that readers show, and one for a reader whose hour has
/// just ended.
const HOURS_KEPT: u64 = 24;

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
    /// The offsets up to which a version before has indexed segments.
    earlier: FxHashMap<u64, u64>,
    /// All closed segments up to this one have an index.
    checked_to: u64,
}

impl Indexer {
    /// Opens the index of a journal that ends at `end`, without reading the journal.
    pub(crate) fn new(directory: &Path, end: Point, segment_size: u64) -> Self {
        let mut indexer = Self {
            directory: directory.to_owned(),
            part: members::part_length(segment_size),
            database: None,
            covered: Point::START,
            earlier: FxHashMap::default(),
            checked_to: 0,
        };
        indexer.reopen(end).unwrap_or_else(|error| indexer.discard_after_error(&error));
        indexer
    }

    /// The index of the last segment of a journal that ends at `end`, where these uses are open. It is read from the file that
    /// the last gateway left when it was closed, or made from the segment.
    pub(crate) fn recover(&self, end: Point, open_uses: FxHashMap<u128, KeyOwner>) -> io::Result<SegmentIndex> {
        let counted_from = self.counted_from(end.segment);
        let file = IndexFile::open(&self.directory, end.segment, end.offset);
        let file = file.filter(|file| file.stretch().from == counted_from && file.part() == self.part);
        if let Some(mut left) = file.and_then(|file| file.load().ok()) {
            left.counts.open_uses = open_uses;
            return Ok(left);
        }
        let segment = Segment { number: end.segment, length: end.offset };
        let built = SegmentIndex::build(&self.directory, &segment, (self.part, counted_from), || true)?;
        Ok(built.unwrap_or_else(|| SegmentIndex::new(end.segment, self.part, open_uses)))
    }

    /// Writes what is in memory for the next start, when the journal is closed: also the index of the open segment.
    pub(crate) fn leave(&self, live: &LiveIndex) {
        let left = live.for_each(|index| index_file::write(&self.directory, index));
        left.unwrap_or_else(
            |error| tracing::debug!(%error, "cannot leave the index of the last segments to the next start"),
        );
    }

    /// The offset in a segment from which its usage is to be counted.
    fn counted_from(&self, segment: u64) -> u64 {
        if segment == self.covered.segment { self.covered.offset } else { 0 }
    }

    fn reopen(&mut self, end: Point) -> rusqlite::Result<()> {
        let path = self.directory.join(database::FILE);
        let found = database::open(&path).and_then(|connection| {
            Ok((database::load_covered(&connection)?, block_rows::load_ends(&connection)?, connection))
        });
        let (covered, earlier, connection) = match found {
            // An index that covers more than there is belongs to another journal, or to one that was put back.
            Ok((covered, earlier, connection)) if covered.is_none_or(|covered| covered <= end) => {
                (covered, earlier, connection)
            }
            Err(error) if database::is_out_of_space(&error) => return Err(error),
            _ => (None, FxHashMap::default(), database::create(&path)?),
        };
        self.covered = covered.unwrap_or(Point::START);
        self.earlier = earlier;
        self.database = Some(connection);
        Ok(())
    }

    /// Deletes the database; the next round makes it again. On a full disk it stays as it is: it is right, only late.
    fn discard_after_error(&mut self, error: &rusqlite::Error) {
        if database::is_out_of_space(error) {
            tracing::debug!(%error, path = %self.directory.display(), "no space for the index of the audit journal");
            return;
        }
        tracing::warn!(%error, path = %self.directory.display(), "the index of the audit journal failed; rebuilding it");
        self.database = None;
        database::delete(&self.directory.join(database::FILE));
    }

    /// True when a segment before `end` was closed since the last round, or when an index is missing.
    pub(crate) fn has_unindexed(&self, end: Point) -> bool {
        self.database.is_none() || self.checked_to + 1 < end.segment
    }

    /// Sees to it that the closed segments of a journal that ends at `end` have an index each. `proceed` is asked before
    /// each piece of work.
    pub(crate) fn index_closed(
        &mut self,
        live: &LiveIndex,
        segments: &[Segment],
        end: Point,
        proceed: impl Fn() -> bool,
    ) {
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
    }

    /// Sees to it that a closed segment has an index. Returns false when there was no time for it.
    fn index_segment(&self, live: &LiveIndex, segment: &Segment, proceed: &impl Fn() -> bool) -> io::Result<bool> {
        let counted_from = self.counted_from(segment.number);
        if let Some(index) = live.closed(segment.number).filter(|index| index.length == segment.length) {
            return index_file::write(&self.directory, &index).map(|()| true);
        }
        let is_counted = segment.number < self.covered.segment || counted_from == segment.length;
        if is_counted && self.earlier.get(&segment.number) == Some(&segment.length) {
            return Ok(true);
        }
        let file = IndexFile::open(&self.directory, segment.number, segment.length);
        if file.is_some_and(|file| is_counted || file.stretch().from == counted_from) {
            return Ok(true);
        }
        let built = SegmentIndex::build(&self.directory, segment, (self.part, counted_from), proceed)?;
        built.map_or(Ok(false), |index| index_file::write(&self.directory, &index).map(|()| true))
    }

    /// Adds up the usage of the closed segments, when many have gathered, or when the segments up to `required` are to be
    /// removed. Returns false when their usage could not be added up.
    pub(crate) fn add_up(&mut self, segments: &[Segment], end: Point, required: Option<u64>, now: Micros) -> bool {
        let opened = match &self.database {
            Some(_) => Ok(()),
            None => self.reopen(end),
        };
        let waiting = self.waiting(segments);
        let is_due = waiting.len() > MAX_FILES || required.is_some_and(|required| self.covered.segment < required);
        let added = opened.and_then(|()| if is_due { self.add_files(&waiting, now) } else { Ok(()) });
        added.unwrap_or_else(|error| self.discard_after_error(&error));
        let closed = segments.iter().rev().find(|segment| required.is_some_and(|required| segment.number <= required));
        closed.is_none_or(|closed| self.covered.segment >= closed.number)
    }

    /// The index files whose usage follows what is added up, oldest first, without a gap.
    fn waiting(&self, segments: &[Segment]) -> Vec<IndexFile> {
        let later = segments.iter().filter(|segment| {
            let at = Point { segment: segment.number, offset: segment.length };
            self.covered < at && segment.number <= self.checked_to
        });
        let open = |segment: &Segment| {
            let from = self.counted_from(segment.number);
            let expected = Stretch { segment: segment.number, from, to: segment.length };
            IndexFile::open(&self.directory, segment.number, segment.length).filter(|file| file.stretch() == expected)
        };
        later.map_while(open).collect()
    }

    fn add_files(&mut self, files: &[IndexFile], now: Micros) -> rusqlite::Result<()> {
        let (Some(database), Some(last)) = (&mut self.database, files.last()) else { return Ok(()) };
        let counts = match add_usage(&self.directory, files) {
            Ok(counts) => counts,
            Err(error) => {
                tracing::warn!(%error, path = %self.directory.display(), "cannot read the usage of closed audit segments");
                return Ok(());
            }
        };
        let covered = Point { segment: last.stretch().segment, offset: last.stretch().to };
        // Rows and covered point change in one transaction: a crash in between leaves both as they were.
        let transaction = database.transaction()?;
        usage_rows::add(&transaction, &counts)?;
        usage_rows::delete_hours_before(&transaction, usage_counts::hour_of(now).saturating_sub(HOURS_KEPT))?;
        database::store_covered(&transaction, covered)?;
        transaction.commit()?;
        self.covered = covered;
        Ok(())
    }

    /// Removes the index of a segment that was removed. The usage of keys that was counted from it stays.
    pub(crate) fn remove_segment(&mut self, number: u64) {
        let removed = std::fs::remove_file(index_file::path(&self.directory, number));
        removed.unwrap_or_else(|error| tracing::debug!(%error, segment = number, "no index of a removed segment"));
        if self.earlier.remove(&number).is_some()
            && let Some(database) = &self.database
            && let Err(error) = block_rows::delete_segment(database, number)
        {
            self.discard_after_error(&error);
        }
    }
}

/// The usage in these files, with copies of the lines.
fn add_usage(directory: &Path, files: &[IndexFile]) -> io::Result<UsageCounts> {
    let mut counts = UsageCounts::default();
    for file in files {
        counts.extend(file.usage(|_| true)?);
    }
    let mut lines = LinesAt::new(directory.to_owned());
    counts.store_lines(|point| Ok::<_, io::Error>(lines.read(point)?.map(<[u8]>::to_vec)))?;
    Ok(counts)
}
