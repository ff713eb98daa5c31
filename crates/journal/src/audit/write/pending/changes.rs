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

    /// Appends the outcome of a change by management; `None` when the change is not open, or the journal takes no
    /// lines.
    pub(crate) fn append_change_outcome(&mut self, outcome: &OutcomeEvent) -> Option<Arc<BatchCompletion>> {
        self.mode.get().takes_lines().then_some(())?;
        self.end_use(outcome.id)?;
        self.changes.push(outcome);
        Some(Arc::clone(self.changes.completion.get_or_insert_default()))
    }

    /// Notes the changes among these open uses as left by a process that is gone: they stay open until the state says
    /// whether they were made. Returns the other ones.
    pub(crate) fn leave_changes(&mut self, open: Vec<OpenUse>) -> Vec<OpenUse> {
        let (changes, others): (Vec<OpenUse>, Vec<OpenUse>) = open.into_iter().partition(|open| open.is_change);
        self.left_changes.extend(changes.iter().map(|change| change.id));
        others
    }

    /// Gives the changes their numbers, after all other pending lines. Returns their completion.
    pub(super) fn number_changes(&mut self) -> Option<Arc<BatchCompletion>> {
        let changes = mem::take(&mut self.changes);
        self.append_again(&changes.lines, |_, _| true);
        changes.completion
    }
}
