//! One batch: its records are looked up on the target, then what is missing is written by one script.
//!
//! A batch is looked up again when another writer was faster or Redis was away. So a record that another run wrote, or
//! a run whose answer was lost, is found to be there and is not written twice.

use super::report::Mismatch;
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

/// A record of the export as it exists on the target.
pub(super) enum Existing<T> {
    /// It exists and is equal.
    Same,
    /// It is missing, in whole or in part; `T` says in which parts.
    Incomplete(T),
    /// Another record is in its place, or its user is missing.
    Conflict(Mismatch),
}

/// The incomplete records of a batch, with their missing parts.
pub(super) fn incomplete<'a, R, T>(
    batch: &'a [&'a R],
    existing: &'a [Existing<T>],
) -> impl Iterator<Item = (&'a R, &'a T)> {
    batch.iter().zip(existing).filter_map(|(record, found)| match found {
        Existing::Incomplete(missing) => Some((*record, missing)),
        Existing::Same | Existing::Conflict(_) => None,
    })
}

/// Looks a batch up and writes what is missing, until both succeed. Returns its records as they existed at first: after
/// a retry our own writes are there already. One that is in conflict at the end was not written, and is returned so.
pub(super) async fn complete<T>(
    look_up: impl AsyncFn() -> Result<Vec<Existing<T>>, ImportError>,
    write: impl AsyncFn(&[Existing<T>]) -> Result<(), ImportError>,
) -> Result<Vec<Existing<T>>, MigrationError> {
    let mut first: Option<Vec<Existing<T>>> = None;
    let mut retries = Retries::default();
    loop {
        let existing = match look_up().await {
            Ok(existing) => existing,
            Err(error) => {
                retries.wait_after(error).await?;
                continue;
            }
        };
        let is_incomplete = existing.iter().any(|record| matches!(record, Existing::Incomplete(_)));
        let written = if is_incomplete { write(&existing).await } else { Ok(()) };
        match (written, first.take()) {
            (Ok(()), None) => return Ok(existing),
            (Ok(()), Some(first)) => return Ok(first.into_iter().zip(existing).map(as_found).collect()),
            (Err(error), before) => {
                first = before.or(Some(existing));
                retries.wait_after(error).await?;
            }
        }
    }
}

/// A record as it existed at first, or its conflict at the end.
fn as_found<T>((first, last): (Existing<T>, Existing<T>)) -> Existing<T> {
    match (first, last) {
        (_, conflict @ Existing::Conflict(_)) => conflict,
        // The conflict ended meanwhile.
        (Existing::Conflict(_), _) => Existing::Same,
        (first, _) => first,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const CONFLICT: Existing<()> = Existing::Conflict(Mismatch::Missing);

    #[tokio::test]
    async fn batch_is_written_again_after_a_conflict_and_reported_as_it_was_found_at_first() {
        let looks = Cell::new(0);
        let look_up = async || {
            looks.set(looks.get() + 1);
            // Three of five records change between the look-ups.
            Ok(match looks.get() {
                1 => vec![Existing::Incomplete(()), Existing::Incomplete(()), Existing::Same, CONFLICT, CONFLICT],
                _ => vec![Existing::Same, CONFLICT, Existing::Same, CONFLICT, Existing::Incomplete(())],
            })
        };
        let write = async |_: &[Existing<()>]| if looks.get() == 1 { Err(ImportError::Conflict) } else { Ok(()) };
        let found = complete(look_up, write).await.unwrap();
        assert_eq!(looks.get(), 2);
        assert!(matches!(found[0], Existing::Incomplete(())), "written by an attempt whose answer was lost");
        assert!(matches!(found[1], Existing::Conflict(_)), "another writer was faster");
        assert!(matches!(found[2], Existing::Same));
        assert!(matches!(found[3], Existing::Conflict(_)));
        assert!(matches!(found[4], Existing::Same), "its conflict ended meanwhile");
    }
}
