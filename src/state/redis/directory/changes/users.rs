//! Users. What they may do is in the records of their keys too, where decisions find it: a change of a user changes all
//! of its keys with it, in one step.

use super::orgs::written;
use super::*;

impl Redis {
    pub(super) async fn create_user(&self, user: &User) -> Result<u32, CommitError> {
        let tag = self.require_tag(user.org).await?;
        let (record_names, slot, id) =
            (&self.shared.record_names, record_names::hash_slot(tag.as_str()), user.id.to_string());
        let names =
            [record_names.org(tag), record_names.emails(tag), record_names.user(tag, user.id), record_names.users(tag)];
        let mut transaction = self.transaction();
        let [org, emails, record, users] = names.map(|name| transaction.record(name));
        transaction.check(("present", org));
        transaction.check(("none", emails, &user.email));
        transaction.check(("absent", record));
        transaction.set(record, &fields(user));
        if user.removed.is_none() {
            transaction.write(("set", emails, &user.email, &id));
        }
        transaction.write(("append", users, &id));
        match self.commit(slot, &transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(1) => Err(ChangeError::NoOrg(user.org).into()),
            CommitResult::Failed(2)
                if self.read_field(slot, &record_names.emails(tag), &user.email).await?.as_ref() != Some(&id) =>
            {
                Err(ChangeError::Taken("email").into())
            }
            CommitResult::Failed(2) => self.change_user(user.org, user.id, |_, _, _| Ok(())).await,
            CommitResult::Failed(_) => Err(ChangeError::Taken("id").into()),
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
                transaction.stamp(*key)?;
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
        again: bool,
    ) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        let stored = self.read_user(tag, user).await?.filter(|stored| stored.org == org);
        let stored = stored.ok_or(ChangeError::NoUser(user))?;
        if again && stored.removed == Some(at) {
            return self.removed_before(tag, user, at).await;
        }
        let email = stored.email;
        let removed = [("removed", at.0.to_string())];
        let mut refused = Vec::new();
        let made = self.change_user(org, user, |transaction, record, keys| {
            let emails = transaction.record(self.shared.record_names.emails(tag));
            transaction.set(record, &removed);
            transaction.write(("unset", emails, &email));
            for (id, key) in keys {
                transaction.set(*key, &removed);
                transaction.stamp(*key)?;
                refused.push(Revocation::Key { key: *id, field: "removed", at });
            }
            Ok(())
        });
        let replicas = made.await?;
        refused.into_iter().for_each(|revocation| self.shared.common.revocations.add(revocation));
        Ok(replicas)
    }

    /// The removal was made by a try whose answer was lost; this write only has replicas to wait for.
    async fn removed_before(&self, tag: OrgTag, user: UserId, at: Micros) -> Result<u32, CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(self.shared.record_names.user(tag, user));
        transaction.check(("equal", record, "removed", at.0.to_string()));
        transaction.set(record, &[("id", user.to_string())]);
        let replicas = written(self.commit(record_names::hash_slot(tag.as_str()), &transaction).await?)?;
        for key in self.keys_of(tag, user).await? {
            self.shared.common.revocations.add(Revocation::Key { key, field: "removed", at });
        }
        Ok(replicas)
    }

    /// Changes a user that is not removed, together with its keys.
    async fn change_user(
        &self,
        org: OrgId,
        user: UserId,
        write: impl FnOnce(&mut Transaction, usize, &[(KeyId, usize)]) -> Result<(), CommitError>,
    ) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        let (record_names, slot) = (&self.shared.record_names, record_names::hash_slot(tag.as_str()));
        let stored = self.read_user(tag, user).await?.filter(|stored| stored.org == org && stored.removed.is_none());
        stored.ok_or(ChangeError::NoUser(user))?;
        let keys = self.keys_of(tag, user).await?;
        let mut transaction = self.transaction();
        let (record, set) =
            (transaction.record(record_names.user(tag, user)), transaction.record(record_names.keys_of(tag, user)));
        transaction.check(("present", record));
        transaction.check(("none", record, "removed"));
        transaction.check(("size", set, keys.len()));
        transaction.set(record, &[("id", user.to_string())]);
        let keys: Vec<_> = keys.into_iter().map(|key| (key, transaction.record(record_names.key(key)))).collect();
        write(&mut transaction, record, &keys)?;
        written(self.commit(slot, &transaction).await?)
    }
}

pub(in crate::state::redis) fn fields(user: &User) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", user.id.to_string()),
        ("org", user.org.to_string()),
        ("email", user.email.clone()),
        ("permissions", joined(&user.permissions)),
        ("created", user.created.0.to_string()),
    ];
    fields.extend(user.removed.map(|at| ("removed", at.0.to_string())));
    fields
}
