//! Keys: the digests of a batch are claimed first, then its keys are written, each with its bucket and its place in the
//! list. A copied key has the permissions that its user has on the target.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{BATCH, Existing, complete};
use super::report::{Finding, Mismatch, Progress, Record, Report};
use super::retry::MigrationError;
use crate::clock::Micros;
use crate::identity::UserId;
use crate::key::OrgTag;
use crate::state::redis::import::{
    DigestClaim, DigestOwner, ImportError, ImportedKey, Importer, KeyVersion, KeyWrite, Users,
};
use crate::state::{KeyExport, OrgExport, User};

/// The missing parts of a key.
pub(super) struct MissingKeyParts {
    record: RecordGap,
    claims: Vec<DigestClaim>,
}

/// The gap between a key's record on the target and the export.
enum RecordGap {
    /// None: the record is equal.
    Nothing,
    /// The whole record.
    Everything,
    /// Some uses: the target has fewer. Its bucket is then fuller than it was, and is replaced as well.
    Uses(KeyVersion, Option<Micros>),
}

/// Copies the keys of an organization.
pub(super) async fn copy_keys(
    target: Importer<'_>,
    org: &OrgExport,
    report: &mut Report,
    progress: &Progress,
) -> Result<(), MigrationError> {
    let tag = org.org.tag;
    for batch in org.keys.chunks(BATCH) {
        let look_up = async || look_up_keys(target, batch).await;
        let write = async |existing: &[Existing<MissingKeyParts>]| write_keys(target, tag, batch, existing).await;
        let completed = complete(look_up, write).await?;
        for ((key, first), conflict) in batch.iter().zip(completed.first).zip(completed.conflicts) {
            match conflict {
                None => count(report, key, &first),
                Some(problem) => report.in_the_way.push(Finding { record: Record::Key(key.key.id), problem }),
            }
        }
        progress.advance(batch.len());
    }
    Ok(())
}

async fn look_up_keys(target: Importer<'_>, keys: &[KeyExport]) -> Result<Vec<Existing<MissingKeyParts>>, ImportError> {
    let users = &read_users(target, keys).await?;
    stream::iter(keys.iter().map(|key| look_up_key(target, key, users))).buffered(BATCH).try_collect().await
}

/// Reads the users of keys, as far as they exist on the target.
pub(super) async fn read_users(target: Importer<'_>, keys: &[KeyExport]) -> Result<Users, ImportError> {
    let ids: HashMap<UserId, &KeyExport> = keys.iter().map(|key| (key.key.user, key)).collect();
    let read = ids.into_values().map(async |key| {
        let user = target.user(key.key.id.tag(), key.key.user).await?;
        Ok::<_, ImportError>(user.filter(|user| user.org == key.key.org).map(|user| (user.id, user)))
    });
    let users: Vec<Option<(UserId, User)>> = stream::iter(read).buffer_unordered(BATCH).try_collect().await?;
    Ok(users.into_iter().flatten().collect())
}

async fn look_up_key(
    target: Importer<'_>,
    key: &KeyExport,
    users: &Users,
) -> Result<Existing<MissingKeyParts>, ImportError> {
    if !users.contains_key(&key.key.user) {
        return Ok(Existing::OwnerMissing);
    }
    let record = match target.key(key.key.id).await? {
        None => RecordGap::Everything,
        Some(stored) => {
            let differences = differences(key, &stored);
            if !differences.is_empty() {
                return Ok(Existing::Conflict(Mismatch::Differs(differences)));
            }
            let behind = stored.key.uses < key.key.uses;
            if behind { RecordGap::Uses(stored.version, stored.key.last_used) } else { RecordGap::Nothing }
        }
    };
    let mut claims = Vec::new();
    for digest in key.digests() {
        let claim = |abandoned_by| DigestClaim { digest: *digest, key: key.key.id, abandoned_by };
        match target.digest_owner(digest, key.key.id).await? {
            DigestOwner::Itself => {}
            DigestOwner::None => claims.push(claim(None)),
            DigestOwner::Abandoned(by) => claims.push(claim(Some(by))),
            DigestOwner::Other(by) => return Ok(Existing::Conflict(Mismatch::DigestTaken(by))),
        }
    }
    let same = claims.is_empty() && matches!(record, RecordGap::Nothing);
    Ok(if same { Existing::Same } else { Existing::Incomplete(MissingKeyParts { record, claims }) })
}

async fn write_keys(
    target: Importer<'_>,
    tag: OrgTag,
    keys: &[KeyExport],
    existing: &[Existing<MissingKeyParts>],
) -> Result<(), ImportError> {
    let incomplete = || keys.iter().zip(existing).filter_map(|(key, found)| Some((key, found.missing()?)));
    let claims = incomplete().flat_map(|(_, missing)| &missing.claims).map(|claim| Ok(*claim));
    stream::iter(claims).try_for_each_concurrent(BATCH, async |claim| target.claim_digest(claim).await).await?;
    let writes = incomplete().filter_map(|(export, missing)| match missing.record {
        RecordGap::Nothing => None,
        RecordGap::Everything => Some(KeyWrite::Create(export)),
        RecordGap::Uses(version, last_used) => Some(KeyWrite::CatchUp { export, version, last_used }),
    });
    target.write_keys(tag, &writes.collect::<Vec<_>>()).await
}

fn count(report: &mut Report, key: &KeyExport, first: &Existing<MissingKeyParts>) {
    let (existed, claimed) = match first {
        Existing::OwnerMissing => {
            report.left_out.keys += 1;
            return;
        }
        Existing::Same => (true, 0),
        Existing::Incomplete(missing) => {
            (!matches!(missing.record, RecordGap::Everything), missing.claims.len() as u64)
        }
        Existing::Conflict(_) => (false, 0),
    };
    report.keys.add_one(existed);
    report.digests.copied += claimed;
    report.digests.already_there += key.digests().count() as u64 - claimed;
    let caught_up = first.missing().is_some_and(|missing| matches!(missing.record, RecordGap::Uses(..)));
    report.caught_up += u64::from(caught_up);
}

/// The fields in which a key differs from the one with its id on the target, except those that uses change.
pub(super) fn differences(export: &KeyExport, stored: &ImportedKey) -> Vec<&'static str> {
    let (key, other) = (&export.key, &stored.key);
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
        ("digest", export.digest == stored.digest),
        // Without an overlap the target does not keep the previous digest.
        ("previous digest", export.previous.is_none() || export.previous == stored.previous),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
