//! Keys: the digests of a batch are claimed first, then its keys are written, each with its bucket and its place in the
//! list. An imported key has the permissions that its user has on the target.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{BATCH, Existing, complete, incomplete};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::MigrationError;
use crate::import::{DigestClaim, DigestOwner, Import, ImportError, Importer};
use crate::{Change, Key, KeyEvent, KeyExport, PolicyScope, User};
use domain::clock;
use domain::identity::UserId;
use domain::key::policy::PolicyPatch;
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;

/// The missing parts of a key.
pub(super) struct MissingKeyParts {
    record: RecordGap,
    claims: Vec<DigestClaim>,
    /// Other fields in which the key differs, and which stay as they are.
    kept: Vec<&'static str>,
}

/// The gap between a key's record on the target and the export.
enum RecordGap {
    /// None: the record is equal.
    Nothing,
    /// The whole record.
    Everything,
    /// Of an existing key: what is stricter in the export, and the target's own quota of the key.
    Stricter { usage: bool, revocation: bool, policy: Option<PolicyPatch>, own: Option<Quota> },
}

/// Imports keys of an organization, as many as one batch has.
pub(super) async fn import_batch(
    store: Importer<'_>,
    batch: &[&KeyExport],
    report: &mut Report,
) -> Result<(), MigrationError> {
    let look_up = async || look_up_keys(store, batch).await;
    let write = async |existing: &[Existing<MissingKeyParts>]| write_keys(store, batch, existing).await;
    for (key, found) in batch.iter().zip(complete(look_up, write).await?) {
        count(report, key, found);
    }
    Ok(())
}

async fn look_up_keys(store: Importer<'_>, keys: &[&KeyExport]) -> Result<Vec<Existing<MissingKeyParts>>, ImportError> {
    let users = &read_users(store, keys).await?;
    stream::iter(keys.iter().map(|key| look_up_key(store, key, users))).buffered(BATCH).try_collect().await
}

/// Reads the users of keys, as far as they exist on the target.
async fn read_users(store: Importer<'_>, keys: &[&KeyExport]) -> Result<HashMap<UserId, User>, ImportError> {
    let ids: HashMap<UserId, &KeyExport> = keys.iter().map(|key| (key.key.user, *key)).collect();
    let read = ids.into_values().map(async |key| {
        let user = store.user(key.key.id.tag(), key.key.user).await?;
        Ok::<_, ImportError>(user.filter(|user| user.org == key.key.org).map(|user| (user.id, user)))
    });
    let users: Vec<Option<(UserId, User)>> = stream::iter(read).buffer_unordered(BATCH).try_collect().await?;
    Ok(users.into_iter().flatten().collect())
}

async fn look_up_key(
    store: Importer<'_>,
    key: &KeyExport,
    users: &HashMap<UserId, User>,
) -> Result<Existing<MissingKeyParts>, ImportError> {
    if !users.contains_key(&key.key.user) {
        return Ok(Existing::Conflict(Mismatch::OwnerMissing));
    }
    let (record, kept) = match store.key(key.key.id).await? {
        None => (RecordGap::Everything, Vec::new()),
        Some(stored) => {
            let differences = differences(key, &stored);
            if !is_mergeable(&differences) {
                return Ok(Existing::Conflict(Mismatch::Differs(differences)));
            }
            (stricter(store, key, &stored), kept(differences))
        }
    };
    let claims = match look_up_digests(store, key.key.id, key.digests()).await? {
        Ok(claims) => claims,
        Err(taken) => return Ok(Existing::Conflict(taken)),
    };
    let same = claims.is_empty() && kept.is_empty() && matches!(record, RecordGap::Nothing);
    Ok(if same { Existing::Same } else { Existing::Incomplete(MissingKeyParts { record, claims, kept }) })
}

/// The digests that a key has to claim, or the conflict with another key that has one of them.
pub(super) async fn look_up_digests(
    store: Importer<'_>,
    key: KeyId,
    digests: impl Iterator<Item = &KeyDigest>,
) -> Result<Result<Vec<DigestClaim>, Mismatch>, ImportError> {
    let mut claims = Vec::new();
    for digest in digests {
        let claim = |abandoned_by| DigestClaim { digest: *digest, key, abandoned_by };
        match store.digest_owner(digest, key).await? {
            DigestOwner::Itself => {}
            DigestOwner::None => claims.push(claim(None)),
            DigestOwner::Abandoned(by) => claims.push(claim(Some(by))),
            DigestOwner::Other(by) => return Ok(Err(Mismatch::DigestTaken(by))),
        }
    }
    Ok(Ok(claims))
}

/// Returns whether a key with these differences is the same key all the same, changed by one of the two sides.
fn is_mergeable(differences: &[&'static str]) -> bool {
    !differences.iter().any(|field| ["org", "user", "session quota key"].contains(field))
}

/// The differences that no rule decides.
fn kept(mut differences: Vec<&'static str>) -> Vec<&'static str> {
    differences.retain(|field| !["revoked", "policy"].contains(field));
    differences
}

/// The gap that is left by the parts of an export that are stricter than an existing key.
fn stricter(store: Importer<'_>, export: &KeyExport, stored: &KeyExport) -> RecordGap {
    let key = &export.key;
    let other = &stored.key;
    let own = other.quota;
    let now = clock::now();
    let quota = store.0.quota().in_force(own);
    let level = export.bucket_under(quota, now).refill(quota, now).level;
    let theirs = stored.bucket_under(quota, now).refill(quota, now);
    let emptier = level < theirs.level;
    let usage = emptier || other.uses < key.uses || other.last_used < key.last_used;
    let revocation = key.revoked.is_some() && other.revoked.is_none();
    let policy = narrowing(key, other);
    if usage || revocation || policy.is_some() {
        RecordGap::Stricter { usage, revocation, policy, own }
    } else {
        RecordGap::Nothing
    }
}

/// The change that narrows the policy of an existing key by that of the export; none when it narrows nothing more. A
/// revoked key has no use for it.
fn narrowing(key: &Key, existing: &Key) -> Option<PolicyPatch> {
    let theirs = key.policy.as_deref().filter(|_| existing.revoked.is_none())?;
    let before = existing.policy.as_deref().cloned().unwrap_or_default();
    let after = before.narrowed_by(theirs);
    (after != before).then(|| PolicyPatch::between(&before, after))
}

async fn write_keys(
    store: Importer<'_>,
    keys: &[&KeyExport],
    existing: &[Existing<MissingKeyParts>],
) -> Result<(), ImportError> {
    let incomplete = || incomplete(keys, existing);
    let is_claimed = |missing: &MissingKeyParts| {
        !(store.writes_digests_with_keys() && matches!(missing.record, RecordGap::Everything))
    };
    let claims = incomplete().filter(|(_, missing)| is_claimed(missing)).flat_map(|(_, missing)| &missing.claims);
    store.write_each(claims.map(|claim| Import::Digest(*claim)).collect()).await?;
    let writes = incomplete().filter_map(|(export, missing)| match &missing.record {
        RecordGap::Nothing | RecordGap::Stricter { usage: false, .. } => None,
        RecordGap::Everything => Some(Import::Key(Box::new(export.clone()))),
        RecordGap::Stricter { own, .. } => Some(Import::Usage { export: Box::new(export.clone()), own: *own }),
    });
    store.write(writes.collect()).await?;
    let withdrawals = incomplete().flat_map(|(export, missing)| withdrawal(export, &missing.record));
    stream::iter(withdrawals.map(Ok)).try_for_each_concurrent(BATCH, async |change| store.withdraw(change).await).await
}

/// The change that withdraws something from a key that the target has: a revocation, or a narrower policy.
fn withdrawal(export: &KeyExport, gap: &RecordGap) -> Option<Change> {
    let RecordGap::Stricter { revocation: is_revoked, policy, .. } = gap else { return None };
    if *is_revoked {
        return Some(revocation(export));
    }
    let patch = Box::new(policy.clone()?);
    Some(Change::set_key_policy(export.key.id, patch, PolicyScope::Owner))
}

/// Returns whether something is withdrawn from a key that the target has.
fn withdraws(gap: &RecordGap) -> bool {
    matches!(gap, RecordGap::Stricter { revocation, policy, .. } if *revocation || policy.is_some())
}

/// The revocation of a key, with its actor as far as it is known.
fn revocation(export: &KeyExport) -> Change {
    let change = Change::RevokeKey { key: export.key.id, at: export.key.revoked.unwrap_or_default() };
    match export.actor(KeyEvent::Revoked) {
        Some(actor) => change.by(actor.as_str()),
        None => change,
    }
}

fn count(report: &mut Report, key: &KeyExport, found: Existing<MissingKeyParts>) {
    let record = Record::Key(key.key.id);
    let digests = key.digests().count() as u64;
    let missing = match found {
        Existing::Incomplete(missing) => missing,
        Existing::Same => {
            report.keys.add_one(true);
            report.digests.already_there += digests;
            return;
        }
        Existing::Conflict(Mismatch::OwnerMissing) => return report.left_out.keys += 1,
        Existing::Conflict(problem) => return report.in_the_way.push(Finding { record, problem }),
    };
    let claimed = missing.claims.len() as u64;
    report.keys.add_one(!matches!(missing.record, RecordGap::Everything));
    report.digests.copied += claimed;
    report.digests.already_there += digests - claimed;
    let caught_up = matches!(missing.record, RecordGap::Stricter { usage: true, .. });
    report.caught_up += u64::from(caught_up);
    report.withdrawn += u64::from(withdraws(&missing.record));
    report.keep(record, missing.kept);
}

/// The fields in which a key differs from another one with its id, except those that uses change.
pub(super) fn differences(export: &KeyExport, stored: &KeyExport) -> Vec<&'static str> {
    let key = &export.key;
    let other = &stored.key;
    let same = [
        ("org", key.org == other.org),
        ("user", key.user == other.user),
        ("name", key.name == other.name),
        ("imported", key.imported == other.imported),
        ("session quota key", key.session_quota_key == other.session_quota_key),
        ("created", key.created == other.created),
        ("rotated", key.rotated == other.rotated),
        ("previous_until", key.previous_until == other.previous_until),
        ("revoked", key.revoked == other.revoked),
        ("quota", key.quota == other.quota),
        ("policy", key.policy == other.policy),
        ("digest", export.digest == stored.digest),
        // Without an overlap the target does not keep the previous digest.
        ("previous digest", export.previous.is_none() || export.previous == stored.previous),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
