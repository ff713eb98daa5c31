//! Copies a SQLite file into an empty PostgreSQL database: organizations with their versions, all row versions, and the
//! live snapshots, so that cursors of the source are valid at the target under the same keys.
//!
//! - The target gets everything in one transaction, which is committed only when its totals are those of the source. An
//!   interrupted copy leaves it empty, and is begun again.
//! - The source is locked against writes until the target has committed.

use std::path::Path;

use super::bound;
use super::postgresql::{CopyTarget, CopyTargetError, CopyTransaction};
use super::records::StoreTotals;
use super::sqlite::{CopySource, CopySourceError};
use platform::postgresql;

/// Records per statement: enough that the round trips do not count, some MiB at most with long queries.
const BATCH: usize = 1000;

/// A copy failed; the target is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source.
    #[error("cannot read the source")]
    Source(#[from] CopySourceError),
    /// The target.
    #[error("cannot write the target")]
    Target(#[from] CopyTargetError),
    /// The totals differ.
    #[error("the target has {target:?}, the source has {source_totals:?}; nothing was kept")]
    Mismatch {
        /// Totals of the source.
        source_totals: StoreTotals,
        /// Totals of the target.
        target: StoreTotals,
    },
}

/// Row versions that were copied so far, and their total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// Copied row versions.
    pub copied: i64,
    /// All of the source.
    pub total: i64,
}

/// Copies a SQLite file to a database, and returns the verified totals. `report` is called after each
/// batch of row versions.
///
/// # Errors
/// [`CopyError`].
pub async fn copy(
    from: &Path,
    to: postgresql::Settings,
    mut report: impl FnMut(CopyProgress),
) -> Result<StoreTotals, CopyError> {
    let source = CopySource::open(from)?;
    let mut target = CopyTarget::open(to).await?;
    let totals = source.totals()?;
    let transaction = target.begin().await?;
    copy_orgs(&source, &transaction).await?;
    copy_row_versions(&source, &transaction, totals.current + totals.ended, &mut report).await?;
    copy_snapshots(&source, &transaction).await?;
    let copied = transaction.totals().await?;
    if copied != totals {
        return Err(CopyError::Mismatch { source_totals: totals, target: copied });
    }
    transaction.commit().await?;
    target.analyze().await?;
    Ok(totals)
}

async fn copy_orgs(source: &CopySource, target: &CopyTransaction<'_>) -> Result<(), CopyError> {
    let mut after = 0;
    loop {
        let records = source.orgs(after, BATCH)?;
        let Some(last) = records.last() else { return Ok(()) };
        after = last.number;
        target.write_orgs(&records).await?;
    }
}

async fn copy_row_versions(
    source: &CopySource,
    target: &CopyTransaction<'_>,
    total: i64,
    report: &mut impl FnMut(CopyProgress),
) -> Result<(), CopyError> {
    let mut after = None;
    let mut copied = 0;
    loop {
        let mut records = source.row_versions(after.as_ref(), BATCH)?;
        if records.is_empty() {
            return Ok(());
        }
        target.write_row_versions(&records).await?;
        copied += bound(records.len());
        report(CopyProgress { copied, total });
        after = records.pop();
    }
}

async fn copy_snapshots(source: &CopySource, target: &CopyTransaction<'_>) -> Result<(), CopyError> {
    let mut after = None;
    loop {
        let mut records = source.snapshots(after.as_ref(), BATCH)?;
        if records.is_empty() {
            return Ok(());
        }
        target.write_snapshots(&records).await?;
        after = records.pop();
    }
}
