//! Pending lines of changes by management. They get their numbers when they are taken, so that they can be written
//! while the lines before them have no room.

use std::mem;
use std::sync::Arc;

use super::PendingLines;
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::frame::Line;
use crate::audit::write::completion::BatchCompletion;

impl PendingLines {
    /// Appends the beginning of a change by management, which is open from now on; `None` when the
    /// journal takes no lines.
    pub(crate) fn append_change(&mut self, line: &impl Line, open: OpenUse) -> Option<Arc<BatchCompletion>> {
        self.mode.get().takes_lines().then_some(())?;
        self.changes.push(line);
        self.open.insert(open.id.as_u128(), OpenUse { segment: self.segments.current, ..open });
        Some(Arc::clone(self.changes.completion.get_or_insert_default()))
    }

    /// Appends the outcome of a change by management. Returns whether it was appended: the change may not be open.
    pub(crate) fn append_change_outcome(&mut self, outcome: &OutcomeEvent) -> bool {
        let appended = self.mode.get().takes_lines() && self.end_use(outcome.id).is_some();
        if appended {
            self.changes.push(outcome);
        }
        appended
    }

    /// Gives the changes their numbers, after all other pending lines. Returns their completion.
    pub(super) fn number_changes(&mut self) -> Option<Arc<BatchCompletion>> {
        let changes = mem::take(&mut self.changes);
        self.append_again(&changes.lines, |_, _| true);
        changes.completion
    }
}
