//! Uses without an outcome: those of this process, and those that a gateway which is gone has left.

use rustc_hash::FxHashSet;
use uuid::Uuid;

use super::PendingLines;
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Outcome;
use crate::audit::index::IndexedEvent;

impl PendingLines {
    /// The uses that are open, and those whose outcomes are not written yet.
    pub(crate) fn unfinished_uses(&self) -> Vec<Uuid> {
        let ended = line::split_lines(&self.batch.lines).map(|(_, line)| line);
        let ended = ended.filter(|line| line::event_kind(line) == Some(EventKind::Outcome)).filter_map(line::event_id);
        self.open.keys().copied().chain(ended).map(Uuid::from_u128).collect()
    }

    /// Appends the outcome `aborted` for every open use but those that `keep` selects, and changes, which are left: the
    /// gateway that served them is gone. Returns the number of these uses.
    pub fn abort_open_uses(&mut self, keep: impl Fn(u128) -> bool) -> usize {
        let gone = self.open.iter().filter(|(id, _)| !keep(**id)).map(|(_, open)| *open).collect();
        let aborted: FxHashSet<u128> = self.leave_changes(gone).iter().map(|open| open.id.as_u128()).collect();
        self.close_open_uses(|id| !aborted.contains(&id), |open| OutcomeEvent::bare(open.id, Outcome::Aborted))
    }

    /// Appends the outcome that `outcome` makes for every open use but those that `keep` selects, oldest first: the
    /// gateway that served them is gone. Returns the number of these uses.
    pub(crate) fn close_open_uses(
        &mut self,
        keep: impl Fn(u128) -> bool,
        outcome: impl Fn(&OpenUse) -> OutcomeEvent,
    ) -> usize {
        let mut open: Vec<OpenUse> = self.open.extract_if(|id, _| !keep(*id)).map(|(_, open)| open).collect();
        open.sort_unstable_by_key(|open| open.time);
        self.ended.extend(open.iter().filter(|open| open.listed_by > 0).map(|open| open.id));
        for open in &open {
            let outcome = outcome(open);
            self.index(IndexedEvent::from_outcome(&outcome));
            self.push(&outcome);
        }
        open.len()
    }
}
