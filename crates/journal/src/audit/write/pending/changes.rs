//! Pending lines of changes by management. They get their numbers when they are taken, so that they can be written while
//! the lines before them have no room.

use std::mem;
use std::sync::Arc;

use super::{JournalStatus, NUMBER_LENGTH, PendingLines};
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::frame::Line;
use crate::audit::write::completion::BatchCompletion;

impl PendingLines {
    /// Appends the beginning of a change by management, which is open from now on; `None` when the journal takes no lines.
    pub(crate) fn append_change(&mut self, line: &impl Line, open: OpenUse) -> Option<Arc<BatchCompletion>> {
        (self.status == JournalStatus::Running).then_some(())?;
        self.push_change(line);
        self.open.insert(open.id.as_u128(), OpenUse { segment: self.segment, ..open });
        Some(Arc::clone(self.change_completion.get_or_insert_default()))
    }

    /// Appends the outcome of a change by management. Returns whether it was appended: the change may not be open.
    pub(crate) fn append_change_outcome(&mut self, outcome: &OutcomeEvent) -> bool {
        let appended = self.status == JournalStatus::Running && self.end_use(outcome.id).is_some();
        if appended {
            self.push_change(outcome);
        }
        appended
    }

    pub(super) fn push_change(&mut self, line: &impl Line) {
        line.write_line(0, &mut self.changes);
        self.change_count += 1;
    }

    /// Gives the changes their numbers, after all other pending lines.
    pub(super) fn number_changes(&mut self) {
        if self.change_count > 0 {
            self.change_count = 0;
            let changes = mem::take(&mut self.changes);
            self.append_again(&changes, |_, _| true);
        }
    }

    pub(super) fn changes_size(&self) -> usize {
        self.changes.len() + self.change_count * NUMBER_LENGTH
    }
}
