//! Migration: copies everything that an embedded state holds into a Redis state, while gateways may already serve from
//! the target.
//!
//! - Organizations come first, then the users of each, then its keys. The lists of one organization grow batch by
//!   batch, so that the order of creation stays; organizations are copied side by side.
//! - A batch is looked up on the target, and what is missing is written by one script, unless another writer was faster.
//!   So a migration that was interrupted anywhere is completed by another run, and existing records stay as they are.
//! - Conflicts are reported, never overwritten. Only a key with fewer uses on the target takes over uses and bucket of
//!   the source: its bucket would be fuller than it was.
//! - Replicas are waited for once, at the end; then everything is read back and compared (`verify`).

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::state::redis::import::Importer;
use crate::state::{OrgExport, Redis, StateExport};

mod report;
mod retry;
mod batch;
mod orgs;
mod users;
mod keys;
mod verify;

use batch::ORGS;
use retry::retry;

pub use report::{Count, Finding, LeftOut, Mismatch, Phase, Progress, Record, Report};
pub use retry::MigrationError;

/// Copies a full export into `target`, then verifies it. The source must not be used meanwhile.
///
/// # Errors
/// [`MigrationError`] when it ended early. Conflicts, and differences found by the verification, are in the report.
pub async fn migrate(export: &StateExport, target: &Redis, progress: &Progress) -> Result<Report, MigrationError> {
    let target = target.importer();
    target.ensure_reachable().await.map_err(MigrationError::Unreachable)?;
    progress.begin(Phase::Copying, record_count(export));
    let mut report = Report::default();
    let usable = orgs::copy_orgs(target, &export.orgs, &mut report, progress).await?;
    let copies = stream::iter(usable.iter().map(|org| copy_org(target, org, progress))).buffered(ORGS);
    let copies: Vec<Report> = copies.try_collect().await?;
    copies.into_iter().for_each(|of_org| report.add(of_org));
    for confirmation in target.confirmations(&usable) {
        retry(async || target.confirm(&confirmation).await).await?;
    }
    progress.begin(Phase::Verifying, record_count(export));
    report.differences = verify::verify(target, &export.orgs, &usable, &report, progress).await?;
    Ok(report)
}

/// Copies the users and keys of an organization whose record is on the target.
async fn copy_org(target: Importer<'_>, org: &OrgExport, progress: &Progress) -> Result<Report, MigrationError> {
    let mut report = Report::default();
    users::copy_users(target, org, &mut report, progress).await?;
    keys::copy_keys(target, org, &mut report, progress).await?;
    Ok(report)
}

fn record_count(export: &StateExport) -> u64 {
    export.orgs.iter().map(|org| 1 + org.users.len() as u64 + org.keys.len() as u64).sum()
}
