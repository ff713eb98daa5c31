//! Users: a batch of one organization at a time, each with its email address and its place in the list.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{BATCH, Existing, complete};
use super::report::{Finding, Mismatch, Progress, Record, Report};
use super::retry::MigrationError;
use crate::key::OrgTag;
use crate::state::redis::import::{ImportError, Importer};
use crate::state::{OrgExport, User};

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
        let write = async |existing: &[Existing<()>]| write_users(target, tag, batch, existing).await;
        let completed = complete(look_up, write).await?;
        for ((user, first), conflict) in batch.iter().zip(completed.first).zip(completed.conflicts) {
            match conflict {
                None => report.users.add_one(matches!(first, Existing::Same)),
                Some(problem) => report.in_the_way.push(Finding { record: Record::User(user.id), problem }),
            }
        }
        progress.advance(batch.len());
    }
    Ok(())
}

/// Looks users up on the target. A user is written whole by one script, so no part of one can be missing.
pub(super) async fn look_up_users(
    target: Importer<'_>,
    tag: OrgTag,
    users: &[User],
) -> Result<Vec<Existing<()>>, ImportError> {
    stream::iter(users.iter().map(|user| look_up_user(target, tag, user))).buffered(BATCH).try_collect().await
}

async fn look_up_user(target: Importer<'_>, tag: OrgTag, user: &User) -> Result<Existing<()>, ImportError> {
    if let Some(stored) = target.user(tag, user.id).await? {
        let differences = differences(user, &stored);
        let same = differences.is_empty();
        return Ok(if same { Existing::Same } else { Existing::Conflict(Mismatch::Differs(differences)) });
    }
    // A removed user has no claim on the email address: another one may have it.
    if user.removed.is_some() {
        return Ok(Existing::Incomplete(()));
    }
    Ok(match target.user_id_by_email(tag, &user.email).await? {
        Some(by) => Existing::Conflict(Mismatch::EmailTaken { email: user.email.clone(), by }),
        None => Existing::Incomplete(()),
    })
}

async fn write_users(
    target: Importer<'_>,
    tag: OrgTag,
    users: &[User],
    existing: &[Existing<()>],
) -> Result<(), ImportError> {
    let missing = users.iter().zip(existing).filter(|(_, found)| found.missing().is_some());
    target.create_users(tag, missing.map(|(user, _)| user)).await
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
