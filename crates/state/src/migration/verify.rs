//! Verification: every record is looked up once more on the target, and so are the lists that it belongs to.
//!
//! Differences that later uses explain are no findings: gateways may serve from the target meanwhile.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{BATCH, Existing, ORGS, Target};
use super::keys::{differences, read_users};
use super::orgs::look_up_orgs;
use super::report::{Finding, Mismatch, Progress, Record, Report};
use super::retry::{MigrationError, retry};
use super::users::{MissingUserParts, look_up_users};
use crate::import::{DigestOwner, ImportError, ImportedKey};
use crate::{KeyExport, OrgExport};
use domain::clock;
use domain::quota::Quota;

/// Reads everything back and returns what differs: one finding for each record, except for known conflicts.
pub(super) async fn verify(
    target: Target<'_>,
    orgs: &[OrgExport],
    usable: &[&OrgExport],
    report: &Report,
    progress: &Progress,
) -> Result<Vec<Finding>, MigrationError> {
    let mut findings = retry(async || verify_orgs(target, orgs).await).await?;
    progress.advance(orgs.len());
    let of_orgs = usable.iter().map(async |org| verify_content(target, org, progress).await);
    let of_orgs: Vec<Vec<Finding>> = stream::iter(of_orgs).buffered(ORGS).try_collect().await?;
    findings.extend(of_orgs.into_iter().flatten());
    let mut known: HashSet<Record> = report.in_the_way.iter().map(|finding| finding.record).collect();
    findings.retain(|finding| known.insert(finding.record));
    Ok(findings)
}

/// Verifies the users and keys of an organization, then its lists.
async fn verify_content(
    target: Target<'_>,
    org: &OrgExport,
    progress: &Progress,
) -> Result<Vec<Finding>, MigrationError> {
    let mut findings = retry(async || verify_users(target, org).await).await?;
    progress.advance(org.users.len());
    for batch in org.keys.chunks(BATCH) {
        findings.extend(retry(async || verify_keys(target, batch).await).await?);
        progress.advance(batch.len());
    }
    findings.extend(retry(async || verify_lists(target, org).await).await?);
    Ok(findings)
}

async fn verify_orgs(target: Target<'_>, orgs: &[OrgExport]) -> Result<Vec<Finding>, ImportError> {
    let existing = look_up_orgs(target, &orgs.iter().map(|org| &org.org).collect::<Vec<_>>()).await?;
    let records = orgs.iter().map(|org| Record::Org(org.org.id));
    let mut findings = findings(records.zip(existing.into_iter().map(mismatch)));
    let ids = target.store.org_ids().await?;
    findings.extend(unlisted(&ids, orgs.iter().map(|org| org.org.id), Record::Org));
    Ok(findings)
}

async fn verify_users(target: Target<'_>, org: &OrgExport) -> Result<Vec<Finding>, ImportError> {
    let existing = look_up_users(target, org.org.tag, &org.users.iter().collect::<Vec<_>>()).await?;
    let records = org.users.iter().map(|export| Record::User(export.user.id));
    let mismatches = existing.into_iter().map(|existing| match existing {
        Existing::Incomplete(MissingUserParts { record: false, .. }) => {
            Some(Mismatch::Differs(vec!["bucket of key creation"]))
        }
        existing => mismatch(existing),
    });
    Ok(findings(records.zip(mismatches)))
}

async fn verify_keys(target: Target<'_>, keys: &[KeyExport]) -> Result<Vec<Finding>, ImportError> {
    let users = &read_users(target.store, &keys.iter().collect::<Vec<_>>()).await?;
    let read = keys.iter().map(async |key| match users.contains_key(&key.key.user) {
        true => verify_key(target, key).await,
        false => Ok(None),
    });
    let mismatches: Vec<Option<Mismatch>> = stream::iter(read).buffered(BATCH).try_collect().await?;
    Ok(findings(keys.iter().map(|key| Record::Key(key.key.id)).zip(mismatches)))
}

async fn verify_key(target: Target<'_>, key: &KeyExport) -> Result<Option<Mismatch>, ImportError> {
    let target = target.store;
    let Some(stored) = target.key(key.key.id).await? else { return Ok(Some(Mismatch::Missing)) };
    let mut differences = differences(key, &stored);
    let quota = target.quota().in_force(key.key.quota);
    differences.extend(usage_difference(key, &stored, quota));
    if !differences.is_empty() {
        return Ok(Some(Mismatch::Differs(differences)));
    }
    if !key.key.session_quota_key && key.key.revoked.is_none() {
        if !target.is_among_keys_of_user(key.key.id, key.key.user).await? {
            return Ok(Some(Mismatch::NotAmongUsers));
        }
        if !target.is_listed(key.key.id).await? {
            return Ok(Some(Mismatch::Listed(0)));
        }
    }
    for digest in key.digests() {
        if !matches!(target.digest_owner(digest, key.key.id).await?, DigestOwner::Itself) {
            return Ok(Some(Mismatch::NotFound));
        }
    }
    Ok(None)
}

/// Verifies that each user is in the list of the organization exactly once. A key can be in the sorted set once only.
async fn verify_lists(target: Target<'_>, org: &OrgExport) -> Result<Vec<Finding>, ImportError> {
    let tag = org.org.tag;
    let users = target.store.user_ids(tag).await?;
    Ok(unlisted(&users, org.users.iter().map(|export| export.user.id), Record::User))
}

fn findings(mismatches: impl Iterator<Item = (Record, Option<Mismatch>)>) -> Vec<Finding> {
    mismatches.filter_map(|(record, problem)| Some(Finding { record, problem: problem? })).collect()
}

/// The mismatch of a record that should be the same.
fn mismatch<T>(existing: Existing<T>) -> Option<Mismatch> {
    match existing {
        Existing::Same => None,
        Existing::Conflict(mismatch) => Some(mismatch),
        Existing::Incomplete(_) | Existing::OwnerMissing => Some(Mismatch::Missing),
    }
}

/// The difference in uses, bucket or Last Used. A key with more uses than the export was used on the target meanwhile:
/// its bucket has nothing to be compared with.
fn usage_difference(key: &KeyExport, stored: &ImportedKey, quota: Quota) -> Option<&'static str> {
    if stored.key.uses != key.key.uses {
        return (stored.key.uses < key.key.uses).then_some("uses");
    }
    let now = clock::now();
    let target = stored.bucket.convert(stored.quota.per_micros(), quota).refill(quota, now);
    let source = key.bucket.convert(key.quota.per_micros(), quota).refill(quota, now);
    let differs = (target != source).then_some("bucket");
    differs.or((stored.key.last_used != key.key.last_used).then_some("last used"))
}

/// Findings for the ids that are not in a list exactly once.
fn unlisted<T: Copy + Eq + Hash>(
    list: &[T],
    expected: impl Iterator<Item = T>,
    record: impl Fn(T) -> Record,
) -> Vec<Finding> {
    let mut times: HashMap<T, usize> = HashMap::with_capacity(list.len());
    list.iter().for_each(|id| *times.entry(*id).or_default() += 1);
    let times = expected.map(|id| (record(id), times.get(&id).copied().unwrap_or_default()));
    findings(times.map(|(record, times)| (record, (times != 1).then_some(Mismatch::Listed(times)))))
}
