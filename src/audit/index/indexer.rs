//! Building of the index: the maintenance thread indexes what was written since the last round.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::block_rows::{self, BlockIds};
use super::indexed_use::KeyOwner;
use super::usage_counts::{self, UsageCounts};
use super::{database, usage_rows};
use crate::audit::format::segment::{self, Block, Point};
use crate::clock::Micros;

/// Blocks indexed in one transaction: 16 MiB of journal, a fraction of a second.
const BLOCKS_PER_ROUND: usize = 64;
/// Hours before the current one whose counts are kept: the 23 that readers show, and one for a reader whose hour has
/// just ended.
const HOURS_KEPT: u64 = 24;

/// Writer of the index.
#[derive(Debug)]
pub(crate) struct Indexer {
    directory: PathBuf,
    /// `None` after a failure: the next round rebuilds the index.
    database: Option<Connection>,
    /// The point up to which the journal is indexed.
    covered: Point,
    /// Uses that began before `covered` and had not ended by then.
    open_uses: FxHashMap<u128, KeyOwner>,
    /// Counts of hours before this one have been deleted.
    first_hour: u64,
}

impl Indexer {
    /// Opens the index of a journal that ends at `end`, without reading the journal.
    pub(crate) fn new(directory: &Path, end: Point) -> Self {
        let mut indexer = Self {
            directory: directory.to_owned(),
            database: None,
            covered: Point::START,
            open_uses: FxHashMap::default(),
            first_hour: 0,
        };
        indexer.reopen(end).unwrap_or_else(|error| indexer.discard_after_error(&error));
        indexer
    }

    fn reopen(&mut self, end: Point) -> rusqlite::Result<()> {
        let path = self.directory.join(database::FILE);
        let found = database::open(&path).and_then(|connection| {
            Ok((database::load_covered(&connection)?, usage_rows::load_open(&connection)?, connection))
        });
        let (covered, open_uses, connection) = match found {
            // An index that covers more than there is belongs to another journal, or to one that was put back.
            Ok((covered, open, connection)) if covered.is_none_or(|covered| covered <= end) => {
                (covered, open, connection)
            }
            Err(error) if database::is_out_of_space(&error) => return Err(error),
            _ => (None, FxHashMap::default(), database::create(&path)?),
        };
        self.covered = covered.unwrap_or(Point::START);
        self.open_uses = open_uses;
        self.first_hour = 0;
        self.database = Some(connection);
        Ok(())
    }

    /// Deletes the index; the next round builds it again. Readers scan the segments until then. On a full disk it stays as it
    /// is: it is right, only late.
    fn discard_after_error(&mut self, error: &rusqlite::Error) {
        if database::is_out_of_space(error) {
            tracing::debug!(%error, path = %self.directory.display(), "no space for the index of the audit journal");
            return;
        }
        tracing::warn!(%error, path = %self.directory.display(), "the index of the audit journal failed; rebuilding it");
        self.database = None;
        database::delete(&self.directory.join(database::FILE));
    }

    /// Indexes the next blocks of a journal that ends at `end`. Returns true when there may be more of them.
    pub(crate) fn index_more(&mut self, end: Point, now: Micros) -> bool {
        let opened = match &self.database {
            Some(_) => Ok(()),
            None => self.reopen(end),
        };
        opened.and_then(|()| self.index_round(end, now)).unwrap_or_else(|error| {
            self.discard_after_error(&error);
            false
        })
    }

    fn index_round(&mut self, end: Point, now: Micros) -> rusqlite::Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let blocks = blocks_to_index(&self.directory, self.covered, end);
        if blocks.is_empty() {
            return Ok(false);
        }
        // Rows and covered point change in one transaction: a crash in between leaves both as they were.
        let transaction = database.transaction()?;
        let first_hour = usage_counts::hour_of(now).saturating_sub(HOURS_KEPT);
        let mut counts = UsageCounts::new(first_hour, self.open_uses.clone());
        let mut piece = Vec::new();
        let mut covered = self.covered;
        for block in &blocks {
            // A segment that cannot be read now is tried again in the next round.
            let Ok(start) = segment::read_block(&self.directory, *block, &mut piece) else { return Ok(false) };
            let end = start + piece.len() as u64;
            let ids = BlockIds::from_lines(&piece, &mut counts);
            block_rows::insert(&transaction, Block { segment: block.segment, start, end }, &ids)?;
            covered = Point { segment: block.segment, offset: end.max(block.end) };
        }
        usage_rows::add(&transaction, &counts)?;
        if first_hour > self.first_hour {
            usage_rows::delete_hours_before(&transaction, first_hour)?;
        }
        database::store_covered(&transaction, covered)?;
        transaction.commit()?;
        self.covered = covered;
        self.open_uses = counts.open_uses;
        self.first_hour = first_hour;
        Ok(blocks.len() == BLOCKS_PER_ROUND)
    }

    /// Deletes the block rows of a segment that was removed. The usage of keys that was counted from it stays.
    pub(crate) fn remove_segment(&mut self, number: u64) {
        let Some(database) = &self.database else { return };
        if let Err(error) = block_rows::delete_segment(database, number) {
            self.discard_after_error(&error);
        }
    }
}

/// The next blocks to index: all blocks of closed segments, and the full ones of the active segment. The active
/// segment's last block waits until it is full or the segment is closed, so that every block gets its rows once.
fn blocks_to_index(directory: &Path, covered: Point, end: Point) -> Vec<Block> {
    let segments = segment::list(directory).unwrap_or_default();
    let remaining = segments.into_iter().filter(|segment| (covered.segment..=end.segment).contains(&segment.number));
    let blocks = remaining.flat_map(|segment| {
        let from = if segment.number == covered.segment { covered.offset } else { 0 };
        let to = if segment.number == end.segment {
            end.offset - end.offset.saturating_sub(from) % segment::BLOCK
        } else {
            segment.length
        };
        segment::blocks(segment.number, from, to.max(from))
    });
    blocks.take(BLOCKS_PER_ROUND).collect()
}
