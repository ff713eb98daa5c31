//! Pending lines after a failure: what is withdrawn, what stays, and what is written although there is no room for the rest.

use std::mem;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{Batch, PendingLines, SpareBuffers};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::{frame, open_uses};
use crate::audit::index::IndexedEvent;
use crate::audit::write::completion::BatchCompletion;

/// Result of taking the changes by management while there is no room for other lines.
pub(crate) struct WithoutRoom {
    /// The completion of the lines that were withdrawn.
    pub(crate) completion: Arc<BatchCompletion>,
    /// Attempts with unknown keys among them.
    pub(crate) attempts: u64,
    pub(crate) changes: Option<Batch>,
}

impl PendingLines {
    /// Takes the changes by management while there is no room for the other lines, together with a header that waits. Of
    /// the other lines, those that requests wait for are withdrawn; outcomes and seals stay pending, after the changes.
    pub(crate) fn take_changes(&mut self) -> WithoutRoom {
        let (waiting, header) = (mem::take(&mut self.lines), mem::take(&mut self.header));
        self.indexed.clear();
        let withdrawn = self.withdraw_uses(&waiting);
        let (completion, attempts) = (mem::take(&mut self.completion), mem::take(&mut self.attempts));
        self.next = self.first;
        self.events = 0;
        let mut changes = None;
        if self.change_count > 0 {
            self.header = header;
            self.append_again(&waiting, |kind, _| kind == EventKind::Header);
            changes = Some(self.take_batch(SpareBuffers::default()));
        }
        // A header that was not taken stays the first of the pending lines.
        self.header = header && changes.is_none();
        let keep_header = self.header;
        self.append_again(&waiting, |kind, id| match kind {
            EventKind::Header => keep_header,
            EventKind::Seal | EventKind::Carried | EventKind::Expired | EventKind::Damaged => true,
            EventKind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            EventKind::Use | EventKind::Record => false,
        });
        WithoutRoom { completion, attempts, changes }
    }

    /// Appends again, under new numbers, those of the lines that `keep` selects.
    pub(super) fn append_again(&mut self, lines: &[u8], keep: impl Fn(EventKind, Option<u128>) -> bool) {
        for (_, line) in line::split_lines(lines) {
            let kept = line::event_kind(line).is_some_and(|kind| keep(kind, line::event_id(line)));
            if let Some(body) = frame::extract_body(line).filter(|_| kept) {
                // Rare, so that the event is read from its line.
                IndexedEvent::from_line(line).into_iter().for_each(|event| self.index(event));
                self.push(&body);
            }
        }
    }

    /// Takes back a batch that could not be written. Those who wait for a use or record in it learn so from its
    /// completion, and these lines are withdrawn. Outcomes of uses that are in the file, and seals, are kept.
    pub(crate) fn restore_failed_batch(&mut self, batch: &Batch) {
        let withdrawn = self.withdraw_uses(&batch.lines);
        let (lines, changes) = batch.lines.split_at(batch.changes_from);
        self.restore_changes(changes, &withdrawn);
        let newer = mem::take(&mut self.lines);
        self.indexed.clear();
        // The withdrawn numbers are given again, so that there is no gap.
        self.next = batch.first;
        self.first = batch.first;
        self.events = 0;
        // A segment that was to begin after this batch cannot begin before the batch is written.
        if self.header && !batch.header {
            self.undo_begin_segment(&newer);
        }
        self.header = batch.header;
        let keep_header = batch.header;
        self.append_again(lines, |kind, id| match kind {
            EventKind::Header => keep_header,
            EventKind::Seal | EventKind::Carried | EventKind::Expired | EventKind::Damaged => true,
            EventKind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            EventKind::Use | EventKind::Record => false,
        });
        // Newer lines were not part of the failed write: their requests wait for the next one.
        self.append_again(&newer, |kind, id| match kind {
            EventKind::Header => false,
            EventKind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            _ => true,
        });
    }

    /// Puts the outcomes of earlier changes back in front of the newer changes.
    fn restore_changes(&mut self, lines: &[u8], withdrawn: &FxHashSet<u128>) {
        let newer = (mem::take(&mut self.changes), mem::take(&mut self.change_count));
        for (_, line) in line::split_lines(lines) {
            let is_kept = line::event_id(line).is_some_and(|id| !withdrawn.contains(&id));
            if let Some(body) = frame::extract_body(line).filter(|_| is_kept) {
                self.push_change(&body);
            }
        }
        self.changes.extend_from_slice(&newer.0);
        self.change_count += newer.1;
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

    /// Undoes the beginning of a segment whose header is the first of these lines.
    fn undo_begin_segment(&mut self, lines: &[u8]) {
        let header = line::split_lines(lines).next().and_then(|(_, line)| open_uses::parse_header(line));
        // What the header said is left for the next one to say.
        let since = mem::take(&mut self.ended);
        self.ended = header.map(|header| header.ended.into_owned()).unwrap_or_default();
        self.ended.extend(since);
        for open in self.open.values_mut() {
            open.segment = open.segment.min(self.segment - 1);
        }
        self.segment -= 1;
        self.unsealed.retain(|number| *number != self.segment);
    }
}
