//! Write-back of the writer thread: usage of keys, uses and expiries of sessions, and keys that leave the working set.

use std::time::{Duration, Instant};

use crate::clock;

use super::file_reserve::Demand;
use super::writer::{Round, SESSION_INTERVAL, WriterThread};
use super::{retired, session_rows, usage_rows};

/// Longest time between a use reading the clock and its key being marked dirty. No thread is suspended between
/// the two for longer than this on a machine that still serves.
const MARGIN: Duration = Duration::from_secs(10);
/// Keys written back in one transaction: changes wait for it, so it should take a fraction of a second.
const KEYS_PER_ROUND: usize = 50_000;

impl WriterThread {
    /// Writes back the usage of dirty keys, [`KEYS_PER_ROUND`] at most.
    pub(super) fn write_back(&mut self) -> Round {
        if self.pending.is_empty() {
            self.taken_at = clock::now();
            self.pending = self.directory.dirty.take(std::mem::take(&mut self.pending));
        }
        if self.pending.is_empty() {
            return Round::Complete;
        }
        let rest = self.pending.len().saturating_sub(KEYS_PER_ROUND);
        let used = self.pending[rest..].iter().map(|record| (record.id, record.take_usage()));
        // Only after the last round of a list has the file every use up to the time at which the list was taken. A use
        // reads the clock before it marks its key dirty, hence the margin.
        let counted_up_to = (rest == 0).then(|| self.taken_at.before(MARGIN));
        let checked = self.reserve.check(&self.connection, Demand::Usage);
        match checked.and_then(|()| usage_rows::write_back(&mut self.connection, used, counted_up_to)) {
            Ok(()) => self.finish_round(rest),
            Err(error) => self.fail_round(&error),
        }
    }

    fn finish_round(&mut self, rest: usize) -> Round {
        self.pending.truncate(rest);
        if std::mem::take(&mut self.failing) {
            tracing::info!("usage of keys is written back to the state file again");
        }
        if rest == 0 { Round::Complete } else { Round::More }
    }

    /// Leaves pending what was to be written, for the next round. Logs the first of a series of failures.
    fn fail_round(&mut self, error: &rusqlite::Error) -> Round {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, "cannot write usage back to the state file; retrying each second");
        }
        Round::Failed
    }

    /// Writes back uses and expiries of sessions, and removes expired tickets.
    pub(super) fn write_sessions(&mut self) {
        let (sessions, now) = (&self.directory.sessions, clock::now());
        let updates = sessions.collect_updates(now);
        match session_rows::write_back(&mut self.connection, &updates, now) {
            Ok(()) => sessions.mark_written(&updates, now),
            Err(error) => drop(self.fail_round(&error)),
        }
    }

    /// Takes the keys whose revocation is long past out of the directory, [`retired::KEYS_PER_ROUND`] at most. More of them
    /// follow at once, after the requests that wait.
    pub(super) fn retire_keys(&mut self) {
        self.retire_due = Instant::now() + SESSION_INTERVAL;
        let (now, Some(keep)) = (clock::now(), self.directory.keep_revoked()) else { return };
        match retired::retire(&mut self.connection, now.before(keep), now) {
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
