//! Changes of users. The permissions of a user are also in the records of its keys, where decisions read them: a change
//! of a user changes all its keys in the same transaction.

use super::commit_error::CommitError;
use super::record_fields::{joined, user_fields};
use super::records::Directory;
use super::revocations::Revocation;
use super::transaction::{Check, CommitResult, Record, Transaction};
use crate::clock::Micros;
use crate::identity::{OrgId, Permission, UserId};
use crate::key::{KeyId, OrgTag};
use crate::state::redis::record_names::org_slot;
use crate::state::{ChangeError, User};

/// Check of a new user.
enum NewUserCheck {
    OrgExists,
    EmailFree,
    IdFree,
}

impl Directory {
    pub(super) async fn create_user(&self, user: &User) -> Result<u32, CommitError> {
        let tag = self.require_tag(user.org).await?;
        let (names, slot, id) = (&self.shared.names, org_slot(tag), user.id.to_string());
        let records = [names.org(tag), names.emails(tag), names.user(tag, user.id), names.users(tag)];
        let mut transaction = self.transaction();
        let [org, emails, record, users] = records.map(|name| transaction.record(name));
        transaction.check(Check::Present(org), NewUserCheck::OrgExists);
        transaction.check(Check::NoField(emails, &user.email), NewUserCheck::EmailFree);
        transaction.check(Check::Absent(record), NewUserCheck::IdFree);
        transaction.set(record, &user_fields(user));
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
                self.change_user(user.org, user.id, |_, _, _| Ok(())).await
            }
            CommitResult::Failed(NewUserCheck::IdFree) => Err(ChangeError::Taken("id").into()),
        }
    }

    pub(super) async fn permit_user(
        &self,
        org: OrgId,
        user: UserId,
        permissions: &[Permission],
    ) -> Result<u32, CommitError> {
        let permissions = [("permissions", joined(permissions))];
        self.change_user(org, user, |transaction, record, keys| {
            transaction.set(record, &permissions);
            for (_, key) in keys {
                transaction.set(*key, &permissions);
                transaction.replace_version(*key)?;
            }
            Ok(())
        })
        .await
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
        if is_retry && stored.removed == Some(at) {
            return self.confirm_removal(tag, user, at).await;
        }
        let email = stored.email;
        let removed = [("removed", at.0.to_string())];
        let mut revocations = Vec::new();
        let change = self.change_user(org, user, |transaction, record, keys| {
            let emails = transaction.record(self.shared.names.emails(tag));
            transaction.set(record, &removed);
            transaction.unset(emails, &[&email]);
            for (id, key) in keys {
                transaction.set(*key, &removed);
                transaction.replace_version(*key)?;
                revocations.push(Revocation::Key { key: *id, field: "removed", at });
            }
            Ok(())
        });
        let replicas = change.await?;
        revocations.into_iter().for_each(|revocation| self.shared.revocations.add(revocation));
        Ok(replicas)
    }

    /// Confirms the removal that an earlier attempt made, by a write for replicas to confirm.
    async fn confirm_removal(&self, tag: OrgTag, user: UserId, at: Micros) -> Result<u32, CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(self.shared.names.user(tag, user));
        transaction.check(Check::Equal(record, "removed", &at.0.to_string()), CommitError::Conflict);
        transaction.set_field(record, "id", &user.to_string());
        let replicas = self.commit(org_slot(tag), transaction).await?.into_replicas()?;
        for key in self.read_keys_of(tag, user).await? {
            self.shared.revocations.add(Revocation::Key { key, field: "removed", at });
        }
        Ok(replicas)
    }

    /// Changes a user that is not removed, together with its keys.
    async fn change_user(
        &self,
        org: OrgId,
        user: UserId,
        write: impl FnOnce(&mut Transaction<CommitError>, Record, &[(KeyId, Record)]) -> Result<(), CommitError>,
    ) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        let names = &self.shared.names;
        let stored = self.read_user(tag, user).await?.filter(|stored| stored.org == org && stored.removed.is_none());
        stored.ok_or(ChangeError::NoUser(user))?;
        let keys = self.read_keys_of(tag, user).await?;
        let mut transaction = self.transaction();
        let record = transaction.record(names.user(tag, user));
        let key_set = transaction.record(names.keys_of(tag, user));
        transaction.check(Check::Present(record), CommitError::Conflict);
        transaction.check(Check::NoField(record, "removed"), CommitError::Conflict);
        // Keys are never taken out of the set, so the same size means that no key was created since it was read.
        transaction.check(Check::Size(key_set, keys.len()), CommitError::Conflict);
        transaction.set_field(record, "id", &user.to_string());
        let keys: Vec<_> = keys.into_iter().map(|key| (key, transaction.record(names.key(key)))).collect();
        write(&mut transaction, record, &keys)?;
        self.commit(org_slot(tag), transaction).await?.into_replicas()
    }
}
