//! Users. What they may do is in the records of their keys too, where decisions find it: a change of a user changes all
//! of its keys with it, in one step.

use super::orgs::written;
use super::*;

impl Redis {
    pub(super) async fn create_user(&self, user: &User) -> Result<u32, Obstacle> {
        let tag = self.required_tag(user.org).await?;
        let (layout, slot, id) = (&self.shared.layout, layout::slot(tag.as_str()), user.id.to_string());
        let names = [layout.org(tag), layout.emails(tag), layout.user(tag, user.id), layout.users(tag)];
        let mut draft = self.draft();
        let [org, emails, record, users] = names.map(|name| draft.record(name));
        draft.check(("present", org));
        draft.check(("none", emails, &user.email));
        draft.check(("absent", record));
        draft.set(record, &fields(user));
        if user.removed.is_none() {
            draft.write(("set", emails, &user.email, &id));
        }
        draft.write(("append", users, &id));
        match self.commit(slot, &draft).await? {
            Committed::Written(replicas) => Ok(replicas),
            Committed::Failed(1) => Err(ChangeError::NoOrg(user.org).into()),
            Committed::Failed(2) if self.field(slot, &layout.emails(tag), &user.email).await?.as_ref() != Some(&id) => {
                Err(ChangeError::Taken("email").into())
            }
            Committed::Failed(2) => self.change_user(user.org, user.id, |_, _, _| Ok(())).await,
            Committed::Failed(_) => Err(ChangeError::Taken("id").into()),
        }
    }

    pub(super) async fn permit_user(
        &self,
        org: OrgId,
        user: UserId,
        permissions: &[Permission],
    ) -> Result<u32, Obstacle> {
        let permissions = [("permissions", joined(permissions))];
        self.change_user(org, user, |draft, record, keys| {
            draft.set(record, &permissions);
            for (_, key) in keys {
                draft.set(*key, &permissions);
                draft.stamp(*key)?;
            }
            Ok(())
        })
        .await
    }

    pub(super) async fn remove_user(&self, org: OrgId, user: UserId, at: Micros, again: bool) -> Result<u32, Obstacle> {
        let tag = self.required_tag(org).await?;
        let stored = self.stored_user(tag, user).await?.filter(|stored| stored.org == org);
        let stored = stored.ok_or(ChangeError::NoUser(user))?;
        if again && stored.removed == Some(at) {
            return self.removed_before(tag, user, at).await;
        }
        let email = stored.email;
        let removed = [("removed", at.0.to_string())];
        let mut refused = Vec::new();
        let made = self.change_user(org, user, |draft, record, keys| {
            let emails = draft.record(self.shared.layout.emails(tag));
            draft.set(record, &removed);
            draft.write(("unset", emails, &email));
            for (id, key) in keys {
                draft.set(*key, &removed);
                draft.stamp(*key)?;
                refused.push(Revocation::Key { key: *id, field: "removed", at });
            }
            Ok(())
        });
        let replicas = made.await?;
        refused.into_iter().for_each(|revocation| self.shared.common.revocations.add(revocation));
        Ok(replicas)
    }

    /// The removal was made by a try whose answer was lost; this write only has replicas to wait for.
    async fn removed_before(&self, tag: OrgTag, user: UserId, at: Micros) -> Result<u32, Obstacle> {
        let mut draft = self.draft();
        let record = draft.record(self.shared.layout.user(tag, user));
        draft.check(("equal", record, "removed", at.0.to_string()));
        draft.set(record, &[("id", user.to_string())]);
        let replicas = written(self.commit(layout::slot(tag.as_str()), &draft).await?)?;
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
        write: impl FnOnce(&mut Draft, usize, &[(KeyId, usize)]) -> Result<(), Obstacle>,
    ) -> Result<u32, Obstacle> {
        let tag = self.required_tag(org).await?;
        let (layout, slot) = (&self.shared.layout, layout::slot(tag.as_str()));
        let stored = self.stored_user(tag, user).await?.filter(|stored| stored.org == org && stored.removed.is_none());
        stored.ok_or(ChangeError::NoUser(user))?;
        let keys = self.keys_of(tag, user).await?;
        let mut draft = self.draft();
        let (record, set) = (draft.record(layout.user(tag, user)), draft.record(layout.keys_of(tag, user)));
        draft.check(("present", record));
        draft.check(("none", record, "removed"));
        draft.check(("size", set, keys.len()));
        draft.set(record, &[("id", user.to_string())]);
        let keys: Vec<_> = keys.into_iter().map(|key| (key, draft.record(layout.key(key)))).collect();
        write(&mut draft, record, &keys)?;
        written(self.commit(slot, &draft).await?)
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
