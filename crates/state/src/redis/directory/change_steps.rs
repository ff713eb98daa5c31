//! The steps of one change, without I/O: the order of its writes, and what comes after an attempt.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::commit_error::CommitError;
use super::transactions::CHANGE_TIMEOUT;
use crate::{ChangeError, StorageError, Unavailable};
use redis_client::Durability;

/// Pause before a change is repeated after a failed command.
const PAUSE: Duration = Duration::from_millis(100);
/// Added by each conflict to the longest pause before a change begins anew: of many changes of one record, one is made
/// at a time.
const CONFLICT_PAUSE: Duration = Duration::from_millis(1);
/// Times that a change begins anew because of conflicts.
const MAX_CONFLICTS: u32 = 100;
/// The longest change commits in four places, one after the other, and each may wait for replicas.
const COMMITS: u32 = 4;

/// A write of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeWrite {
    /// Its records.
    Records,
    /// Its number in the record of the shared revocation log, with its entry there, if it has one.
    Log,
}

impl ChangeWrite {
    /// All writes, in their order. The entry comes after the change, so that a gateway that reads it finds the
    /// credential revoked.
    pub const ORDER: [Self; 2] = [Self::Records, Self::Log];
}

/// Progress of one change.
#[derive(Debug)]
pub struct ChangeSteps {
    /// Time for an attempt, and after which no other one begins.
    pub limit: Duration,
    begun: Instant,
    conflicts: u32,
    /// True after an attempt that may have written: the next one has to recognize its own writes.
    pub is_retry: bool,
}

impl ChangeSteps {
    /// Begins a change.
    pub fn begin(durability: Durability, now: Instant) -> Self {
        let limit = CHANGE_TIMEOUT + COMMITS * durability.timeout;
        Self { limit, begun: now, conflicts: 0, is_retry: false }
    }

    /// Checks that as many replicas as are configured have a change.
    pub(crate) fn check_replicated(durability: Durability, reached: u32) -> Result<(), ChangeError> {
        let wanted = durability.replicas;
        if reached < wanted { Err(ChangeError::NotReplicated { wanted, reached }) } else { Ok(()) }
    }

    /// The step after an attempt that ended at `now` with the number of replicas that have all writes: the next
    /// attempt, after a pause of this at most; or the end of the change.
    pub fn after_attempt(
        &mut self,
        result: Result<u32, CommitError>,
        durability: Durability,
        now: Instant,
    ) -> ControlFlow<Result<(), ChangeError>, Duration> {
        ControlFlow::Break(match result {
            Ok(reached) => Self::check_replicated(durability, reached),
            Err(CommitError::Final(error)) => Err(error),
            // A conflict leaves nothing behind, so what follows is not a retry of a half-made change.
            Err(CommitError::Conflict) if self.conflicts < MAX_CONFLICTS => {
                let pause = CONFLICT_PAUSE * self.conflicts;
                self.conflicts += 1;
                return ControlFlow::Continue(pause);
            }
            Err(CommitError::Command(error)) if now.duration_since(self.begun) > self.limit => {
                tracing::warn!(%error, "cannot write the change to Redis; it may have been made: repeat it");
                Err(ChangeError::Unavailable(StorageError::Redis(error.into())))
            }
            Err(CommitError::Command(_)) => {
                self.is_retry = true;
                return ControlFlow::Continue(PAUSE);
            }
            Err(CommitError::Conflict | CommitError::Randomness(_)) if self.is_retry => {
                // An earlier attempt may have made it.
                Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut)))
            }
            Err(CommitError::Conflict | CommitError::Randomness(_)) => {
                Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::Overloaded)))
            }
        })
    }
}
