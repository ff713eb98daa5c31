//! Errors of a step of a change.

use super::transaction::CommitResult;
use crate::ChangeError;
use redis_client::CommandError;

/// A step of a change that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The change is refused; repeating it does not help.
    #[error(transparent)]
    Final(#[from] ChangeError),
    /// Another writer changed the same records since they were read: read them again.
    #[error("another writer changed the same records")]
    Conflict,
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The operating system gives no randomness, so there is no version for the record.
    #[error("the operating system gives no randomness")]
    Randomness(#[from] getrandom::Error),
}

impl<F: Into<CommitError>> CommitResult<F> {
    /// The number of replicas that have the writes.
    ///
    /// # Errors
    /// The failure of the check that did not hold.
    pub(crate) fn into_replicas(self) -> Result<u32, CommitError> {
        match self {
            Self::Written(replicas) => Ok(replicas),
            Self::Failed(failure) => Err(failure.into()),
        }
    }
}
