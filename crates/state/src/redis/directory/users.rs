//! Changes of users.
//!
//! - A user's permissions and removal are in the user's record only. A change replaces the record's version, which every
//!   decision about one of the user's keys checks: so a change takes the same time for one key as for 20,000.

use super::commit_error::CommitError;
use super::record_fields::{joined, user_fields, voucher_fields};
use super::records::Directory;
use super::transaction::{Check, CommitResult, Record, Transaction};
use crate::redis::record_codec::new_version;
use crate::redis::record_names::org_slot;
use crate::redis::revocations::Revocation;
use crate::{ChangeError, User};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::key::OrgTag;

/// Check of a new user.
enum NewUserCheck {
    OrgExists,
    EmailFree,
    IdFree,
}

impl Directory {
    pub(super) async fn create_user(&self, user: &User) -> Result<u32, CommitError> {
        let tag = self.require_tag(user.org).await?;
        // Before the record, so that there is no user whom a sign-in does not find.
        self.index_user(user).await?;
        let (names, slot, id) = (&self.shared.names, org_slot(tag), user.id.to_string());
        let records = [names.org(tag), names.emails(tag), names.user(tag, user.id), names.users(tag)];
        let mut transaction = self.transaction();
        let [org, emails, record, users] = records.map(|name| transaction.record(name));
        transaction.check(Check::Present(org), NewUserCheck::OrgExists);
        transaction.check(Check::NoField(emails, &user.email), NewUserCheck::EmailFree);
        transaction.check(Check::Absent(record), NewUserCheck::IdFree);
        transaction.set(record, &user_fields(user));
        transaction.set_field(record, "version", &new_version()?);
        if user.removed.is_none() {
            transaction.set_field(emails, &user.email, &id);
        }
        transaction.append(users, &id);
        match self.commit(slot, transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(NewUserCheck::OrgExists) => Err(ChangeError::NoOrg(user.org).into()),
            CommitResult::Failed(NewUserCheck::EmailFree) => {
                if self.read_field(slot, &names.emails(tag), &user.email).await?.as_ref() != Some(&id) {
                    return Err(ChangeError::Taken("email").into());
                }
                // Created by an earlier attempt whose reply was lost; this write is for replicas to confirm.
                self.change_user(user.org, user.id, |_, _| ()).await
            }
            CommitResult::Failed(NewUserCheck::IdFree) => Err(ChangeError::Taken("id").into()),
        }
    }

    pub(super) async fn permit_user(
        &self,
        org: OrgId,
        user: UserId,
        permissions: &[Permission],
        vouched_by: Option<&Voucher>,
    ) -> Result<u32, CommitError> {
        if let Some(voucher) = vouched_by {
            self.index_person(org, user, voucher).await?;
        }
        let permissions = joined(permissions);
        let write = |transaction: &mut Transaction<_>, record| {
            transaction.allow_oom();
            transaction.set_field(record, "permissions", &permissions);
            transaction.unset(record, &["withdrawn"]);
            vouched_by.into_iter().for_each(|voucher| transaction.set(record, &voucher_fields(voucher)));
        };
        self.change_user(org, user, write).await
    }

    pub(super) async fn withdraw_user(&self, org: OrgId, user: UserId, at: Micros) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        // The first withdrawal stands; the write is repeated all the same, for replicas to confirm.
        let at = self.read_user(tag, user).await?.and_then(|stored| stored.withdrawn).unwrap_or(at);
        let write = |transaction: &mut Transaction<_>, record| {
            transaction.set_field(record, "withdrawn", &at.0.to_string());
        };
        self.change_user(org, user, write).await
    }

    pub(super) async fn remove_user(
        &self,
        org: OrgId,
        user: UserId,
        at: Micros,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        let stored = self.read_user(tag, user).await?.filter(|stored| stored.org == org);
        let stored = stored.ok_or(ChangeError::NoUser(user))?;
        // Removing a removed user is an error, unless an earlier attempt of this change has removed it.
        let replicas = if is_retry && stored.removed == Some(at) {
            self.confirm_removal(tag, user, at).await?
        } else {
            let write = |transaction: &mut Transaction<_>, record| {
                let emails = transaction.record(self.shared.names.emails(tag));
                transaction.allow_oom();
                transaction.set_field(record, "removed", &at.0.to_string());
                transaction.unset(emails, &[&stored.email]);
            };
            self.change_user(org, user, write).await?
        };
        self.shared.revocations.add(Revocation::User { tag, user, email: Some(stored.email), at });
        Ok(replicas)
    }

    /// Confirms the removal that an earlier attempt made, by a write for replicas to confirm.
    async fn confirm_removal(&self, tag: OrgTag, user: UserId, at: Micros) -> Result<u32, CommitError> {
        let mut transaction = self.withdrawal();
        let record = transaction.record(self.shared.names.user(tag, user));
        transaction.check(Check::Equal(record, "removed", &at.0.to_string()), CommitError::Conflict);
        transaction.set_field(record, "id", &user.to_string());
        self.commit(org_slot(tag), transaction).await?.into_replicas()
    }

    /// Changes a user that is not removed, and replaces the version of the record.
    async fn change_user(
        &self,
        org: OrgId,
        user: UserId,
        write: impl FnOnce(&mut Transaction<CommitError>, Record),
    ) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        let stored = self.read_user(tag, user).await?.filter(|stored| stored.org == org && stored.removed.is_none());
        stored.ok_or(ChangeError::NoUser(user))?;
        let mut transaction = self.transaction();
        let record = transaction.record(self.shared.names.user(tag, user));
        transaction.check(Check::Present(record), CommitError::Conflict);
        transaction.check(Check::NoField(record, "removed"), CommitError::Conflict);
        transaction.set(record, &[("id", user.to_string()), ("version", new_version()?)]);
        write(&mut transaction, record);
        self.commit(org_slot(tag), transaction).await?.into_replicas()
    }
}
