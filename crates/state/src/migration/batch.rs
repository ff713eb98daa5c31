//! One batch: its records are looked up on the target, then what is missing is written by one script.
//!
//! A batch is looked up again when another writer was faster or Redis was away. So a record that another run wrote, or
//! a run whose answer was lost, is found to be there and is not written twice.

use super::found::Found;
use super::retry::{MigrationError, Retries};
use crate::import::{ImportError, Importer};

/// Records that are looked up side by side, and on Redis written by one script, which blocks the server: half a
/// millisecond, little enough for gateways that serve from it.
pub(super) const BATCH: usize = 64;
/// Batches of keys that are written side by side on Redis.
const CONCURRENT_BATCHES: usize = 8;
/// Records that the embedded state commits together: some 20 ms, which a revocation waits for.
const COMMITTED_BATCH: usize = 1024;
/// Batches of keys that the embedded state has at a time: one is committed, and the next is looked up. A revocation
/// waits for both.
const COMMITTED_BATCHES: usize = 2;

/// Records of a batch, which are written together.
pub(super) fn size(store: Importer<'_>) -> usize {
    if store.has_group_commit() { COMMITTED_BATCH } else { BATCH }
}

/// Batches of keys that are written side by side.
pub(super) fn concurrent(store: Importer<'_>) -> usize {
    if store.has_group_commit() { COMMITTED_BATCHES } else { CONCURRENT_BATCHES }
}

/// Looks a batch up and writes what is missing, until both succeed. Returns its records as they existed at first: after
/// a retry our own writes are there already. One that is in conflict at the end was not written, and is returned so.
pub(super) async fn complete(
    look_up: impl AsyncFn() -> Result<Vec<Found>, ImportError>,
    write: impl AsyncFn(&[Found]) -> Result<(), ImportError>,
) -> Result<Vec<Found>, MigrationError> {
    let mut first: Option<Vec<Found>> = None;
    let mut retries = Retries::default();
    loop {
        let found = match look_up().await {
            Ok(found) => found,
            Err(error) => {
                retries.wait_after(error).await?;
                continue;
            }
        };
        let written = if found.iter().any(Found::has_gap) { write(&found).await } else { Ok(()) };
        match (written, first.take()) {
            (Ok(()), None) => return Ok(found),
            (Ok(()), Some(first)) => return Ok(first.into_iter().zip(found).map(as_found).collect()),
            (Err(error), before) => {
                first = before.or(Some(found));
                retries.wait_after(error).await?;
            }
        }
    }
}

/// A record as it was found at first, with its conflict at the end. One that another writer has created otherwise
/// meanwhile was not created here.
fn as_found((first, last): (Found, Found)) -> Found {
    match last.conflict {
        Some(_) => {
            // A key that was absent at first is another one's by now.
            let claims = if first.is_absent { Vec::new() } else { first.claims };
            Found { withdrawals: first.withdrawals, claims, conflict: last.conflict, ..Found::default() }
        }
        None => Found { conflict: None, ..first },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::report::Mismatch;
    use super::*;

    fn absent() -> Found {
        Found { is_absent: true, ..Found::default() }
    }

    fn conflict() -> Found {
        Found { conflict: Some(Mismatch::Missing), ..Found::default() }
    }

    #[tokio::test]
    async fn batch_is_written_again_after_a_conflict_and_reported_as_it_was_found_at_first() {
        let looks = Cell::new(0);
        let look_up = async || {
            looks.set(looks.get() + 1);
            // Three of five records change between the look-ups.
            Ok(match looks.get() {
                1 => vec![absent(), absent(), Found::default(), conflict(), conflict()],
                _ => vec![Found::default(), conflict(), Found::default(), conflict(), absent()],
            })
        };
        let write = async |_: &[Found]| if looks.get() == 1 { Err(ImportError::Conflict) } else { Ok(()) };
        let found = complete(look_up, write).await.unwrap();
        assert_eq!(looks.get(), 2);
        let is_absent: Vec<bool> = found.iter().map(|found| found.is_absent).collect();
        // The first was written by an attempt whose answer was lost; at the second, another writer was faster.
        assert_eq!(is_absent, [true, false, false, false, false]);
        let in_conflict: Vec<bool> = found.iter().map(|found| found.conflict.is_some()).collect();
        assert_eq!(in_conflict, [false, true, false, true, false], "that of the last ended meanwhile");
    }
}
