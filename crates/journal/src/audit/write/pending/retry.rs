//! Retry: pending lines after a failure. What requests wait for is withdrawn, because they are refused for it; what is
//! kept is written by the next attempt, under new numbers.

use std::mem;

use rustc_hash::FxHashSet;

use super::{Batch, PendingLines, SpareBuffers};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::{frame, open_uses};
use crate::audit::index::IndexedEvent;

/// Result of taking the changes by management while there is no room for other lines.
pub(crate) struct WithoutRoom {
    /// The other lines, which have failed.
    pub(crate) refused: Batch,
    pub(crate) changes: Option<Batch>,
}

/// Returns whether a line other than a header stays when its batch has failed: no request waits for it, and its use is
/// in the file.
fn stays(kind: EventKind, id: Option<u128>, withdrawn: &FxHashSet<u128>) -> bool {
    match kind {
        EventKind::Seal | EventKind::Carried | EventKind::Expired | EventKind::Damaged => true,
        EventKind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
        EventKind::Header | EventKind::Use | EventKind::Record => false,
    }
}

impl PendingLines {
    /// Takes the changes by management while there is no room for the other lines, together with a header
    /// that waits. Of the other lines, those that requests wait for are withdrawn; outcomes and seals stay
    /// pending, after the changes.
    pub(crate) fn take_changes(&mut self) -> WithoutRoom {
        let first = self.batch.first;
        let refused = mem::replace(&mut self.batch, Batch::new(first, SpareBuffers::default()));
        let withdrawn = self.withdraw_uses(&refused.lines);
        self.next = first;
        let mut changes = None;
        if !self.changes.is_empty() {
            self.batch.header = refused.header;
            self.append_again(&refused.lines, |kind, _| kind == EventKind::Header);
            changes = Some(self.take_batch(SpareBuffers::default()));
        }
        // A header that was not taken stays the first of the pending lines.
        let keeps_header = refused.header && changes.is_none();
        self.batch.header = keeps_header;
        self.append_again(&refused.lines, |kind, id| {
            if kind == EventKind::Header { keeps_header } else { stays(kind, id, &withdrawn) }
        });
        WithoutRoom { refused, changes }
    }

    /// Appends again, under new numbers, those of the lines that `keep` selects.
    pub(super) fn append_again(&mut self, lines: &[u8], keep: impl Fn(EventKind, Option<u128>) -> bool) {
        for (_, line) in line::split_lines(lines) {
            let kept = line::event_kind(line).is_some_and(|kind| keep(kind, line::event_id(line)));
            if let Some(body) = frame::extract_body(line).filter(|_| kept) {
                // Rare, so that the event is read from its line.
                IndexedEvent::from_line(line).ok().flatten().into_iter().for_each(|event| self.index(event));
                self.push(&body);
            }
        }
    }

    /// Takes back a batch that could not be written. Those who wait for a use or record in it learn so from its
    /// completion, and these lines are withdrawn. Outcomes of uses that are in the file, and seals, are kept.
    pub fn restore_failed_batch(&mut self, batch: &Batch) {
        let withdrawn = self.withdraw_uses(&batch.lines);
        let (lines, changes) = batch.lines.split_at(batch.changes_from);
        self.restore_changes(changes, &withdrawn);
        let newer = mem::take(&mut self.batch.lines);
        self.batch.indexed.clear();
        // The withdrawn numbers are given again, so that there is no gap.
        self.next = batch.first;
        self.batch.first = batch.first;
        self.batch.events = 0;
        // A segment that was to begin after this batch cannot begin before the batch is written.
        if self.batch.header && !batch.header {
            self.undo_begin_segment(&newer);
        }
        self.batch.header = batch.header;
        self.append_again(
            lines,
            |kind, id| {
                if kind == EventKind::Header { batch.header } else { stays(kind, id, &withdrawn) }
            },
        );
        // Newer lines were not part of the failed write: their requests wait for the next one.
        self.append_again(&newer, |kind, id| match kind {
            EventKind::Header => false,
            EventKind::Use | EventKind::Record => true,
            kind => stays(kind, id, &withdrawn),
        });
    }

    /// Puts the outcomes of earlier changes back in front of the newer changes.
    fn restore_changes(&mut self, lines: &[u8], withdrawn: &FxHashSet<u128>) {
        let newer = mem::take(&mut self.changes);
        for (_, line) in line::split_lines(lines) {
            let is_kept = line::event_id(line).is_some_and(|id| !withdrawn.contains(&id));
            if let Some(body) = frame::extract_body(line).filter(|_| is_kept) {
                self.changes.push(&body);
            }
        }
        self.changes.append(newer);
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
        // The content of this header is left to the next one.
        let since = mem::take(&mut self.ended);
        self.ended = header.map(|header| header.ended.into_owned()).unwrap_or_default();
        self.ended.extend(since);
        for open in self.open.values_mut() {
            open.segment = open.segment.min(self.segments.current - 1);
        }
        self.segments.current -= 1;
        self.segments.unsealed.retain(|number| *number != self.segments.current);
    }
}
