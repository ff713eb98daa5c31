//! State of the journal between its handles and its file: lines that are not written yet, uses that are open, and the
//! number of the next line.
//!
//! All of it changes under one short lock, and the order of these changes is the order of the journal:
//! - a line gets its number when it is appended, and lines are written in the order of their numbers;
//! - an outcome is appended only while its use is open, so no use has two outcomes, and no outcome lacks its use;
//! - when a write fails, the lines whose requests are refused for it are withdrawn and the others keep their order under
//!   new numbers, so the journal has no gap.

use std::mem;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use uuid::Uuid;

use super::completion::BatchCompletion;
use crate::audit::format::event::{OpenUse, OutcomeEvent, SegmentHeader};
use crate::audit::format::frame::{self, EventBody};
use crate::audit::format::line::{self, EventKind};
use crate::clock::Micros;

/// Bytes of outcomes that are kept while the file cannot be written: those of some 200,000 requests that were in flight
/// when writing failed.
const MAX_KEPT_OUTCOMES: usize = 64 << 20;

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

/// Lines that were taken to be written together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) lines: Vec<u8>,
    /// The number of the first line.
    first: u64,
    pub(crate) events: i64,
    /// True when the lines begin with a header, and so with a new segment.
    pub(crate) header: bool,
    /// Attempts with unknown keys among the events.
    pub(crate) attempts: u64,
    pub(crate) completion: Arc<BatchCompletion>,
}

/// Lines that are not written yet, and uses that are open.
#[derive(Debug)]
pub(crate) struct PendingLines {
    pub(crate) status: JournalStatus,
    lines: Vec<u8>,
    /// The number of the first pending line.
    first: u64,
    /// The number of the next line to be appended.
    next: u64,
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
    completion: Arc<BatchCompletion>,
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
            first: next,
            next,
            events: 0,
            attempts: 0,
            header: false,
            segment,
            unsealed,
            open,
            completion: Arc::default(),
            committer_asleep: false,
            sync_requested: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn push(&mut self, body: EventBody<'_>) {
        body.write_line(self.next, &mut self.lines);
        self.next += 1;
        self.events += 1;
    }

    /// Appends the beginning of a use, which is open from now on; `None` when the journal takes no lines.
    pub(crate) fn append_use(&mut self, body: EventBody<'_>, open: OpenUse) -> Option<Arc<BatchCompletion>> {
        let segment = self.segment;
        let completion = self.append_line(body)?;
        self.open.insert(open.id.as_u128(), OpenUse { segment, ..open });
        Some(completion)
    }

    /// Appends a line that opens no use; `None` when the journal takes no lines.
    pub(crate) fn append_line(&mut self, body: EventBody<'_>) -> Option<Arc<BatchCompletion>> {
        (self.status == JournalStatus::Running).then_some(())?;
        self.push(body);
        Some(Arc::clone(&self.completion))
    }

    /// Appends an attempt with an unknown key. Returns false when the journal takes no lines.
    pub(crate) fn append_attempt(&mut self, body: EventBody<'_>) -> bool {
        let appended = self.append_line(body).is_some();
        self.attempts += u64::from(appended);
        appended
    }

    /// Appends the outcome of a use if it is open. Returns false when there is no room for the outcome; the use then
    /// stays open until a restart closes it.
    pub(crate) fn append_outcome(&mut self, body: EventBody<'_>, id: Uuid) -> bool {
        // The next start closes what is open.
        if self.status != JournalStatus::Running {
            return true;
        }
        if self.lines.len() > MAX_KEPT_OUTCOMES {
            return false;
        }
        if self.open.remove(&id.as_u128()).is_some() {
            self.push(body);
        }
        true
    }

    /// Takes all pending lines as a batch, and continues with the empty buffer `spare`.
    pub(crate) fn take_batch(&mut self, spare: Vec<u8>) -> Batch {
        self.sync_requested = false;
        Batch {
            lines: mem::replace(&mut self.lines, spare),
            first: mem::replace(&mut self.first, self.next),
            events: mem::take(&mut self.events),
            header: mem::take(&mut self.header),
            attempts: mem::take(&mut self.attempts),
            completion: mem::take(&mut self.completion),
        }
    }

    /// Begins a new segment: appends its header, and all later lines belong to it. Only while no lines are pending.
    pub(crate) fn begin_segment(&mut self, gateway: &str, created: Micros) {
        debug_assert!(self.is_empty(), "a header is the first line of its segment");
        if self.segment > 0 {
            self.unsealed.push(self.segment);
        }
        self.segment += 1;
        self.header = true;
        let header = SegmentHeader {
            e: EventKind::Header,
            segment: self.segment,
            created,
            gateway: gateway.into(),
            unsealed: self.unsealed.clone().into(),
            open: self.open.values().copied().collect(),
        };
        frame::with_serialized(&header, |body| self.push(body));
    }

    /// Takes back a batch that could not be written. Those who wait for a use or record in it learn so from its
    /// completion, and these lines are withdrawn. Outcomes of uses that are in the file, and seals, are kept.
    pub(crate) fn restore_failed_batch(&mut self, batch: &Batch) {
        let withdrawn = self.withdraw_uses(&batch.lines);
        let newer = mem::take(&mut self.lines);
        // The withdrawn numbers are given again, so that there is no gap.
        self.next = batch.first;
        self.first = batch.first;
        self.events = 0;
        // A segment that was to begin after this batch cannot begin before the batch is written.
        if self.header && !batch.header {
            self.undo_begin_segment();
        }
        self.header = batch.header;
        let keep_header = batch.header;
        self.append_again(&batch.lines, |kind, id| match kind {
            EventKind::Header => keep_header,
            EventKind::Seal => true,
            EventKind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            EventKind::Use | EventKind::Record => false,
        });
        // Newer lines were not part of the failed write: their requests wait for the next one.
        self.append_again(&newer, |kind, id| match kind {
            EventKind::Header => false,
            EventKind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            EventKind::Seal | EventKind::Use | EventKind::Record => true,
        });
    }

    /// Closes the uses that begin in these lines, and returns their ids.
    fn withdraw_uses(&mut self, lines: &[u8]) -> FxHashSet<u128> {
        let uses = line::split_lines(lines).filter(|(_, line)| line::event_kind(line) == Some(EventKind::Use));
        let ids: FxHashSet<u128> = uses.filter_map(|(_, line)| line::event_id(line)).collect();
        for id in &ids {
            self.open.remove(id);
        }
        ids
    }

    fn undo_begin_segment(&mut self) {
        self.segment -= 1;
        self.unsealed.retain(|number| *number != self.segment);
        for open in self.open.values_mut() {
            open.segment = open.segment.min(self.segment);
        }
    }

    /// Appends again, under new numbers, those of the lines that `keep` selects.
    fn append_again(&mut self, lines: &[u8], keep: impl Fn(EventKind, Option<u128>) -> bool) {
        for (_, line) in line::split_lines(lines) {
            let kept = line::event_kind(line).is_some_and(|kind| keep(kind, line::event_id(line)));
            if let Some(body) = frame::extract_body(line).filter(|_| kept) {
                self.push(body);
            }
        }
    }

    /// Appends the outcome that `outcome` makes for every open use, oldest first: the gateway that served them is gone.
    /// Returns the number of these uses.
    pub(crate) fn close_open_uses(&mut self, outcome: impl Fn(&OpenUse) -> OutcomeEvent) -> usize {
        let mut open: Vec<OpenUse> = self.open.drain().map(|(_, open)| open).collect();
        open.sort_unstable_by_key(|open| open.time);
        for open in &open {
            frame::with_serialized(&outcome(open), |body| self.push(body));
        }
        open.len()
    }
}
