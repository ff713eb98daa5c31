//! One batch: its records are looked up on the target, then what is missing is written by one script.
//!
//! A batch is looked up again when another writer was faster or Redis was away. So a record that another run wrote, or
//! a run whose answer was lost, is found to be there and is not written twice.

use super::report::Mismatch;
use super::retry::{MigrationError, Retries};
use crate::import::ImportError;

/// Records that are looked up together and written by one script, which blocks the server: half a millisecond, little
/// enough for gateways that serve from it.
pub(super) const BATCH: usize = 64;

/// A record of the export as it exists on the target.
pub(super) enum Existing<T> {
    /// It exists and is equal.
    Same,
    /// It is missing, in whole or in part; `T` says in which parts.
    Incomplete(T),
    /// Another record is in its place.
    Conflict(Mismatch),
    /// The user that it belongs to is missing.
    OwnerMissing,
}

/// A batch that was written.
pub(super) struct CompletedBatch<T> {
    /// The records as they existed at first.
    pub(super) first: Vec<Existing<T>>,
    /// For each record the conflict that keeps it from being written.
    pub(super) conflicts: Vec<Option<Mismatch>>,
}

impl<T> Existing<T> {
    /// The missing parts of an incomplete record.
    pub(super) fn missing(&self) -> Option<&T> {
        match self {
            Self::Incomplete(missing) => Some(missing),
            Self::Same | Self::Conflict(_) | Self::OwnerMissing => None,
        }
    }

    fn conflict(&self) -> Option<Mismatch> {
        match self {
            Self::Conflict(mismatch) => Some(mismatch.clone()),
            Self::Same | Self::Incomplete(_) | Self::OwnerMissing => None,
        }
    }
}

/// Looks a batch up and writes what is missing, until both succeed.
pub(super) async fn complete<T>(
    look_up: impl AsyncFn() -> Result<Vec<Existing<T>>, ImportError>,
    write: impl AsyncFn(&[Existing<T>]) -> Result<(), ImportError>,
) -> Result<CompletedBatch<T>, MigrationError> {
    let (mut first, mut retries) = (None, Retries::default());
    loop {
        let existing = match look_up().await {
            Ok(existing) => existing,
            Err(error) => {
                retries.wait_after(error).await?;
                continue;
            }
        };
        let incomplete = existing.iter().any(|record| record.missing().is_some());
        let written = if incomplete { write(&existing).await } else { Ok(()) };
        let conflicts = existing.iter().map(Existing::conflict).collect();
        // The report counts a record by how it was found at first: after a retry our own writes are there already.
        let first = first.get_or_insert(existing);
        match written {
            Ok(()) => return Ok(CompletedBatch { first: std::mem::take(first), conflicts }),
            Err(error) => retries.wait_after(error).await?,
        }
    }
}
