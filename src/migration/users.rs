//! Users: a batch of one organization at a time, each with its email address, its place in the list, and the bucket of the
//! keys that it creates. Of two such buckets the emptier one stays.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{BATCH, Existing, complete};
use super::report::{Finding, Mismatch, Progress, Record, Report};
use super::retry::MigrationError;
use crate::clock;
use crate::key::OrgTag;
use crate::state::bucket::Bucket;
use crate::state::redis::import::{ImportError, Importer, UserWrite};
use crate::state::{OrgExport, User, UserExport};

/// The missing parts of a user.
pub(super) struct MissingUserParts {
    /// True when the record is missing; otherwise its bucket is fuller than the source's.
    pub(super) record: bool,
}

/// Copies the users of an organization.
pub(super) async fn copy_users(
    target: Importer<'_>,
    org: &OrgExport,
    report: &mut Report,
    progress: &Progress,
) -> Result<(), MigrationError> {
    let tag = org.org.tag;
    for batch in org.users.chunks(BATCH) {
        let look_up = async || look_up_users(target, tag, batch).await;
        let write = async |existing: &[Existing<MissingUserParts>]| write_users(target, tag, batch, existing).await;
        let completed = complete(look_up, write).await?;
        for ((export, first), conflict) in batch.iter().zip(completed.first).zip(completed.conflicts) {
            match conflict {
                None => report.users.add_one(first.missing().is_none_or(|missing| !missing.record)),
                Some(problem) => report.in_the_way.push(Finding { record: Record::User(export.user.id), problem }),
            }
        }
        progress.advance(batch.len());
    }
    Ok(())
}

/// Looks users up on the target.
pub(super) async fn look_up_users(
    target: Importer<'_>,
    tag: OrgTag,
    users: &[UserExport],
) -> Result<Vec<Existing<MissingUserParts>>, ImportError> {
    stream::iter(users.iter().map(|user| look_up_user(target, tag, user))).buffered(BATCH).try_collect().await
}

async fn look_up_user(
    target: Importer<'_>,
    tag: OrgTag,
    export: &UserExport,
) -> Result<Existing<MissingUserParts>, ImportError> {
    let user = &export.user;
    if let Some(stored) = target.user(tag, user.id).await? {
        let differences = differences(user, &stored);
        if !differences.is_empty() {
            return Ok(Existing::Conflict(Mismatch::Differs(differences)));
        }
        let is_fuller = is_fuller(target, tag, export).await?;
        let missing = MissingUserParts { record: false };
        return Ok(if is_fuller { Existing::Incomplete(missing) } else { Existing::Same });
    }
    let missing = Existing::Incomplete(MissingUserParts { record: true });
    // A removed user has no claim on the email address: another one may have it.
    if user.removed.is_some() {
        return Ok(missing);
    }
    Ok(match target.user_id_by_email(tag, &user.email).await? {
        Some(by) => Existing::Conflict(Mismatch::EmailTaken { email: user.email.clone(), by }),
        None => missing,
    })
}

/// Returns whether the user may create more keys on the target than on the source.
async fn is_fuller(target: Importer<'_>, tag: OrgTag, export: &UserExport) -> Result<bool, ImportError> {
    let Some(source) = export.creation else { return Ok(false) };
    let stored = target.creation_bucket(tag, export.user.id).await?;
    let (quota, now) = (target.key_creation(), clock::now());
    let level = stored.map_or(Bucket::full(quota, now).level, |stored| stored.level_at(quota, now));
    Ok(source.level_at(quota, now) < level)
}

async fn write_users(
    target: Importer<'_>,
    tag: OrgTag,
    users: &[UserExport],
    existing: &[Existing<MissingUserParts>],
) -> Result<(), ImportError> {
    let incomplete = users.iter().zip(existing).filter_map(|(user, found)| Some((user, found.missing()?)));
    let writes = incomplete.map(|(UserExport { user, creation }, missing)| UserWrite {
        user,
        create: missing.record,
        creation: *creation,
    });
    target.write_users(tag, writes).await
}

fn differences(user: &User, stored: &User) -> Vec<&'static str> {
    let same = [
        ("org", user.org == stored.org),
        ("email", user.email == stored.email),
        ("permissions", user.permissions == stored.permissions),
        ("created", user.created == stored.created),
        ("removed", user.removed == stored.removed),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
