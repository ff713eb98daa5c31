//! Keys.

use super::orgs::written;
use super::*;
use crate::state::redis::stored::StoredKey;

impl Redis {
    pub(super) async fn create_key(&self, key: &Key, digest: &KeyDigest) -> Result<u32, Obstacle> {
        let tag = self.required_tag(key.org).await?;
        let user = self.stored_user(tag, key.user).await?.filter(|user| user.org == key.org && user.removed.is_none());
        let user = user.ok_or(ChangeError::NoUser(key.user))?;
        if key.id.tag() != tag {
            return Err(ChangeError::NoOrg(key.org).into());
        }
        self.claim(digest, key.id, key.created).await?;
        let created = self.write_key(key, digest, &user).await;
        if let Err(Obstacle::Final(_)) = created {
            self.give_back(digest, key.id).await?;
        }
        created
    }

    async fn write_key(&self, key: &Key, digest: &KeyDigest, user: &User) -> Result<u32, Obstacle> {
        let (layout, tag) = (&self.shared.layout, key.id.tag());
        let names = [layout.user(tag, user.id), layout.key(key.id), layout.keys(tag), layout.keys_of(tag, user.id)];
        let quota = key.quota.unwrap_or(self.quota());
        let full = Bucket::full(quota, key.created);
        let mut draft = self.draft();
        let [owner, record, keys, keys_of] = names.map(|name| draft.record(name));
        draft.check(("none", owner, "removed"));
        draft.check(("equal", owner, "permissions", joined(&user.permissions)));
        draft.check(("absent", record));
        let used = key.last_used.unwrap_or_default().0;
        draft.write(("bucket", record, version()?, full.level, full.at.0, quota.per_micros(), key.uses, used));
        draft.set(record, &fields(key, digest, &user.permissions));
        draft.write(("append", keys, key.id.as_str()));
        draft.write(("add", keys_of, key.id.as_str()));
        match self.commit(layout::slot(tag.as_str()), &draft).await? {
            Committed::Written(replicas) => Ok(replicas),
            Committed::Failed(1) => Err(ChangeError::NoUser(user.id).into()),
            Committed::Failed(3) => match self.stored_key(key.id).await? {
                Some(same) if same.digest == *digest && same.key.created == key.created => {
                    self.change_key(key.id, &same, |_, _| Ok(())).await
                }
                _ => Err(ChangeError::Taken("id").into()),
            },
            Committed::Failed(_) => Err(Obstacle::Conflict),
        }
    }

    /// Claims a digest for a key, in a change of this time. One that a key has or had is taken, unless it was this
    /// change that claimed it; one that was claimed long ago for a key that was never written is free.
    async fn claim(&self, digest: &KeyDigest, key: KeyId, time: Micros) -> Result<(), Obstacle> {
        let name = self.shared.layout.digest(digest);
        let (slot, id, time) = (layout::slot(&name), key.as_str(), time.0.to_string());
        let mut draft = self.draft();
        let at = draft.record(name.clone());
        draft.check(("absent", at));
        draft.write(("set", at, "key", id, "at", &time));
        if let Committed::Written(_) = self.commit(slot, &draft).await? {
            return Ok(());
        }
        let holder = self.field(slot, &name, "key").await?.ok_or(Obstacle::Conflict)?;
        let claimed = self.field(slot, &name, "at").await?.ok_or(Obstacle::Conflict)?;
        if holder == id && claimed == time {
            return Ok(());
        }
        let claimed = claimed.parse().map_or(Micros(0), Micros);
        let other = holder.parse().map_err(|_| Failure::Nonsense)?;
        if self.stored_key(other).await?.is_some() || claimed.after(CLAIM) > clock::now() {
            return Err(ChangeError::Taken("digest").into());
        }
        let mut draft = self.draft();
        let at = draft.record(name);
        draft.check(("equal", at, "key", holder));
        draft.write(("set", at, "key", id, "at", &time));
        written(self.commit(slot, &draft).await?).map(drop)
    }

    async fn give_back(&self, digest: &KeyDigest, key: KeyId) -> Result<(), Failure> {
        let name = self.shared.layout.digest(digest);
        let slot = layout::slot(&name);
        let mut draft = self.draft();
        let at = draft.record(name);
        draft.check(("equal", at, "key", key.as_str()));
        draft.write(("drop", at));
        // When the check fails it is somebody else's.
        self.commit(slot, &draft).await.map(drop)
    }

    pub(super) async fn revoke_key(&self, id: KeyId, at: Micros) -> Result<u32, Obstacle> {
        let stored = self.stored_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        let first = stored.key.revoked;
        let replicas = self
            .change_key(id, &stored, |draft, record| {
                draft.set(record, &[("revoked", first.unwrap_or(at).0.to_string())]);
                Ok(())
            })
            .await?;
        self.shared.common.revocations.add(Revocation::Key { key: id, field: "revoked", at: first.unwrap_or(at) });
        Ok(replicas)
    }

    pub(super) async fn rotate_key(
        &self,
        id: KeyId,
        digest: &KeyDigest,
        at: Micros,
        previous_until: Micros,
    ) -> Result<u32, Obstacle> {
        let stored = self.live_key(id).await?;
        if stored.key.seat {
            return Err(ChangeError::NoKey(id).into());
        }
        if stored.digest == *digest && stored.key.rotated == Some(at) {
            return self.change_key(id, &stored, |_, _| Ok(())).await;
        }
        self.claim(digest, id, at).await?;
        let previous = layout::hex(stored.digest.as_bytes());
        self.change_key(id, &stored, |draft, record| {
            let until = [("rotated", at.0.to_string()), ("previous_until", previous_until.0.to_string())];
            draft.set(record, &[("digest", layout::hex(digest.as_bytes())), ("previous", previous)]);
            draft.set(record, &until);
            Ok(())
        })
        .await
    }

    pub(super) async fn limit_key(&self, id: KeyId, quota: Option<Quota>) -> Result<u32, Obstacle> {
        let stored = self.live_key(id).await?;
        let default = self.quota();
        let (old, new) = (stored.key.quota.unwrap_or(default), quota.unwrap_or(default));
        self.change_key(id, &stored, |draft, record| {
            match quota {
                Some(quota) => draft.set(record, &quota_fields(quota)),
                None => draft.write(("unset", record, "requests", "per", "burst")),
            }
            draft.write(("quota", record, numbers(old), numbers(new)));
            Ok(())
        })
        .await
    }

    /// Changes a key as it was read, unless it has changed since.
    async fn change_key(
        &self,
        id: KeyId,
        stored: &StoredKey,
        write: impl FnOnce(&mut Draft, usize) -> Result<(), Obstacle>,
    ) -> Result<u32, Obstacle> {
        let mut draft = self.draft();
        let record = draft.record(self.shared.layout.key(id));
        draft.check(("version", record, String::from_utf8_lossy(&stored.live.version)));
        write(&mut draft, record)?;
        draft.stamp(record)?;
        written(self.commit(layout::slot(id.tag().as_str()), &draft).await?)
    }

    /// A key that is not revoked.
    async fn live_key(&self, id: KeyId) -> Result<StoredKey, Obstacle> {
        let stored = self.stored_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        if stored.key.revoked.is_some() {
            return Err(ChangeError::Revoked(id).into());
        }
        Ok(stored)
    }
}

pub(in crate::state::redis) fn fields(
    key: &Key,
    digest: &KeyDigest,
    permissions: &[Permission],
) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", key.id.as_str().to_owned()),
        ("org", key.org.to_string()),
        ("user", key.user.to_string()),
        ("name", key.name.clone()),
        ("imported", u8::from(key.imported).to_string()),
        ("created", key.created.0.to_string()),
        ("digest", layout::hex(digest.as_bytes())),
        ("permissions", joined(permissions)),
    ];
    let times = [("rotated", key.rotated), ("previous_until", key.previous_until), ("revoked", key.revoked)];
    fields.extend(times.into_iter().filter_map(|(name, at)| Some((name, at?.0.to_string()))));
    fields.extend(key.quota.into_iter().flat_map(quota_fields));
    fields.extend(key.seat.then(|| ("seat", "1".to_owned())));
    fields
}

fn quota_fields(quota: Quota) -> [(&'static str, String); 3] {
    let Quota { requests, per, burst } = quota;
    [("requests", requests.to_string()), ("per", per.as_secs().to_string()), ("burst", burst.to_string())]
}

/// A quota as the scripts compute with it.
fn numbers(quota: Quota) -> serde_json::Value {
    let capacity = Bucket::full(quota, Micros(0)).level;
    serde_json::json!({ "requests": quota.requests, "per": quota.per_micros(), "capacity": capacity })
}
