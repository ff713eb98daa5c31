//! Organizations: their records first, side by side, then their names and places in the list, in order.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{BATCH, Existing, complete};
use super::report::{Finding, Mismatch, Progress, Record, Report};
use super::retry::MigrationError;
use crate::state::redis::import::{ImportError, Importer};
use crate::state::{Org, OrgExport};

/// The missing parts of an organization.
pub(super) struct MissingOrgParts {
    record: bool,
    listing: bool,
}

/// Copies the organizations themselves; returns those whose users and keys can be copied.
pub(super) async fn copy_orgs<'a>(
    target: Importer<'_>,
    orgs: &'a [OrgExport],
    report: &mut Report,
    progress: &Progress,
) -> Result<Vec<&'a OrgExport>, MigrationError> {
    let mut usable = Vec::with_capacity(orgs.len());
    for batch in orgs.chunks(BATCH) {
        let look_up = async || look_up_orgs(target, batch).await;
        let write = async |existing: &[Existing<MissingOrgParts>]| write_orgs(target, batch, existing).await;
        let completed = complete(look_up, write).await?;
        for ((org, first), conflict) in batch.iter().zip(completed.first).zip(completed.conflicts) {
            if is_usable(conflict.as_ref()) {
                usable.push(org);
            } else {
                report.left_out.users += org.users.len() as u64;
                report.left_out.keys += org.keys.len() as u64;
            }
            match conflict {
                None => report.orgs.add_one(matches!(first, Existing::Same)),
                Some(problem) => report.in_the_way.push(Finding { record: Record::Org(org.org.id), problem }),
            }
        }
        progress.advance(batch.len());
    }
    Ok(usable)
}

/// An organization that is there under the same id and tag can take its users and keys, even when other fields differ.
fn is_usable(conflict: Option<&Mismatch>) -> bool {
    matches!(conflict, None | Some(Mismatch::Differs(_)))
}

/// Looks organizations up on the target.
pub(super) async fn look_up_orgs(
    target: Importer<'_>,
    orgs: &[OrgExport],
) -> Result<Vec<Existing<MissingOrgParts>>, ImportError> {
    stream::iter(orgs.iter().map(|org| look_up_org(target, &org.org))).buffered(BATCH).try_collect().await
}

async fn look_up_org(target: Importer<'_>, org: &Org) -> Result<Existing<MissingOrgParts>, ImportError> {
    let stored = target.org(org.tag).await?;
    if let Some(other) = stored.as_ref().filter(|stored| stored.id != org.id) {
        return Ok(Existing::Conflict(Mismatch::TagTaken(other.id)));
    }
    let listed = target.tag_of(org.id).await?;
    if let Some(tag) = listed.filter(|tag| *tag != org.tag) {
        return Ok(Existing::Conflict(Mismatch::OtherTag(tag)));
    }
    let name = target.org_id_by_name(&org.name).await?;
    if let Some(by) = name.filter(|by| *by != org.id.to_string()) {
        return Ok(Existing::Conflict(Mismatch::NameTaken { name: org.name.clone(), by }));
    }
    let differences = stored.as_ref().map(|stored| differences(org, stored)).unwrap_or_default();
    if !differences.is_empty() {
        return Ok(Existing::Conflict(Mismatch::Differs(differences)));
    }
    let (record, listing) = (stored.is_none(), listed.is_none());
    Ok(if record || listing { Existing::Incomplete(MissingOrgParts { record, listing }) } else { Existing::Same })
}

async fn write_orgs(
    target: Importer<'_>,
    orgs: &[OrgExport],
    existing: &[Existing<MissingOrgParts>],
) -> Result<(), ImportError> {
    let incomplete = || orgs.iter().zip(existing).filter_map(|(org, found)| Some((&org.org, found.missing()?)));
    let records = incomplete().filter(|(_, missing)| missing.record).map(|(org, _)| Ok(org));
    stream::iter(records).try_for_each_concurrent(BATCH, async |org| target.create_org(org).await).await?;
    target.list_orgs(incomplete().filter(|(_, missing)| missing.listing).map(|(org, _)| org)).await
}

fn differences(org: &Org, stored: &Org) -> Vec<&'static str> {
    let same = [
        ("name", org.name == stored.name),
        ("created", org.created == stored.created),
        ("suspended", org.suspended == stored.suspended),
        ("concurrent", org.concurrent == stored.concurrent),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
