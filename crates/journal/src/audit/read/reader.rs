//! The reading handle of a journal. It works beside a gateway that writes the journal, and without one.
//!
//! - Readers take no lock and change nothing. They read whole lines only, so a half-written line is not seen yet.
//! - A use and its outcome are joined into one [`Record`]; a use without an outcome is `in_progress`.
//! - The index names the blocks to read. Where it is missing or does not reach yet, everything is read, with the same
//!   result. A caller that must not wait for that limits the bytes to read and continues from a cursor
//!   ([`Reader::list_within`]).
//! - Records are in the order of their times: within a page, whose place is that of its lines in the journal, and in an
//!   export.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::activity::{self, KeyActivity};
use super::copies::CheckpointCopies;
use super::cursor::JournalCursor;
use super::follower::Follower;
use super::join::RecordScanner;
use super::metering;
use super::metering::query::UsageQuery;
use super::metering::report::UsageReport;
use super::prove::{self, ProveError, RecordProof};
use super::range_usage::{self, OrgUsage, UsageRange, UsageSeries};
use super::stop::StopSignal;
use super::time_order::TimeOrder;
use super::verify_derived;
use super::verify_report::VerifyReport;
use super::verify_tree::TreeReport;
use crate::audit::filter::Filter;
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, Block, Point};
use crate::audit::index::live_index::LiveIndex;
use crate::audit::index::lookup;
use crate::audit::tree::published::LatestCheckpoint;
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;
use tlog::key::PublicKey;

/// Reader of the journal in a directory.
#[derive(Clone, Debug)]
pub struct Reader {
    directory: PathBuf,
    stop: StopSignal,
    /// The index of the open segment, in the process that writes the journal.
    live: Option<Arc<LiveIndex>>,
}

/// A record and its position.
type PlacedRecord = (Point, Record);

/// A page of records, newest first.
#[derive(Clone, Debug)]
pub struct RecordPage {
    /// The records: as many as the limit allows, fewer at the end of the journal or when the budget was used up.
    pub records: Vec<Record>,
    /// Cursor for older records; `None` when there are none.
    pub next: Option<JournalCursor>,
}

impl Reader {
    /// Opens the directory of a journal.
    ///
    /// # Errors
    /// If the directory does not exist or may not be read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        segment::list(directory)?;
        Ok(Self { directory: directory.to_owned(), stop: StopSignal::default(), live: None })
    }

    /// The same reader, which has the index of the open segment.
    pub(crate) fn with_live_index(self, live: Arc<LiveIndex>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// The same reader, whose reads fail soon after the signal to stop.
    #[must_use]
    pub fn with_stop(self, stop: StopSignal) -> Self {
        Self { stop, ..self }
    }

    /// Lists up to `limit` records, newest first; with `before`, those older than the cursor.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn list(&self, filter: &Filter, limit: usize, before: Option<JournalCursor>) -> io::Result<RecordPage> {
        self.list_within(filter, limit, before, u64::MAX)
    }

    /// Lists like [`Reader::list`], but reads about `budget` bytes of the journal at most. When the budget is used up
    /// before the page is full, the page has the records found so far, possibly none, and a cursor to continue from:
    /// repeated calls find everything. One block is always read, and the outcomes of its uses are searched to their
    /// end, so a call can exceed the budget by a block and a segment or two.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn list_within(
        &self,
        filter: &Filter,
        limit: usize,
        before: Option<JournalCursor>,
        budget: u64,
    ) -> io::Result<RecordPage> {
        // One record more than asked for tells whether there is another page.
        let (mut found, stopped) = self.find_newest(filter, limit.saturating_add(1), before, budget)?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more).map(|(point, _)| JournalCursor { point: *point });
        let next = if more { last } else { stopped };
        // A record of several refusals has its line behind those of a second that were later.
        found.sort_by_key(|(_, record)| Reverse(record.time));
        Ok(RecordPage { records: found.into_iter().map(|(_, record)| record).collect(), next })
    }

    /// Calls `each` with every matching record, oldest first. Memory is that of the records of two seconds, however
    /// large the journal is.
    ///
    /// # Errors
    /// If the segments cannot be read, and any error of `each`.
    pub fn export(&self, filter: &Filter, each: &mut dyn FnMut(Record) -> io::Result<()>) -> io::Result<()> {
        let (mut scan, blocks) = self.plan_scan(filter)?;
        let mut by_time = TimeOrder::default();
        for block in blocks {
            for (_, record) in scan.read_records(block, filter)? {
                by_time.add(record, each)?;
            }
        }
        by_time.finish(each)
    }

    /// Activity of some keys of an organization: requests and refusals in the hour of `now` and the 23 hours before,
    /// and the last use. Keys that the journal does not know have none. `now` must be the current time, because counts
    /// of older hours are not kept.
    ///
    /// # Errors
    /// If the segments cannot be read, or more than 256 MiB of them are not indexed yet.
    pub fn activity(&self, org: OrgId, keys: &[KeyId], now: Micros) -> io::Result<HashMap<KeyId, KeyActivity>> {
        activity::read_activity(&self.directory, self.live.as_deref(), (org, keys), now, &self.stop)
    }

    /// Usage of an organization in a range that ends at `now`, with at most `top` keys and routes, by the index.
    ///
    /// # Errors
    /// If the index is behind the journal, or another process has it.
    pub fn org_usage(&self, org: OrgId, range: UsageRange, now: Micros, top: usize) -> io::Result<OrgUsage> {
        range_usage::read_org(self.indexed()?, (org, range, top), now, &self.stop)
    }

    /// Usage of a key in a range that ends at `now`, by the index.
    ///
    /// # Errors
    /// As [`Reader::org_usage`].
    pub fn key_usage(&self, org: OrgId, key: KeyId, range: UsageRange, now: Micros) -> io::Result<UsageSeries> {
        range_usage::read_key(self.indexed()?, (org, key, range), now, &self.stop)
    }

    /// The journal, and what this process has of its index in memory.
    fn indexed(&self) -> io::Result<(&Path, &LiveIndex)> {
        let live = self.live.as_deref();
        Ok((&self.directory, live.ok_or_else(|| io::Error::other("the process that writes it has its index"))?))
    }

    /// Adds the usage of the journal up. Memory is bounded by the rows and the uses that are open at a time; by the
    /// index, where this process writes the journal and whole days are asked for, by the rows.
    ///
    /// # Errors
    /// If the segments cannot be read, or a compressed one is damaged.
    pub fn usage(&self, query: UsageQuery, now: Micros) -> io::Result<UsageReport> {
        metering::read_usage((&self.directory, self.live.as_deref()), query, now, &self.stop)
    }

    /// Follows the journal: the first poll returns up to `last` records that are complete, each later poll those
    /// completed since.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn follow(&self, filter: Filter, last: usize) -> io::Result<Follower> {
        let mut follower = Follower::at_end(self.directory.clone(), filter)?;
        let (mut found, _) = self.find_newest(&filter, last, None, u64::MAX)?;
        found.retain(|(point, record)| follower.has_passed(*point, record));
        follower.first = found.into_iter().rev().map(|(_, record)| record).collect();
        Ok(follower)
    }

    /// Checks the integrity of the whole journal and of its indexes, and compares it with its own checkpoints.
    ///
    /// # Errors
    /// If the segments cannot be read. Defects of their content are in the report.
    pub fn verify(&self) -> io::Result<VerifyReport> {
        verify_derived::verify(&self.directory)
    }

    /// As [`Reader::verify`], and checks the journal against copies of its checkpoints, which the key has signed.
    ///
    /// # Errors
    /// As [`Reader::verify`].
    pub fn verify_copies(&self, copies: &CheckpointCopies, key: &PublicKey) -> io::Result<(VerifyReport, TreeReport)> {
        verify_derived::verify_copies(&self.directory, copies, key)
    }

    /// The latest checkpoint of the journal; `None` when it has none.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn latest_checkpoint(&self) -> io::Result<Option<LatestCheckpoint>> {
        LatestCheckpoint::read(&self.directory)
    }

    /// Proves that the lines of a record are in the journal, by a checkpoint.
    ///
    /// # Errors
    /// [`ProveError`] says why there is no proof.
    pub fn prove(&self, id: Uuid, note: &str) -> Result<RecordProof, ProveError> {
        prove::prove(&self.directory, id, note)
    }

    /// Finds the newest `limit` records with their positions, and returns the cursor to continue from when the budget
    /// was used up.
    fn find_newest(
        &self,
        filter: &Filter,
        limit: usize,
        before: Option<JournalCursor>,
        budget: u64,
    ) -> io::Result<(Vec<PlacedRecord>, Option<JournalCursor>)> {
        let (mut scan, blocks) = self.plan_scan(filter)?;
        let mut found = Vec::new();
        let mut reached = None;
        let mut stopped = None;
        for block in blocks.into_iter().rev().filter_map(|block| clip_block(block, before)) {
            if found.len() >= limit {
                break;
            }
            // Without a block read, the cursor would not move and the caller would repeat the same call for ever.
            if scan.bytes >= budget && reached.is_some() {
                stopped = reached;
                break;
            }
            found.extend(scan.read_records(block, filter)?.into_iter().rev());
            reached = Some(JournalCursor { point: Point { segment: block.segment, offset: block.start } });
        }
        found.truncate(limit);
        Ok((found, stopped))
    }

    /// The blocks to read for a filter, oldest first: the candidates of the index, and everything
    /// that it does not cover.
    fn plan_scan(&self, filter: &Filter) -> io::Result<(RecordScanner, Vec<Block>)> {
        self.stop.check()?;
        let segments = segment::list(&self.directory)?;
        let blocks = lookup::candidate_blocks(&self.directory, self.live.as_deref(), &segments, filter);
        Ok((RecordScanner::new(self.directory.clone(), segments, self.stop.clone()), blocks))
    }
}

/// The part of a block that lies before a cursor; `None` when there is none.
fn clip_block(block: Block, before: Option<JournalCursor>) -> Option<Block> {
    let Some(JournalCursor { point }) = before else { return Some(block) };
    let end = if block.segment == point.segment { block.end.min(point.offset) } else { block.end };
    (Point { segment: block.segment, offset: block.start } < point).then_some(Block { end, ..block })
}
