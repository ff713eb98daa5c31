//! State of the journal between its handles and its file: lines that are not written yet, uses that are open, and the
//! number of the next line.
//!
//! All of it changes under one short lock, and the order of these changes is the order of the journal:
//! - a line gets its number when it is appended, and lines are written in the order of their numbers;
//! - an outcome is appended only while its use is open, so no use has two outcomes, and no outcome lacks its use;
//! - when a write fails, the lines whose requests are refused for it are withdrawn and the others keep their order under
//!   new numbers, so the journal has no gap (`retry`).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uuid::Uuid;

mod batch;
mod changes;
mod retry;
mod unfinished;

pub(crate) use batch::{Batch, SpareBuffers};

use super::completion::BatchCompletion;
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::frame::{self, Line};
use crate::audit::format::line::EventKind;
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::version::VERSION;
use crate::audit::index::live_index::PlacedEvent;
use crate::audit::index::{IndexedEvent, IndexedUse};
use domain::clock::Micros;

/// Bytes of outcomes that are kept while the file cannot be written: those of some 800,000 requests that were in flight
/// when writing failed.
const MAX_KEPT_OUTCOMES: usize = 64 << 20;
/// Bytes by which a line may grow when it gets its number.
const NUMBER_LENGTH: usize = 20;

/// Status of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalStatus {
    /// Takes lines.
    Running,
    /// Takes no lines until a restart: a sync has failed. The kernel may have lost what it had accepted, and no later
    /// sync would report it.
    SyncFailed,
    /// Takes no lines any more.
    Closed,
}

/// Lines that are not written yet, and uses that are open.
#[derive(Debug)]
pub(crate) struct PendingLines {
    pub(crate) status: JournalStatus,
    lines: Vec<u8>,
    /// The events among the lines that the index needs.
    indexed: Vec<PlacedEvent>,
    /// The number of the first pending line.
    first: u64,
    /// Time of its event.
    first_time: Micros,
    /// The number of the next line to be appended.
    pub(crate) next: u64,
    pub(crate) events: i64,
    /// Attempts with unknown keys among the events. Nothing waits for them; they are counted when their batch completes.
    attempts: u64,
    /// True when the pending lines begin with a header.
    header: bool,
    /// The segment to which the pending lines will be written.
    pub(crate) segment: u64,
    /// Closed segments without a seal.
    pub(crate) unsealed: Vec<u64>,
    pub(crate) open: FxHashMap<u128, OpenUse>,
    /// Uses that a header lists, and that have ended since the last one.
    pub(crate) ended: Vec<Uuid>,
    /// The first segment that retention has not removed.
    pub(crate) first_segment: u64,
    /// Time of the last event, or of the last look of the maintenance: by it, segments grow old.
    pub(crate) time: Micros,
    /// Time of the record that was appended last: against it, retention judges ages.
    pub(crate) newest: Micros,
    completion: Arc<BatchCompletion>,
    /// Lines of changes by management, numbered 0: they get their numbers when they are taken, so that they can be written
    /// while the lines before them have no room.
    changes: Vec<u8>,
    change_count: usize,
    /// The completion of these changes; `None` without changes.
    change_completion: Option<Arc<BatchCompletion>>,
    /// The committer sleeps until the first event.
    pub(crate) committer_asleep: bool,
    /// A request waits for a sync.
    pub(crate) sync_requested: bool,
}

impl PendingLines {
    /// No pending lines, where the journal continues.
    pub(crate) fn new(segment: u64, next: u64, open: FxHashMap<u128, OpenUse>, unsealed: Vec<u64>) -> Self {
        Self {
            status: JournalStatus::Running,
            lines: Vec::new(),
            indexed: Vec::new(),
            first: next,
            first_time: Micros(0),
            next,
            events: 0,
            attempts: 0,
            header: false,
            segment,
            unsealed,
            open,
            ended: Vec::new(),
            first_segment: 1,
            time: Micros(0),
            newest: Micros(0),
            completion: Arc::default(),
            changes: Vec::new(),
            change_count: 0,
            change_completion: None,
            committer_asleep: false,
            sync_requested: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.changes.is_empty()
    }

    /// Number and age of the oldest pending line; changes have the number of the line that they come before.
    pub(crate) fn oldest(&self, now: Micros) -> Option<(u64, Duration)> {
        (!self.is_empty()).then(|| (self.first, Duration::from_micros(now.0.saturating_sub(self.first_time.0))))
    }

    /// Bytes of the pending lines, at most.
    pub(crate) fn size(&self) -> u64 {
        (self.lines.len() + self.changes_size()) as u64
    }

    /// True when the pending lines begin with a header.
    pub(crate) fn has_header(&self) -> bool {
        self.header
    }

    fn push(&mut self, line: &impl Line) {
        if self.lines.is_empty() {
            self.first_time = self.time;
        }
        line.write_line(self.next, &mut self.lines);
        self.next += 1;
        self.events += 1;
    }

    /// Appends the beginning of a use, which is open from now on; `None` when the journal takes no lines.
    pub(crate) fn append_use(&mut self, line: &impl Line, open: OpenUse) -> Option<Arc<BatchCompletion>> {
        let segment = self.segment;
        self.newest = open.time;
        self.advance(open.time);
        self.index(IndexedEvent::Use(IndexedUse::from_open(&open)));
        let completion = self.append_line(line)?;
        self.open.insert(open.id.as_u128(), OpenUse { segment, ..open });
        Some(completion)
    }

    /// Appends a line that opens no use; `None` when the journal takes no lines.
    pub(crate) fn append_line(&mut self, line: &impl Line) -> Option<Arc<BatchCompletion>> {
        (self.status == JournalStatus::Running).then_some(())?;
        self.push(line);
        Some(Arc::clone(&self.completion))
    }

    /// Appends a use that ended where it began; `None` when the journal takes no lines.
    pub(crate) fn append_record(&mut self, line: &impl Line, indexed: IndexedUse) -> Option<Arc<BatchCompletion>> {
        self.newest = indexed.time;
        self.advance(indexed.time);
        self.index(IndexedEvent::Use(indexed));
        self.append_line(line)
    }

    /// Appends an attempt with an unknown key. Returns false when the journal takes no lines.
    pub(crate) fn append_attempt(&mut self, line: &impl Line, indexed: IndexedUse) -> bool {
        let appended = self.append_record(line, indexed).is_some();
        self.attempts += u64::from(appended);
        appended
    }

    /// Appends the outcome of a use if it is open. Returns false when there is no room for the outcome; the use then
    /// stays open until a restart closes it.
    pub(crate) fn append_outcome(&mut self, outcome: &OutcomeEvent) -> bool {
        // The next start closes what is open.
        if self.status != JournalStatus::Running {
            return true;
        }
        if self.lines.len() > MAX_KEPT_OUTCOMES {
            return false;
        }
        if let Some(ended) = self.end_use(outcome.id) {
            self.advance(ended.time.after(Duration::from_micros(outcome.duration_us.unwrap_or(0))));
            self.index(IndexedEvent::Outcome(outcome.id.as_u128()));
            self.push(outcome);
        }
        true
    }

    /// Notes the event of the line that is appended next, while the journal takes lines.
    fn index(&mut self, event: IndexedEvent) {
        if self.status == JournalStatus::Running {
            self.indexed.push(PlacedEvent { event, at: self.lines.len() });
        }
    }

    /// Notes that it is this time, or later.
    pub(crate) fn advance(&mut self, time: Micros) {
        self.time = self.time.max(time);
    }

    /// Ends a use, and returns it; `None` when it is not open.
    fn end_use(&mut self, id: Uuid) -> Option<OpenUse> {
        let ended = self.open.remove(&id.as_u128())?;
        if ended.listed_by > 0 {
            self.ended.push(id);
        }
        Some(ended)
    }

    /// Appends again the beginning of a use, because the segment that holds it is to be removed. Returns false when it is no
    /// longer open, and so needs none.
    pub(crate) fn append_carried(&mut self, line: &impl Line, id: Uuid) -> bool {
        let Some(open) = self.open.get_mut(&id.as_u128()).filter(|_| self.status == JournalStatus::Running) else {
            return false;
        };
        open.segment = self.segment;
        let carried = IndexedUse::from_open(open);
        self.index(IndexedEvent::Carried(carried));
        self.push(line);
        true
    }

    /// Appends the removal of a segment, after which the next one is the first.
    pub(crate) fn append_expired(&mut self, line: &impl Line, segment: u64) {
        if self.append_line(line).is_some() {
            self.first_segment = segment + 1;
        }
    }

    /// Takes all pending lines as a batch, and continues with the empty buffers `spare`.
    pub(crate) fn take_batch(&mut self, spare: SpareBuffers) -> Batch {
        self.sync_requested = false;
        let changes_from = self.lines.len();
        self.number_changes();
        Batch {
            lines: mem::replace(&mut self.lines, spare.lines),
            indexed: mem::replace(&mut self.indexed, spare.indexed),
            first: mem::replace(&mut self.first, self.next),
            events: mem::take(&mut self.events),
            header: mem::take(&mut self.header),
            attempts: mem::take(&mut self.attempts),
            changes_from,
            completion: mem::take(&mut self.completion),
            change_completion: self.change_completion.take(),
        }
    }

    /// Begins a new segment: appends its header, and all later lines belong to it. Only while no lines are pending.
    pub(crate) fn begin_segment(&mut self, gateway: &str, created: Micros) {
        debug_assert!(self.is_empty(), "a header is the first line of its segment");
        let before = self.segment;
        if before > 0 {
            self.unsealed.push(before);
        }
        self.segment += 1;
        self.header = true;
        let mut began = Vec::new();
        for open in self.open.values_mut().filter(|open| open.listed_by == 0 || open.segment == before) {
            open.listed_by = self.segment;
            began.push(*open);
        }
        let ended = mem::take(&mut self.ended);
        let header = SegmentHeader {
            e: EventKind::Header,
            version: VERSION,
            segment: self.segment,
            created,
            gateway: gateway.into(),
            unsealed: self.unsealed.clone().into(),
            first: self.first_segment,
            oldest: self.open.values().map(|open| open.segment).min(),
            began,
            ended: ended.into(),
        };
        frame::with_serialized(&header, |body| self.push(&body));
    }
}
