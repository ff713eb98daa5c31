//! State of the journal between its handles and its file: lines that are not written yet, uses that are open, and the
//! number of the next line.
//!
//! All of it changes under one short lock, and the order of these changes is the order of the journal:
//! - a line gets its number when it is appended, and lines are written in the order of their numbers;
//! - an outcome is appended only while its use is open, so no use has two outcomes, and no outcome lacks its use;
//! - when a write fails, the lines whose requests are refused for it are withdrawn and the others keep their order
//!   under new numbers, so the journal has no gap (`retry`).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uuid::Uuid;

mod batch;
mod changes;
mod retry;
mod unfinished;

pub use batch::{Batch, SpareBuffers};

use batch::PendingChanges;

use super::completion::BatchCompletion;
use super::mode::{Action, Event, Mode, SharedMode};
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::frame::{self, Line};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::version::VERSION;
use crate::audit::index::live_index::PlacedEvent;
use crate::audit::index::{IndexedEvent, IndexedUse};
use domain::clock::Micros;

/// Bytes of outcomes that are kept while the file cannot be written: those of some 800,000 requests that were in flight
/// when writing failed.
const MAX_KEPT_OUTCOMES: usize = 64 << 20;

/// Lines that are not written yet, and uses that are open. Shared by the handles and the threads of a journal, under
/// one lock.
///
/// - `batch` has the lines with the numbers from its first one to `next`, without a gap.
/// - Each use in `open` has its beginning in the file or in `batch`, and no outcome in either.
///
/// Dropped, it drops no line: `committer` has written the last batch then, or has failed it.
#[derive(Debug, Default)]
pub struct PendingLines {
    /// Shared with the writer; changes only while this is locked.
    pub(crate) mode: SharedMode,
    /// The lines that the next write takes. Requests share its completion, and wait for that without the lock.
    batch: Batch,
    /// Lines of changes by management, which get their numbers when they are taken.
    changes: PendingChanges,
    /// The number of the next line to be appended.
    pub(crate) next: u64,
    /// The next header tells them. Changed with each header, seal and removal.
    pub(crate) segments: SegmentState,
    /// Uses that are open, by their ids. What is left when the process ends is closed by the next start, or its
    /// successor.
    pub(crate) open: FxHashMap<u128, OpenUse>,
    /// Uses that a header lists, and that have ended since the last one.
    pub(crate) ended: Vec<Uuid>,
    /// Open changes of processes that are gone. Taken by the one that asks the state for what holds.
    pub(crate) left_changes: Vec<Uuid>,
    /// Time of the last event, or of the last look of the maintenance: by it, segments grow old.
    pub(crate) time: Micros,
    /// Time of the record that was appended last: against it, retention judges ages.
    pub(crate) newest: Micros,
    /// The committer sleeps until the first event.
    pub(crate) committer_asleep: bool,
    /// A request waits for a sync.
    pub(crate) sync_requested: bool,
}

/// The segments of a journal, as the next header tells them.
#[derive(Debug, Default)]
pub(crate) struct SegmentState {
    /// The segment to which the pending lines will be written.
    pub(crate) current: u64,
    /// Closed segments without a seal.
    pub(crate) unsealed: Vec<u64>,
    /// The first segment that retention has not removed.
    pub(crate) first: u64,
}

impl PendingLines {
    /// No pending lines, where the journal continues.
    pub(crate) fn new(segments: SegmentState, next: u64, open: FxHashMap<u128, OpenUse>, ended: Vec<Uuid>) -> Self {
        let batch = Batch::new(next, SpareBuffers::default());
        Self { batch, next, segments, open, ended, ..Self::default() }
    }

    /// The mode of the journal.
    pub fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Makes the transition of an event, and returns what is to be done.
    pub fn change_mode(&mut self, event: Event) -> &'static [Action] {
        self.mode.step(event)
    }

    /// Number of the next line.
    pub fn next_line(&self) -> u64 {
        self.next
    }

    /// Returns whether no lines are pending.
    pub fn is_empty(&self) -> bool {
        self.batch.lines.is_empty() && self.changes.is_empty()
    }

    /// Number and age of the oldest pending line; changes have the number of the line that they come before.
    pub fn oldest(&self, now: Micros) -> Option<(u64, Duration)> {
        let Batch { first, first_time, .. } = self.batch;
        (!self.is_empty()).then(|| (first, Duration::from_micros(now.0.saturating_sub(first_time.0))))
    }

    /// Bytes of the pending lines, at most.
    pub(crate) fn size(&self) -> u64 {
        (self.batch.lines.len() + self.changes.size()) as u64
    }

    /// Number of the pending lines, without changes by management.
    pub(crate) fn events(&self) -> i64 {
        self.batch.events
    }

    /// True when the pending lines begin with a header.
    pub(crate) fn has_header(&self) -> bool {
        self.batch.header
    }

    fn push(&mut self, line: &impl Line) {
        if self.batch.lines.is_empty() {
            self.batch.first_time = self.time;
        }
        line.write_line(self.next, &mut self.batch.lines);
        self.next += 1;
        self.batch.events += 1;
        debug_assert_eq!(self.next - self.batch.first, self.batch.events.cast_unsigned(), "numbers have no gap");
    }

    /// Appends the beginning of a use, which is open from now on; `None` when the journal takes no lines.
    pub fn append_use(&mut self, line: &impl Line, open: OpenUse) -> Option<Arc<BatchCompletion>> {
        let segment = self.segments.current;
        self.newest = open.time;
        self.advance(open.time);
        self.index(IndexedEvent::Use(IndexedUse::from_open(&open)));
        let completion = self.append_line(line)?;
        self.open.insert(open.id.as_u128(), OpenUse { segment, ..open });
        Some(completion)
    }

    /// Appends a line that opens no use; `None` when the journal takes no lines.
    pub(crate) fn append_line(&mut self, line: &impl Line) -> Option<Arc<BatchCompletion>> {
        self.mode.get().takes_lines().then_some(())?;
        self.push(line);
        Some(Arc::clone(&self.batch.completion))
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
        self.batch.attempts += u64::from(appended);
        appended
    }

    /// Appends the outcome of a use if it is open. Returns false when there is no room for the outcome; the use then
    /// stays open until a restart closes it.
    pub fn append_outcome(&mut self, outcome: &OutcomeEvent) -> bool {
        // The next start closes what is open.
        if !self.mode.get().takes_lines() {
            return true;
        }
        if self.batch.lines.len() > MAX_KEPT_OUTCOMES {
            return false;
        }
        if let Some(ended) = self.end_use(outcome.id) {
            self.advance(ended.time.after(Duration::from_micros(outcome.duration_us.unwrap_or(0))));
            self.index(IndexedEvent::from_outcome(outcome));
            self.push(outcome);
        }
        true
    }

    /// Notes the event of the line that is appended next, while the journal takes lines.
    fn index(&mut self, event: IndexedEvent) {
        if self.mode.get().takes_lines() {
            self.batch.indexed.push(PlacedEvent { event, at: self.batch.lines.len() });
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

    /// Appends again the beginning of a use, because the segment that holds it is to be removed. Returns false when it
    /// is no longer open, and so needs none.
    pub(crate) fn append_carried(&mut self, line: &impl Line, id: Uuid) -> bool {
        let takes_lines = self.mode.get().takes_lines();
        let Some(open) = self.open.get_mut(&id.as_u128()).filter(|_| takes_lines) else { return false };
        open.segment = self.segments.current;
        let carried = IndexedUse::from_open(open);
        self.index(IndexedEvent::Carried(carried));
        self.push(line);
        true
    }

    /// Appends the removal of a segment, after which the next one is the first.
    pub(crate) fn append_expired(&mut self, line: &impl Line, segment: u64) {
        if self.append_line(line).is_some() {
            self.segments.first = segment + 1;
        }
    }

    /// Takes all pending lines as a batch, and continues with the empty buffers `spare`.
    pub fn take_batch(&mut self, spare: SpareBuffers) -> Batch {
        self.sync_requested = false;
        let changes_from = self.batch.lines.len();
        let change_completion = self.number_changes();
        let taken = mem::replace(&mut self.batch, Batch::new(self.next, spare));
        debug_assert!(
            !taken.header || line::event_kind(&taken.lines) == Some(EventKind::Header),
            "a batch that begins a segment begins with its header"
        );
        Batch { changes_from, change_completion, ..taken }
    }

    /// Begins a new segment: appends its header, and all later lines belong to it. Only while no lines are pending.
    pub fn begin_segment(&mut self, gateway: &str, created: Micros) {
        debug_assert!(self.is_empty(), "a header is the first line of its segment");
        let before = self.segments.current;
        if before > 0 {
            self.segments.unsealed.push(before);
        }
        self.segments.current += 1;
        self.batch.header = true;
        let mut began = Vec::new();
        for open in self.open.values_mut().filter(|open| open.listed_by == 0 || open.segment == before) {
            open.listed_by = self.segments.current;
            began.push(*open);
        }
        let ended = mem::take(&mut self.ended);
        let header = SegmentHeader {
            e: EventKind::Header,
            version: VERSION,
            segment: self.segments.current,
            created,
            gateway: gateway.into(),
            unsealed: self.segments.unsealed.clone().into(),
            first: self.segments.first,
            oldest: self.open.values().map(|open| open.segment).min(),
            began,
            ended: ended.into(),
        };
        frame::with_serialized(&header, |body| self.push(&body));
    }
}
