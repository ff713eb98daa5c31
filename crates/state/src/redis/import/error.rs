//! Errors of an import into Redis, as those of every import.

use crate::Unavailable;
use crate::import::ImportError;
use crate::redis::directory::CommitError;
use redis_client::CommandError;

impl From<CommandError> for ImportError {
    fn from(failure: CommandError) -> Self {
        Self::Unavailable { reason: Unavailable::from(&failure), failure: Box::new(failure) }
    }
}

impl From<CommitError> for ImportError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Final(error) => Self::NotReplicated(error),
            CommitError::Command(failure) => failure.into(),
            // Without randomness there is no version for the record: the caller tries again, as after a conflict.
            CommitError::Conflict | CommitError::Randomness(_) => Self::Conflict,
        }
    }
}

impl From<getrandom::Error> for ImportError {
    fn from(_: getrandom::Error) -> Self {
        Self::Conflict
    }
}
