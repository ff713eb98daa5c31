//! Organizations: their records first, side by side, then their names and places in the list, in order.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{self, BATCH, Existing, complete, incomplete};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::MigrationError;
use crate::import::{Import, ImportError, Importer};
use crate::{Change, Org};

/// The missing parts of an organization.
pub(super) struct MissingOrgParts {
    record: bool,
    listing: bool,
    /// It is suspended in the export alone.
    suspension: bool,
    /// Other fields in which it differs, and which stay as they are.
    kept: Vec<&'static str>,
}

/// Imports the organizations themselves.
pub(super) async fn import_orgs(store: Importer<'_>, orgs: &[&Org], report: &mut Report) -> Result<(), MigrationError> {
    for batch in orgs.chunks(batch::size(store)) {
        let look_up = async || {
            let records = batch.iter().map(|org| look_up_org(store, org));
            stream::iter(records).buffered(BATCH).try_collect().await
        };
        let write = async |existing: &[Existing<MissingOrgParts>]| write_orgs(store, batch, existing).await;
        for (org, found) in batch.iter().zip(complete(look_up, write).await?) {
            count(report, org, found);
        }
    }
    Ok(())
}

fn count(report: &mut Report, org: &Org, found: Existing<MissingOrgParts>) {
    let record = Record::Org(org.id);
    match found {
        Existing::Same => report.orgs.add_one(true),
        Existing::Incomplete(missing) => {
            report.orgs.add_one(!missing.record && !missing.listing);
            report.withdrawn += u64::from(missing.suspension);
            report.keep(record, missing.kept);
        }
        Existing::Conflict(problem) => report.in_the_way.push(Finding { record, problem }),
    }
}

async fn look_up_org(store: Importer<'_>, org: &Org) -> Result<Existing<MissingOrgParts>, ImportError> {
    let stored = store.org(org.tag).await?;
    if let Some(other) = stored.as_ref().filter(|stored| stored.id != org.id) {
        return Ok(Existing::Conflict(Mismatch::TagTaken(other.id)));
    }
    let listed = store.tag_of(org.id).await?;
    if let Some(tag) = listed.filter(|tag| *tag != org.tag) {
        return Ok(Existing::Conflict(Mismatch::OtherTag(tag)));
    }
    let mut kept = stored.as_ref().map(|stored| differences(org, stored)).unwrap_or_default();
    // An organization of another name on the target keeps that name, so this one is of no concern.
    if stored.is_none() {
        let name = store.org_id_by_name(&org.name).await?;
        if let Some(by) = name.filter(|by| *by != org.id.to_string()) {
            return Ok(Existing::Conflict(Mismatch::NameTaken { name: org.name.clone(), by }));
        }
    }
    kept.retain(|field| *field != "suspended");
    let suspension = org.suspended && stored.as_ref().is_some_and(|stored| !stored.suspended);
    let missing = MissingOrgParts { record: stored.is_none(), listing: listed.is_none(), suspension, kept };
    let same = !missing.record && !missing.listing && !missing.suspension && missing.kept.is_empty();
    Ok(if same { Existing::Same } else { Existing::Incomplete(missing) })
}

async fn write_orgs(
    store: Importer<'_>,
    orgs: &[&Org],
    existing: &[Existing<MissingOrgParts>],
) -> Result<(), ImportError> {
    let incomplete: Vec<_> = incomplete(orgs, existing).collect();
    let records = incomplete.iter().filter(|(_, missing)| missing.record).map(|(org, _)| Import::Org((*org).clone()));
    store.write_each(records.collect()).await?;
    store.list_orgs(incomplete.iter().filter(|(_, missing)| missing.listing).map(|(org, _)| *org)).await?;
    for (org, _) in incomplete.iter().filter(|(_, missing)| missing.suspension) {
        store.withdraw(Change::suspend_org(org.id, true)).await?;
    }
    Ok(())
}

/// The fields in which an organization differs from another one with its id.
pub(super) fn differences(org: &Org, stored: &Org) -> Vec<&'static str> {
    let same = [
        ("name", org.name == stored.name),
        ("created", org.created == stored.created),
        ("suspended", org.suspended == stored.suspended),
        ("concurrent", org.concurrent == stored.concurrent),
        ("policy", org.policy == stored.policy),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
