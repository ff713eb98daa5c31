//! The steps of one batch, without I/O: the order in which its lines are written, synced and acknowledged, and what
//! follows a failure.
//!
//! `JournalWriter::write_batch` performs them on the active segment. The simulation of many gateways performs the same
//! steps on disks in virtual time.
//!
//! | after | next |
//! |---|---|
//! | the batch was taken | write it |
//! | it was written, durability `written` | acknowledge it |
//! | it was written, durability `synced` | sync it (fsync) |
//! | it was synced | acknowledge it |
//! | the write has failed | restore what is kept, then refuse those who wait |
//! | the sync has failed | withdraw the lines from followers, then refuse those who wait: no sync is repeated |
//!
//! - **A line is acknowledged once it is as durable as configured**, and never before.
//! - **Those who wait learn of a failure last**: the mode has changed by then, so that a request that tries again meets
//!   it, and the withdrawn numbers are given again.

use super::completion::BatchResult;
use super::mode::Event as ModeEvent;
use crate::audit::settings::Durability;

/// Progress of one batch. It belongs to the thread that holds the active segment. Dropped before its end, it would
/// leave requests waiting.
#[derive(Debug)]
pub struct BatchSteps {
    stage: Stage,
    durability: Durability,
    /// The batch has only changes by management, which are written into the reserve: that says nothing about the room
    /// for other lines.
    is_in_reserve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Writing,
    Syncing,
    Ended,
}

/// Action on a batch. The result of a write or a sync is given to [`BatchSteps::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchAction {
    /// Write its lines.
    Write,
    /// Bring what was written to disk.
    Sync,
    /// Change the mode of the journal.
    ChangeMode(ModeEvent),
    /// Take the batch back into the pending lines: what is kept is written by the next attempt.
    Restore,
    /// Withdraw its lines from those who follow the journal: they may not be on disk, and what a sink has taken of them
    /// would be left without an outcome.
    WithdrawUnsynced,
    /// Tell those who wait for its lines.
    Complete(BatchResult),
}

use BatchAction::{ChangeMode, Complete, Restore, Sync, WithdrawUnsynced, Write};

impl BatchSteps {
    /// Begins with a batch that was taken, and returns the first actions.
    pub fn begin(durability: Durability, is_in_reserve: bool) -> (Self, &'static [BatchAction]) {
        (Self { stage: Stage::Writing, durability, is_in_reserve }, &[Write])
    }

    /// The actions after a write or a sync that has succeeded, or has failed.
    pub fn step(&mut self, has_succeeded: bool) -> &'static [BatchAction] {
        let (stage, actions): (Stage, &'static [BatchAction]) = match (self.stage, has_succeeded) {
            (Stage::Writing, true) if self.durability == Durability::Synced => (Stage::Syncing, &[Sync]),
            (Stage::Writing | Stage::Syncing, true) if self.is_in_reserve => {
                (Stage::Ended, &[Complete(BatchResult::Written)])
            }
            (Stage::Writing | Stage::Syncing, true) => {
                (Stage::Ended, &[Complete(BatchResult::Written), ChangeMode(ModeEvent::Written)])
            }
            (Stage::Writing, false) => {
                (Stage::Ended, &[ChangeMode(ModeEvent::WriteFailed), Restore, Complete(BatchResult::Failed)])
            }
            (Stage::Syncing, false) => {
                (Stage::Ended, &[ChangeMode(ModeEvent::SyncFailed), WithdrawUnsynced, Complete(BatchResult::Failed)])
            }
            (Stage::Ended, _) => unreachable!("a batch that has ended is neither written nor synced"),
        };
        self.stage = stage;
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The actions of a batch whose write and sync have these results.
    fn actions(durability: Durability, is_in_reserve: bool, results: &[bool]) -> Vec<BatchAction> {
        let (mut steps, first) = BatchSteps::begin(durability, is_in_reserve);
        let later = results.iter().flat_map(|has_succeeded| steps.step(*has_succeeded));
        first.iter().chain(later.collect::<Vec<_>>()).copied().collect()
    }

    #[test]
    fn batch_is_acknowledged_once_it_is_as_durable_as_configured() {
        let written = [Complete(BatchResult::Written), ChangeMode(ModeEvent::Written)];
        assert_eq!(actions(Durability::Written, false, &[true]), [&[Write][..], &written].concat());
        assert_eq!(actions(Durability::Synced, false, &[true]), [Write, Sync]);
        assert_eq!(actions(Durability::Synced, false, &[true, true]), [&[Write, Sync][..], &written].concat());
    }

    #[test]
    fn failed_write_is_taken_back_before_those_who_wait_are_told() {
        for durability in [Durability::Written, Durability::Synced] {
            let expected = [Write, ChangeMode(ModeEvent::WriteFailed), Restore, Complete(BatchResult::Failed)];
            assert_eq!(actions(durability, false, &[false]), expected);
        }
    }

    #[test]
    fn failed_sync_is_final_and_takes_nothing_back() {
        let expected =
            [Write, Sync, ChangeMode(ModeEvent::SyncFailed), WithdrawUnsynced, Complete(BatchResult::Failed)];
        assert_eq!(actions(Durability::Synced, false, &[true, false]), expected);
    }

    #[test]
    fn change_in_the_reserve_does_not_tell_that_there_is_room() {
        assert_eq!(actions(Durability::Written, true, &[true]), [Write, Complete(BatchResult::Written)]);
    }
}
