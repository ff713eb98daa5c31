//! Reading a journal: by whoever may read its files, while a gateway writes it and while none does.
//!
//! - Readers take no lock and change nothing. They read whole lines, so a line half written is not seen yet.
//! - A use and its outcome are joined into one [`Record`]; without an outcome it is `in_progress`.
//! - The index says which blocks to read. Where there is none, or it does not reach yet, everything is read: the answers
//!   are the same. Who must not wait for that says how much may be read, and goes on from there ([`Reader::list_within`]).
//! - The order is that of the journal, which is that in which uses were decided, as near as several threads have one.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::audit::filter::Filter;
use crate::audit::format::record::Record;
use crate::audit::format::segment::Point;
use crate::audit::format::segment::{self, Block};
use crate::audit::index;
use crate::audit::read::activity::{self, KeyActivity};
use crate::audit::read::cursor::JournalCursor;
use crate::audit::read::follower::Follower;
use crate::audit::read::join::Scan;
use crate::audit::read::verify::{self, VerifyReport};
use crate::clock::Micros;
use crate::identity::OrgId;
use crate::key::KeyId;

/// A journal's directory, for reading.
#[derive(Clone, Debug)]
pub struct Reader {
    directory: PathBuf,
}

/// A record and its place.
type Placed = (Point, Record);

/// Some records, newest first.
#[derive(Clone, Debug)]
pub struct RecordPage {
    /// The records: as many as were asked for, unless there are no others, or the budget was used up.
    pub records: Vec<Record>,
    /// Where to go on for older ones; none when there are none.
    pub next: Option<JournalCursor>,
}

impl Reader {
    /// Opens a journal's directory.
    ///
    /// # Errors
    /// When it is not there or may not be read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        segment::list(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Up to `limit` records, newest first, older than `before` when that is given.
    ///
    /// # Errors
    /// When the segments cannot be read.
    pub fn list(&self, filter: &Filter, limit: usize, before: Option<JournalCursor>) -> io::Result<RecordPage> {
        self.list_within(filter, limit, before, u64::MAX)
    }

    /// The same, from about `budget` bytes of the journal at most. When these are read and there are more, it answers
    /// what it has found by then, which may be nothing, with the place to go on from: from call to call, all is found.
    /// A block is always read, and what ended later than it began is followed to its end, so a call can read more by a
    /// block and a segment or two.
    ///
    /// # Errors
    /// When the segments cannot be read.
    pub fn list_within(
        &self,
        filter: &Filter,
        limit: usize,
        before: Option<JournalCursor>,
        budget: u64,
    ) -> io::Result<RecordPage> {
        let (mut found, stopped) = self.newest(filter, limit.saturating_add(1), before, budget)?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more).map(|(point, _)| JournalCursor { point: *point });
        let next = if more { last } else { stopped };
        Ok(RecordPage { records: found.into_iter().map(|(_, record)| record).collect(), next })
    }

    /// Calls `each` with every record, oldest first. Memory is bounded, however large the journal is.
    ///
    /// # Errors
    /// When the segments cannot be read, or what `each` answers.
    pub fn export(&self, filter: &Filter, each: &mut dyn FnMut(Record) -> io::Result<()>) -> io::Result<()> {
        let (mut scan, blocks) = self.plan(filter)?;
        for block in blocks {
            for (_, record) in scan.records(block, filter)? {
                each(record)?;
            }
        }
        Ok(())
    }

    /// What each of these keys of an organization did in the hour of `now` and the 23 before it, and its last use; of
    /// keys that the journal does not know, that they did nothing. `now` is the time; a day ago, other hours were counted.
    ///
    /// # Errors
    /// When the segments cannot be read, or more than 256 MiB of them lie beyond what the index covers.
    pub fn activity(&self, org: OrgId, keys: &[KeyId], now: Micros) -> io::Result<HashMap<KeyId, KeyActivity>> {
        activity::of(&self.directory, org, keys, now)
    }

    /// Follows the journal: the first poll gives up to `last` records already complete, each later one those completed
    /// since.
    ///
    /// # Errors
    /// When the segments cannot be read.
    pub fn follow(&self, filter: Filter, last: usize) -> io::Result<Follower> {
        let mut follow = Follower::at_end(self.directory.clone(), filter)?;
        let (mut found, _) = self.newest(&filter, last, None, u64::MAX)?;
        found.retain(|(point, record)| follow.has_passed(*point, record));
        follow.first = found.into_iter().rev().map(|(_, record)| record).collect();
        Ok(follow)
    }

    /// Checks the whole journal.
    ///
    /// # Errors
    /// When the segments cannot be read; what is wrong with their content is in the report.
    pub fn verify(&self) -> io::Result<VerifyReport> {
        verify::verify(&self.directory)
    }

    /// The newest `limit` records and their places, and where the budget was used up, if it was.
    fn newest(
        &self,
        filter: &Filter,
        limit: usize,
        before: Option<JournalCursor>,
        budget: u64,
    ) -> io::Result<(Vec<Placed>, Option<JournalCursor>)> {
        let (mut scan, blocks) = self.plan(filter)?;
        let (mut found, mut reached, mut stopped) = (Vec::new(), None, None);
        for block in blocks.into_iter().rev().filter_map(|block| clip(block, before)) {
            if found.len() >= limit {
                break;
            }
            if scan.bytes >= budget && reached.is_some() {
                stopped = reached;
                break;
            }
            found.extend(scan.records(block, filter)?.into_iter().rev());
            reached = Some(JournalCursor { point: (block.segment, block.start) });
        }
        found.truncate(limit);
        Ok((found, stopped))
    }

    /// The blocks to read for a filter, oldest first.
    fn plan(&self, filter: &Filter) -> io::Result<(Scan, Vec<Block>)> {
        let indexed = index::candidates(&self.directory, filter).unwrap_or_else(|error| {
            tracing::debug!(%error, "the audit journal is read without its index");
            None
        });
        // Listed after the index was read, so that the segments reach at least as far.
        let segments = segment::list(&self.directory)?;
        let fitting = indexed.filter(|(_, point)| segment::reach(&segments, *point));
        let (mut blocks, covered) = fitting.unwrap_or_default();
        blocks.extend(segment::beyond(&segments, covered));
        Ok((Scan::new(self.directory.clone(), segments), blocks))
    }
}

/// The part of a block that lies before a cursor.
fn clip(block: Block, before: Option<JournalCursor>) -> Option<Block> {
    let Some(JournalCursor { point }) = before else { return Some(block) };
    let end = if block.segment == point.0 { block.end.min(point.1) } else { block.end };
    ((block.segment, block.start) < point).then_some(Block { end, ..block })
}
