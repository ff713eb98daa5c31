//! Changes that a killed process has left without an outcome: the state, which this crate does not know, says whether
//! they were made.

use std::io;

use uuid::Uuid;

use super::journal::Journal;
use crate::audit::filter::Filter;
use crate::audit::format::event::OutcomeEvent;
use crate::audit::format::record::{Outcome, Record};

impl Journal {
    /// Takes the changes that processes which are gone have left open. Each gets its outcome by
    /// [`Journal::end_left_change`]; those that do not are left again at the next start.
    ///
    /// # Errors
    /// If the journal cannot be read; they are left then.
    pub fn take_left_changes(&self) -> io::Result<Vec<Record>> {
        let left = std::mem::take(&mut self.handle.writer.lock_pending().left_changes);
        let found = self.find_records(&left);
        if found.is_err() {
            self.handle.writer.lock_pending().left_changes.extend(left);
        }
        found
    }

    /// Records the outcome of a change that was left.
    pub fn end_left_change(&self, id: Uuid, outcome: Outcome) {
        self.handle.writer.append_outcome(&OutcomeEvent::bare(id, outcome), true);
    }

    fn find_records(&self, ids: &[Uuid]) -> io::Result<Vec<Record>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let reader = self.reader()?;
        let mut found = Vec::new();
        for id in ids {
            let filter = Filter { id: Some(*id), ..Filter::default() };
            found.extend(reader.list(&filter, 1, None)?.records);
        }
        Ok(found)
    }
}
