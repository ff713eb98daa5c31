//! Errors of an import.

use crate::state::redis::client::CommandError;
use crate::state::redis::directory::CommitError;
use crate::state::{ChangeError, Unavailable};

/// Reason why a step of an import did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Another writer changed the same records meanwhile; nothing was written. Read them again.
    #[error("another writer changed the same records")]
    Conflict,
    /// The records are written, but too few replicas confirmed them.
    #[error(transparent)]
    NotReplicated(ChangeError),
    /// Redis did not answer, or answered with an error; records may have been written.
    #[error("{failure}")]
    Unavailable {
        /// Kind of the failure.
        reason: Unavailable,
        /// The failure of the command.
        failure: Box<dyn std::error::Error + Send + Sync>,
    },
}

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
