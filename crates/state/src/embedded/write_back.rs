//! Write-back of the writer thread: usage of keys, uses and expiries of sessions, and keys that leave the working set.

use std::time::{Duration, Instant};

use domain::clock::{self, Micros};
use domain::key::KeyId;
use rusqlite::Connection;

use super::checkpoint::{Checkpoint, Round};
use super::file_reserve::Demand;
use super::sessions::SessionUpdates;
use super::usage_blocks::CountedUpTo;
use super::writer::{SESSION_INTERVAL, WriterThread};
use super::{budgets, checkpoint, federation, preconditions, retired, session_rows, tickets, usage_blocks};

/// Longest time between a use reading the clock and its key being marked dirty. No thread is suspended between
/// the two for longer than this on a machine that still serves.
const MARGIN: Duration = Duration::from_secs(10);

impl WriterThread {
    /// Goes on with a checkpoint that is not complete, and begins the next one when it is due.
    pub(super) fn write_back_due(&mut self) -> Round {
        if !self.checkpoint.pending.is_empty() || self.schedule.begin_if_due(Instant::now()) {
            self.write_back()
        } else {
            Round::Complete
        }
    }

    /// Writes back the usage of dirty keys, of some blocks at most.
    fn write_back(&mut self) -> Round {
        if self.checkpoint.pending.is_empty() {
            let emptied = std::mem::take(&mut self.checkpoint.pending);
            self.checkpoint.taken_at = clock::now();
            // Before the keys are taken: a use is counted, and its key dirty, before it is in the journal.
            self.checkpoint.taken_line = self.schedule.journal_line();
            self.checkpoint.pending = self.directory.dirty.take(emptied);
            self.checkpoint.is_sorted = false;
        }
        if let Err(error) = self.write_budgets() {
            return self.fail_round(&error);
        }
        if self.checkpoint.pending.is_empty() {
            return Round::Complete;
        }
        match self.write_round() {
            Ok(0) => self.finish_round(Round::Complete),
            Ok(_) => self.finish_round(Round::More),
            Err(error) => self.fail_round(&error),
        }
    }

    /// Writes back the meters of budgets, before the checkpoint is complete that says that they are.
    pub(super) fn write_budgets(&mut self) -> rusqlite::Result<()> {
        let meters = self.directory.budgets.take_changed();
        if meters.is_empty() {
            return Ok(());
        }
        let written = self.reserve.check(&self.connection, Demand::Usage);
        let written = written.and_then(|()| budgets::write(&mut self.connection, &meters));
        if written.is_err() {
            self.directory.budgets.put_back(meters);
        }
        written
    }

    /// Returns the number of keys that are left.
    fn write_round(&mut self) -> rusqlite::Result<usize> {
        self.reserve.check(&self.connection, Demand::Usage)?;
        self.sort_pending()?;
        let Checkpoint { pending, taken_at, taken_line, .. } = &mut self.checkpoint;
        debug_assert!(pending.is_sorted_by_key(|record| std::cmp::Reverse(record.row())), "the last rows first");
        let rest = checkpoint::round_start(pending);
        let mut used: Vec<_> = pending[rest..].iter().rev().map(|record| (record.row(), record.take_usage())).collect();
        // Only after the last round of a list has the file every use up to the time at which the list was taken. A use
        // reads the clock before it marks its key dirty, hence the margin.
        let counted_up_to = (rest == 0).then(|| CountedUpTo { time: taken_at.before(MARGIN), line: *taken_line });
        usage_blocks::write(&mut self.connection, &mut used, counted_up_to)?;
        pending.truncate(rest);
        Ok(rest)
    }

    /// Sorts the pending keys by their rows, which are looked up for keys that were created by this process.
    fn sort_pending(&mut self) -> rusqlite::Result<()> {
        let Checkpoint { pending, is_sorted, .. } = &mut self.checkpoint;
        if !*is_sorted {
            for record in pending.iter().filter(|record| record.row() == 0) {
                record.set_row(usage_blocks::find_row(&self.connection, record.id().as_str())?.unwrap_or(0));
            }
            // Every key was committed before it could be used, so none is left out.
            pending.retain(|record| record.row() != 0);
            pending.sort_unstable_by_key(|record| std::cmp::Reverse(record.row()));
            *is_sorted = true;
        }
        Ok(())
    }

    fn finish_round(&mut self, round: Round) -> Round {
        if std::mem::take(&mut self.checkpoint.failing) {
            tracing::info!("usage of keys is written back to the state file again");
        }
        round
    }

    /// Leaves pending what was to be written, for the next round. Logs the first of a series of failures.
    fn fail_round(&mut self, error: &rusqlite::Error) -> Round {
        if !std::mem::replace(&mut self.checkpoint.failing, true) {
            tracing::error!(%error, "cannot write usage back to the state file; retrying each second");
        }
        Round::Failed
    }

    /// Writes back uses and expiries of sessions, and removes what has expired.
    pub(super) fn write_sessions(&mut self) {
        let sessions = &self.directory.sessions;
        let now = clock::now();
        let updates = sessions.collect_updates(now);
        match write_sessions(&mut self.connection, &updates, now) {
            Ok(()) => sessions.mark_written(&updates, now),
            Err(error) => drop(self.fail_round(&error)),
        }
    }

    /// Takes the keys whose revocation is long past out of the directory, [`retired::KEYS_PER_ROUND`] at most. More of
    /// them follow at once, after the requests that wait.
    pub(super) fn retire_keys(&mut self) {
        self.retire_due = Instant::now() + SESSION_INTERVAL;
        let Some(keep) = self.directory.keep_revoked() else { return };
        let now = clock::now();
        let retired = retired::retire(&mut self.connection, now.before(keep), now);
        self.take_out(retired);
        let ended = federation::retire_ended(&mut self.connection, now);
        self.take_out(ended);
    }

    /// Takes keys out of the directory that the file has as retired.
    fn take_out(&mut self, retired: rusqlite::Result<Vec<KeyId>>) {
        match retired {
            Ok(keys) => {
                if u32::try_from(keys.len()) == Ok(retired::KEYS_PER_ROUND) {
                    self.retire_due = Instant::now();
                }
                keys.into_iter().for_each(|key| self.directory.retire(key));
            }
            Err(error) => drop(self.fail_round(&error)),
        }
    }

    /// Writes back everything: what is left of the last list, then the keys that became dirty since it was taken.
    pub(super) fn write_back_all(&mut self) {
        for _ in 0..2 {
            while self.write_back() == Round::More {}
        }
    }
}

/// Writes back uses and expiries of sessions and removes expired tickets and idempotency records, in one transaction.
fn write_sessions(connection: &mut Connection, updates: &SessionUpdates, now: Micros) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    session_rows::write_updates(&transaction, updates)?;
    tickets::remove_expired(&transaction, now)?;
    preconditions::remove_expired_in_background(&transaction, now)?;
    transaction.commit()
}
