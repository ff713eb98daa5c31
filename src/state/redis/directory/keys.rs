//! Changes of keys.

use super::commit_error::CommitError;
use super::key_index::list_key;
use super::record_fields::{key_fields, quota_fields};
use super::records::Directory;
use super::transaction::{Check, CommitResult, Record, Transaction};
use crate::clock::{self, Micros};
use crate::key::{KeyDigest, KeyId};
use crate::quota::Quota;
use crate::state::bucket::Bucket;
use crate::state::redis::record_codec::StoredKey;
use crate::state::redis::record_names::{hex, org_slot};
use crate::state::redis::revocations::Revocation;
use crate::state::{ChangeError, Key, User};

/// Check of a new key.
enum NewKeyCheck {
    UserExists,
    IdFree,
}

impl Directory {
    pub(super) async fn create_key(&self, key: &Key, digest: &KeyDigest) -> Result<u32, CommitError> {
        let tag = self.require_tag(key.org).await?;
        let user = self.read_user(tag, key.user).await?.filter(|user| user.org == key.org && user.removed.is_none());
        let user = user.ok_or(ChangeError::NoUser(key.user))?;
        if key.id.tag() != tag {
            return Err(ChangeError::NoOrg(key.org).into());
        }
        self.claim_digest(digest, key.id, key.created).await?;
        let created = self.write_key(key, digest, &user).await;
        // After any other error the key may have been written, or the next attempt needs the claim again.
        if let Err(CommitError::Final(_)) = created {
            self.release_digest(digest, key.id).await?;
        }
        created
    }

    async fn write_key(&self, key: &Key, digest: &KeyDigest, user: &User) -> Result<u32, CommitError> {
        let (names, tag) = (&self.shared.names, key.id.tag());
        let records = [names.user(tag, user.id), names.key(key.id), names.keys(tag), names.keys_of(tag, user.id)];
        let quota = self.default_quota().in_force(key.quota);
        let full = Bucket::full(quota, key.created);
        let used = key.last_used.unwrap_or_default();
        let mut transaction = self.transaction();
        let [owner, record, keys, keys_of] = records.map(|name| transaction.record(name));
        transaction.check(Check::NoField(owner, "removed"), NewKeyCheck::UserExists);
        transaction.check(Check::Absent(record), NewKeyCheck::IdFree);
        transaction.init_key(record, (full, quota), key.uses, used)?;
        transaction.set(record, &key_fields(key, digest));
        transaction.append(keys, key.id.as_str());
        transaction.add(keys_of, key.id.as_str());
        list_key(&mut transaction, names, key);
        match self.commit(org_slot(tag), transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(NewKeyCheck::UserExists) => Err(ChangeError::NoUser(user.id).into()),
            CommitResult::Failed(NewKeyCheck::IdFree) => match self.read_key(key.id).await? {
                // Written by an earlier attempt whose reply was lost; this write is for replicas to confirm.
                Some(same) if same.digest == *digest && same.key.created == key.created => {
                    self.change_key(key.id, &same, |_, _| ()).await
                }
                _ => Err(ChangeError::Taken("id").into()),
            },
        }
    }

    pub(super) async fn revoke_key(&self, id: KeyId, at: Micros) -> Result<u32, CommitError> {
        let stored = self.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        // The first revocation stands; the write is repeated all the same, for replicas to confirm.
        let at = stored.key.revoked.unwrap_or(at);
        let write = |transaction: &mut Transaction<_>, record| {
            transaction.set_field(record, "revoked", &at.0.to_string());
        };
        let replicas = self.change_key(id, &stored, write).await?;
        self.shared.revocations.add(Revocation::Key { key: id, at });
        Ok(replicas)
    }

    pub(super) async fn rotate_key(
        &self,
        id: KeyId,
        digest: &KeyDigest,
        at: Micros,
        previous_until: Micros,
    ) -> Result<u32, CommitError> {
        let stored = self.require_active_key(id).await?;
        if stored.key.session_quota_key {
            return Err(ChangeError::NoKey(id).into());
        }
        // Rotated by an earlier attempt whose reply was lost; this write is for replicas to confirm.
        if stored.digest == *digest && stored.key.rotated == Some(at) {
            return self.change_key(id, &stored, |_, _| ()).await;
        }
        self.claim_digest(digest, id, at).await?;
        let fields = [
            ("digest", hex(digest.as_bytes())),
            ("previous", hex(stored.digest.as_bytes())),
            ("rotated", at.0.to_string()),
            ("previous_until", previous_until.0.to_string()),
        ];
        self.change_key(id, &stored, |transaction, record| transaction.set(record, &fields)).await
    }

    pub(super) async fn limit_key(&self, id: KeyId, quota: Option<Quota>) -> Result<u32, CommitError> {
        let stored = self.require_active_key(id).await?;
        let default = self.default_quota();
        let (old, new) = (default.in_force(stored.key.quota), default.in_force(quota));
        let age = clock::now().since(self.shared.defaults.load().quota_since);
        self.change_key(id, &stored, |transaction, record| {
            match quota {
                Some(quota) => transaction.set(record, &quota_fields(quota)),
                None => transaction.unset(record, &["requests", "per", "burst"]),
            }
            transaction.convert_quota(record, old, new, age);
        })
        .await
    }

    /// Changes a key, if its record still has the version that was read.
    async fn change_key(
        &self,
        id: KeyId,
        stored: &StoredKey,
        write: impl FnOnce(&mut Transaction<CommitError>, Record),
    ) -> Result<u32, CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(self.shared.names.key(id));
        transaction.check(Check::Version(record, &stored.live.version), CommitError::Conflict);
        write(&mut transaction, record);
        transaction.replace_version(record)?;
        self.commit(org_slot(id.tag()), transaction).await?.into_replicas()
    }

    /// A key that is not revoked.
    async fn require_active_key(&self, id: KeyId) -> Result<StoredKey, CommitError> {
        let stored = self.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        if stored.key.revoked.is_some() {
            return Err(ChangeError::Revoked(id).into());
        }
        Ok(stored)
    }

    /// The quota of keys without one of their own.
    fn default_quota(&self) -> Quota {
        self.shared.defaults.load().limits.quota
    }
}
