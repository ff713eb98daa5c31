//! Users: a batch of one organization at a time, each with its email address, its place in the list, and the bucket of
//! the keys that it creates. Of two such buckets the emptier one stays.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{self, BATCH, Existing, complete, incomplete};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::MigrationError;
use crate::bucket::Bucket;
use crate::import::{Import, ImportError, Importer};
use crate::{Change, User, UserExport};
use domain::clock;
use domain::key::OrgTag;

/// The missing parts of a user.
#[derive(Default)]
struct MissingUserParts {
    /// The record is missing.
    record: bool,
    /// The bucket is fuller than the source's.
    bucket: bool,
    /// The user is removed in the export alone.
    removal: bool,
    /// The user is withdrawn in the export alone.
    withdrawal: bool,
    /// The user is suspended, or suspended by the operator, in the export alone.
    suspension: bool,
    /// Other fields in which the user differs, and which stay as they are.
    kept: Vec<&'static str>,
}

/// Imports users of an organization.
pub(super) async fn import_users(
    store: Importer<'_>,
    tag: OrgTag,
    users: &[&UserExport],
    report: &mut Report,
) -> Result<(), MigrationError> {
    for batch in users.chunks(batch::size(store)) {
        let look_up = async || {
            let records = batch.iter().map(|user| look_up_user(store, tag, user));
            stream::iter(records).buffered(BATCH).try_collect().await
        };
        let write = async |existing: &[Existing<MissingUserParts>]| write_users(store, tag, batch, existing).await;
        for (export, found) in batch.iter().zip(complete(look_up, write).await?) {
            count(report, export, found);
        }
    }
    Ok(())
}

fn count(report: &mut Report, export: &UserExport, found: Existing<MissingUserParts>) {
    let record = Record::User(export.user.id);
    match found {
        Existing::Same => report.users.add_one(true),
        Existing::Incomplete(missing) => {
            report.users.add_one(!missing.record);
            report.withdrawn += u64::from(missing.removal || missing.withdrawal || missing.suspension);
            report.keep(record, missing.kept);
        }
        Existing::Conflict(problem) => report.in_the_way.push(Finding { record, problem }),
    }
}

async fn look_up_user(
    store: Importer<'_>,
    tag: OrgTag,
    export: &UserExport,
) -> Result<Existing<MissingUserParts>, ImportError> {
    let user = &export.user;
    let Some(stored) = store.user(tag, user.id).await? else { return look_up_new_user(store, tag, user).await };
    let mut kept = differences(user, &stored);
    if user.org != stored.org {
        return Ok(Existing::Conflict(Mismatch::Differs(kept)));
    }
    kept.retain(|field| !["removed", "withdrawn", "suspended", "suspended_by_operator"].contains(field));
    let removal = user.removed.is_some() && stored.removed.is_none();
    let withdrawal = user.withdrawn.is_some() && stored.withdrawn.is_none() && stored.removed.is_none() && !removal;
    let is_new = stored.suspended.is_none() || user.suspended_by_operator && !stored.suspended_by_operator;
    let suspension = user.suspended.is_some() && is_new && stored.removed.is_none() && !removal;
    let bucket = is_fuller(store, tag, export).await?;
    let missing = MissingUserParts { record: false, bucket, removal, withdrawal, suspension, kept };
    let is_stricter = missing.removal || missing.withdrawal || missing.suspension;
    let same = !missing.bucket && !is_stricter && missing.kept.is_empty();
    Ok(if same { Existing::Same } else { Existing::Incomplete(missing) })
}

async fn look_up_new_user(
    store: Importer<'_>,
    tag: OrgTag,
    user: &User,
) -> Result<Existing<MissingUserParts>, ImportError> {
    let missing = Existing::Incomplete(MissingUserParts { record: true, ..MissingUserParts::default() });
    // A removed user has no claim on the email address: another one may have it.
    if user.removed.is_some() {
        return Ok(missing);
    }
    Ok(match store.user_id_by_email(tag, &user.email).await? {
        Some(by) => Existing::Conflict(Mismatch::EmailTaken { email: user.email.clone(), by }),
        None => missing,
    })
}

/// Returns whether the user may create more keys on the target than on the source.
async fn is_fuller(store: Importer<'_>, tag: OrgTag, export: &UserExport) -> Result<bool, ImportError> {
    let Some(source) = export.creation else { return Ok(false) };
    let stored = store.creation_bucket(tag, export.user.id).await?;
    let quota = store.0.bounds().key_creation;
    let now = clock::now();
    let level = stored.map_or(Bucket::full(quota, now).level, |stored| stored.level_at(quota, now));
    Ok(source.level_at(quota, now) < level)
}

async fn write_users(
    store: Importer<'_>,
    tag: OrgTag,
    users: &[&UserExport],
    existing: &[Existing<MissingUserParts>],
) -> Result<(), ImportError> {
    let incomplete = || incomplete(users, existing);
    let writes = incomplete().filter_map(|(UserExport { user, creation }, missing)| {
        let created = missing.record.then(|| Import::User { tag, user: user.clone(), creation: *creation });
        created
            .or_else(|| Some(Import::Creation { tag, user: user.id, creation: creation.filter(|_| missing.bucket)? }))
    });
    store.write(writes.collect()).await?;
    for (UserExport { user, .. }, _) in incomplete().filter(|(_, missing)| missing.removal) {
        let at = user.removed.unwrap_or_default();
        store.withdraw(Change::RemoveUser { org: user.org, user: user.id, at }).await?;
    }
    for (UserExport { user, .. }, _) in incomplete().filter(|(_, missing)| missing.withdrawal) {
        let at = user.withdrawn.unwrap_or_default();
        store.withdraw(Change::WithdrawUser { org: user.org, user: user.id, at }).await?;
    }
    for (UserExport { user, .. }, _) in incomplete().filter(|(_, missing)| missing.suspension) {
        let by_operator = user.suspended_by_operator;
        store.withdraw(Change::suspend_user(user.org, user.id, user.suspended, by_operator)).await?;
    }
    Ok(())
}

/// The fields in which a user differs from another one with the same id.
pub(super) fn differences(user: &User, stored: &User) -> Vec<&'static str> {
    let same = [
        ("org", user.org == stored.org),
        ("email", user.email == stored.email),
        ("permissions", user.permissions == stored.permissions),
        ("created", user.created == stored.created),
        ("removed", user.removed == stored.removed),
        ("vouched_by", user.vouched_by == stored.vouched_by),
        ("withdrawn", user.withdrawn == stored.withdrawn),
        ("suspended", user.suspended == stored.suspended),
        ("suspended_by_operator", user.suspended_by_operator == stored.suspended_by_operator),
        ("responsible", user.responsible == stored.responsible),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
