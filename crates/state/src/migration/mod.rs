//! Migration: copies the records of one state into another, while gateways may already serve from the target.
//!
//! - `state copy` ([`migrate`]) is the case in which the source is an embedded state that is not in use, and the target a
//!   Redis state whose records stay as they are. Then everything is read back.
//! - `state import` ([`import`]) takes records from a file ([`mod@file`]) into any state, where the stricter of two wins. So an
//!   old file brings no revoked key back.
//! - Organizations come first, then the users of each, then its keys. The lists of one organization grow batch by
//!   batch, so that the order of creation stays; organizations are copied side by side.
//! - A batch is looked up on the target, and what is missing is written by one script, unless another writer was faster.
//!   So a migration that was interrupted anywhere is completed by another run, and existing records stay as they are.
//! - Conflicts are reported, never overwritten. Only a key with fewer uses on the target takes over uses and bucket of
//!   the source: its bucket would be fuller than it was.
//! - Replicas are waited for once, at the end; then everything is read back and compared (`verify`).

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Org, OrgExport, Redis, StateExport};

mod report;
mod retry;
mod batch;
mod orgs;
mod users;
mod keys;
mod verify;
mod import;
pub mod file;

use batch::{Merge, ORGS, Target};
use retry::retry;

pub use import::import;
pub use report::{Count, Finding, LeftOut, Mismatch, Phase, Progress, Record, Report};
pub use retry::MigrationError;

/// Copies a full export into `target`, then verifies it. The source must not be used meanwhile.
///
/// # Errors
/// [`MigrationError`] when it ended early. Conflicts, and differences found by the verification, are in the report.
pub async fn migrate(export: &StateExport, target: &Redis, progress: &Progress) -> Result<Report, MigrationError> {
    let store = target.importer();
    let target = Target { store, merge: Merge::Keep };
    store.ensure_reachable().await.map_err(MigrationError::Unreachable)?;
    progress.begin(Phase::Copying, record_count(export));
    let mut report = Report::default();
    let usable = copy_orgs(target, export, &mut report, progress).await?;
    let copies = stream::iter(usable.iter().map(|org| copy_org(target, org, progress))).buffered(ORGS);
    let copies: Vec<Report> = copies.try_collect().await?;
    copies.into_iter().for_each(|of_org| report.add(of_org));
    let orgs: Vec<_> = usable.iter().map(|org| (org.org.id, org.org.tag)).collect();
    let keys: Vec<_> = usable.iter().flat_map(|org| &org.keys).collect();
    for confirmation in store.confirmations(&orgs, &keys) {
        retry(async || store.confirm(&confirmation).await).await?;
    }
    progress.begin(Phase::Verifying, record_count(export));
    report.differences = verify::verify(target, &export.orgs, &usable, &report, progress).await?;
    Ok(report)
}

/// Copies the organizations themselves; returns those whose users and keys can be copied.
async fn copy_orgs<'a>(
    target: Target<'_>,
    export: &'a StateExport,
    report: &mut Report,
    progress: &Progress,
) -> Result<Vec<&'a OrgExport>, MigrationError> {
    let records: Vec<&Org> = export.orgs.iter().map(|org| &org.org).collect();
    let usable = orgs::copy_orgs(target, &records, report, progress).await?;
    let (usable, others): (Vec<_>, Vec<_>) = export.orgs.iter().zip(usable).partition(|(_, usable)| *usable);
    for (org, _) in others {
        report.left_out.users += org.users.len() as u64;
        report.left_out.keys += org.keys.len() as u64;
    }
    Ok(usable.into_iter().map(|(org, _)| org).collect())
}

/// Copies the users and keys of an organization whose record is on the target.
async fn copy_org(target: Target<'_>, org: &OrgExport, progress: &Progress) -> Result<Report, MigrationError> {
    let mut report = Report::default();
    let (users, keys): (Vec<_>, Vec<_>) = (org.users.iter().collect(), org.keys.iter().collect());
    users::copy_users(target, org.org.tag, &users, &mut report, progress).await?;
    keys::copy_keys(target, org.org.tag, &keys, &mut report, progress).await?;
    Ok(report)
}

fn record_count(export: &StateExport) -> u64 {
    export.orgs.iter().map(|org| 1 + org.users.len() as u64 + org.keys.len() as u64).sum()
}
