//! Keys.

use super::orgs::written;
use super::*;
use crate::state::is_session_quota_digest;
use crate::state::redis::record_codec::StoredKey;

/// How long to wait for a session quota key that another gateway is creating: a few round trips.
const CLAIM_SETTLES: Duration = Duration::from_millis(10);

impl Redis {
    pub(super) async fn create_key(&self, key: &Key, digest: &KeyDigest) -> Result<u32, CommitError> {
        let tag = self.require_tag(key.org).await?;
        let user = self.read_user(tag, key.user).await?.filter(|user| user.org == key.org && user.removed.is_none());
        let user = user.ok_or(ChangeError::NoUser(key.user))?;
        if key.id.tag() != tag {
            return Err(ChangeError::NoOrg(key.org).into());
        }
        self.claim(digest, key.id, key.created).await?;
        let created = self.write_key(key, digest, &user).await;
        if let Err(CommitError::Final(_)) = created {
            self.give_back(digest, key.id).await?;
        }
        created
    }

    async fn write_key(&self, key: &Key, digest: &KeyDigest, user: &User) -> Result<u32, CommitError> {
        let (record_names, tag) = (&self.shared.record_names, key.id.tag());
        let names = [
            record_names.user(tag, user.id),
            record_names.key(key.id),
            record_names.keys(tag),
            record_names.keys_of(tag, user.id),
        ];
        let quota = key.quota.unwrap_or(self.quota());
        let full = Bucket::full(quota, key.created);
        let mut transaction = self.transaction();
        let [owner, record, keys, keys_of] = names.map(|name| transaction.record(name));
        transaction.check(("none", owner, "removed"));
        transaction.check(("equal", owner, "permissions", joined(&user.permissions)));
        transaction.check(("absent", record));
        let used = key.last_used.unwrap_or_default().0;
        transaction.write(("bucket", record, version()?, full.level, full.at.0, quota.per_micros(), key.uses, used));
        transaction.set(record, &fields(key, digest, &user.permissions));
        transaction.write(("append", keys, key.id.as_str()));
        transaction.write(("add", keys_of, key.id.as_str()));
        match self.commit(record_names::hash_slot(tag.as_str()), &transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(1) => Err(ChangeError::NoUser(user.id).into()),
            CommitResult::Failed(3) => match self.read_key(key.id).await? {
                Some(same) if same.digest == *digest && same.key.created == key.created => {
                    self.change_key(key.id, &same, |_, _| Ok(())).await
                }
                _ => Err(ChangeError::Taken("id").into()),
            },
            CommitResult::Failed(_) => Err(CommitError::Conflict),
        }
    }

    /// Claims a digest for a key, in a change of this time. One that a key has or had is taken, unless it was this
    /// change that claimed it; one that was claimed long ago for a key that was never written is free.
    async fn claim(&self, digest: &KeyDigest, key: KeyId, time: Micros) -> Result<(), CommitError> {
        let name = self.shared.record_names.digest(digest);
        let (slot, id, time) = (record_names::hash_slot(&name), key.as_str(), time.0.to_string());
        let mut transaction = self.transaction();
        let at = transaction.record(name.clone());
        transaction.check(("absent", at));
        transaction.write(("set", at, "key", id, "at", &time));
        if let CommitResult::Written(_) = self.commit(slot, &transaction).await? {
            return Ok(());
        }
        let holder = self.read_field(slot, &name, "key").await?.ok_or(CommitError::Conflict)?;
        let claimed = self.read_field(slot, &name, "at").await?.ok_or(CommitError::Conflict)?;
        if holder == id && claimed == time {
            return Ok(());
        }
        let claimed = claimed.parse().map_or(Micros(0), Micros);
        let other = holder.parse().map_err(|_| CommandError::UnexpectedReply)?;
        if self.read_key(other).await?.is_some() {
            return Err(ChangeError::Taken("digest").into());
        }
        if claimed.after(CLAIM) > clock::now() {
            return Err(being_claimed(digest).await);
        }
        let mut transaction = self.transaction();
        let at = transaction.record(name);
        transaction.check(("equal", at, "key", holder));
        transaction.write(("set", at, "key", id, "at", &time));
        written(self.commit(slot, &transaction).await?).map(drop)
    }

    async fn give_back(&self, digest: &KeyDigest, key: KeyId) -> Result<(), CommandError> {
        let name = self.shared.record_names.digest(digest);
        let slot = record_names::hash_slot(&name);
        let mut transaction = self.transaction();
        let at = transaction.record(name);
        transaction.check(("equal", at, "key", key.as_str()));
        transaction.write(("drop", at));
        // When the check fails it is somebody else's.
        self.commit(slot, &transaction).await.map(drop)
    }

    pub(super) async fn revoke_key(&self, id: KeyId, at: Micros) -> Result<u32, CommitError> {
        let stored = self.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        let first = stored.key.revoked;
        let replicas = self
            .change_key(id, &stored, |transaction, record| {
                transaction.set(record, &[("revoked", first.unwrap_or(at).0.to_string())]);
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
    ) -> Result<u32, CommitError> {
        let stored = self.live_key(id).await?;
        if stored.key.session_quota_key {
            return Err(ChangeError::NoKey(id).into());
        }
        if stored.digest == *digest && stored.key.rotated == Some(at) {
            return self.change_key(id, &stored, |_, _| Ok(())).await;
        }
        self.claim(digest, id, at).await?;
        let previous = record_names::hex(stored.digest.as_bytes());
        self.change_key(id, &stored, |transaction, record| {
            let until = [("rotated", at.0.to_string()), ("previous_until", previous_until.0.to_string())];
            transaction.set(record, &[("digest", record_names::hex(digest.as_bytes())), ("previous", previous)]);
            transaction.set(record, &until);
            Ok(())
        })
        .await
    }

    pub(super) async fn limit_key(&self, id: KeyId, quota: Option<Quota>) -> Result<u32, CommitError> {
        let stored = self.live_key(id).await?;
        let default = self.quota();
        let (old, new) = (stored.key.quota.unwrap_or(default), quota.unwrap_or(default));
        self.change_key(id, &stored, |transaction, record| {
            match quota {
                Some(quota) => transaction.set(record, &quota_fields(quota)),
                None => transaction.write(("unset", record, "requests", "per", "burst")),
            }
            transaction.write(("quota", record, numbers(old), numbers(new)));
            Ok(())
        })
        .await
    }

    /// Changes a key as it was read, unless it has changed since.
    async fn change_key(
        &self,
        id: KeyId,
        stored: &StoredKey,
        write: impl FnOnce(&mut Transaction, usize) -> Result<(), CommitError>,
    ) -> Result<u32, CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(self.shared.record_names.key(id));
        transaction.check(("version", record, String::from_utf8_lossy(&stored.live.version)));
        write(&mut transaction, record)?;
        transaction.stamp(record)?;
        written(self.commit(record_names::hash_slot(id.tag().as_str()), &transaction).await?)
    }

    /// A key that is not revoked.
    async fn live_key(&self, id: KeyId) -> Result<StoredKey, CommitError> {
        let stored = self.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        if stored.key.revoked.is_some() {
            return Err(ChangeError::Revoked(id).into());
        }
        Ok(stored)
    }
}

/// What a claim that is not old enough to be anybody's means. Whoever is told that a session quota key is taken takes it for there:
/// so that its record is waited for.
async fn being_claimed(digest: &KeyDigest) -> CommitError {
    if !is_session_quota_digest(digest) {
        return ChangeError::Taken("digest").into();
    }
    tokio::time::sleep(CLAIM_SETTLES).await;
    CommitError::Conflict
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
        ("digest", record_names::hex(digest.as_bytes())),
        ("permissions", joined(permissions)),
    ];
    let times = [("rotated", key.rotated), ("previous_until", key.previous_until), ("revoked", key.revoked)];
    fields.extend(times.into_iter().filter_map(|(name, at)| Some((name, at?.0.to_string()))));
    fields.extend(key.quota.into_iter().flat_map(quota_fields));
    fields.extend(key.session_quota_key.then(|| ("seat", "1".to_owned())));
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
