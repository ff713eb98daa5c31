//! Keys: their records and digests. Their lists are in `key_list`.

use super::check::{Check, Record};
use super::commit_error::CommitError;
use super::creation_token::CreationToken;
use super::digest_claims::DigestClaims;
use super::federation::FederationRules;
use super::idempotency::IdempotencyRecords;
use super::key_actors;
use super::key_list::KeyList;
use super::origin::Origin;
use super::read_records::ReadRecords;
use super::record_fields::key_fields;
use super::transaction::{CommitResult, Transaction};
use super::transactions::Transactions;
use crate::bucket::Bucket;
use crate::plan::Rotation;
use crate::redis::digest_index;
use crate::redis::record_codec::{StoredKey, new_version};
use crate::redis::record_names::hex;
use crate::redis::revocations::Revocation;
use crate::{ChangeError, Key, KeyEvent, KeyPatch, PolicyChange, PolicyScope};
use domain::clock::{self, Micros};
use domain::key::policy::Field;
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;
use redis_client::CommandError;

/// Check of a new key.
enum NewKeyCheck {
    /// The records are as they were read, and the request of the change is not recorded.
    AsPlanned,
    IdFree,
    FewKeys(u32),
    /// With the microseconds until a key may be created again.
    Token(u64),
    /// Of the exchange for which it is created.
    Exchange(ChangeError),
}

/// Keys, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a>(pub(crate) &'a Transactions);

impl Keys<'_> {
    /// Creates a key, as it was planned.
    pub(super) async fn create(
        self,
        (key, digest): (&Key, &KeyDigest),
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let token = CreationToken::find(self.0, key.id.tag(), origin.person).await?;
        DigestClaims(self.0).claim(digest, key.id, key.created).await?;
        let created = self.write((key, digest), token, records, origin).await;
        // After any other error the key may have been written, or the next attempt needs the claim again.
        if let Err(CommitError::Final(_)) = created {
            self.release_unused(digest, key.id, origin).await?;
        }
        created
    }

    async fn write(
        self,
        (key, digest): (&Key, &KeyDigest),
        token: Option<CreationToken>,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let quota = self.quota_in_force(key, records);
        let full = Bucket::full(quota, key.created);
        let used = key.last_used.unwrap_or_default();
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || NewKeyCheck::AsPlanned);
        records.require(&mut transaction, names, None, || NewKeyCheck::AsPlanned);
        let record = transaction.record(names.key(key.id));
        transaction.check(Check::Absent(record), NewKeyCheck::IdFree);
        token.into_iter().for_each(|token| self.take_room(&mut transaction, key, token));
        transaction.init_key(record, (full, quota), key.uses, used)?;
        transaction.hset(record, &key_fields(key, digest));
        KeyList(self.0).add(&mut transaction, key);
        if let Some(exchange) = origin.exchange {
            FederationRules(self.0).add_exchange(&mut transaction, key, exchange, NewKeyCheck::Exchange);
        }
        key_actors::add(&mut transaction, names, (key.id, KeyEvent::Created, key.created), origin.actor);
        match self.0.commit(transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(NewKeyCheck::AsPlanned) => self.resolve_recorded(origin).await,
            CommitResult::Failed(check) => self.explain_refusal(key, digest, check).await,
        }
    }

    /// Takes the room of a key that a person creates: one of the keys and of the creations that a user may have.
    fn take_room(self, transaction: &mut Transaction<NewKeyCheck>, key: &Key, token: CreationToken) {
        let limit = self.0.bounds().keys_per_user;
        let keys_of = transaction.record(self.0.shared.names.keys_of(key.id.tag(), key.user));
        transaction.check(Check::Fewer(keys_of, limit), NewKeyCheck::FewKeys(limit));
        token.take(transaction, NewKeyCheck::Token(token.wait_us));
    }

    /// The result of a creation that was refused by a check; success when an earlier attempt has created the key.
    async fn explain_refusal(self, key: &Key, digest: &KeyDigest, check: NewKeyCheck) -> Result<u32, CommitError> {
        match check {
            NewKeyCheck::AsPlanned => Err(CommitError::Conflict),
            NewKeyCheck::FewKeys(limit) => {
                let pruned = KeyList(self.0).prune_user(key.id.tag(), key.user).await?;
                Err(if pruned { CommitError::Conflict } else { ChangeError::TooManyKeys(limit).into() })
            }
            NewKeyCheck::Exchange(refused) => Err(refused.into()),
            NewKeyCheck::Token(wait_us) => Err(ChangeError::KeyCreationLimited { wait_us }.into()),
            NewKeyCheck::IdFree => match self.0.read_key(key.id).await? {
                // Written by an earlier attempt whose reply was lost.
                Some(same) if same.digest == *digest && same.key.created == key.created => self.confirm(&same).await,
                _ => Err(ChangeError::Taken("id").into()),
            },
        }
    }

    /// The result of a change whose request was recorded meanwhile.
    async fn resolve_recorded(self, origin: Origin<'_>) -> Result<u32, CommitError> {
        let Some(once) = origin.once else { return Err(CommitError::Conflict) };
        IdempotencyRecords(self.0).resolve(once, origin.mark).await?.ok_or(CommitError::Conflict)
    }

    /// Gives the claim of a digest back, after the change was refused. An equal request may have made the same claim,
    /// and the key has the digest then.
    async fn release_unused(self, digest: &KeyDigest, key: KeyId, origin: Origin<'_>) -> Result<(), CommandError> {
        if origin.once.is_some() && self.0.read_key(key).await?.is_some_and(|stored| stored.digest == *digest) {
            return Ok(());
        }
        DigestClaims(self.0).release(digest, key).await
    }

    /// Revokes a key, as it was planned. The first revocation stands, with its actor; the write is repeated all the
    /// same, for replicas to confirm.
    pub(super) async fn revoke(
        self,
        next: &Key,
        at: Micros,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let stored = records.stored_key(next.id)?;
        let actor = origin.actor.filter(|_| stored.key.revoked.is_none());
        let write = |transaction: &mut Transaction<_>, _| {
            transaction.allow_oom();
            KeyList(self.0).add_revoked(transaction, &stored.key, at);
            key_actors::add(transaction, &self.0.shared.names, (next.id, KeyEvent::Revoked, at), actor);
        };
        let replicas = self.replace((next, &stored.digest), records, origin, write).await?;
        self.0.shared.revocations.add(Revocation::Key { key: next.id, at });
        Ok(replicas)
    }

    /// Gives a key a new digest, as it was planned.
    pub(super) async fn rotate(
        self,
        next: &Key,
        Rotation { digest, at, .. }: &Rotation,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let stored = records.stored_key(next.id)?;
        let token = CreationToken::find(self.0, next.id.tag(), origin.person).await?;
        DigestClaims(self.0).claim(digest, next.id, *at).await?;
        let write = |transaction: &mut Transaction<CommitError>, record| {
            transaction.hset_field(record, "previous", &hex(stored.digest.as_bytes()));
            transaction.hset_field(record, "rotations", &(stored.rotations + 1).to_string());
            key_actors::add(transaction, &self.0.shared.names, (next.id, KeyEvent::Rotated, *at), origin.actor);
            if let Some(token) = token {
                let limited = ChangeError::KeyCreationLimited { wait_us: token.wait_us };
                token.take(transaction, limited.into());
            }
        };
        let rotated = self.replace((next, digest), records, origin, write).await;
        self.settle_rotation(rotated, digest, next.id, origin).await
    }

    /// Confirms the rotation that an earlier attempt made whose reply was lost; none when it made none.
    pub(super) async fn confirm_rotation(
        self,
        id: KeyId,
        (digest, at): (&KeyDigest, Micros),
        records: &ReadRecords,
    ) -> Result<Option<u32>, CommitError> {
        match records.stored_key(id) {
            Ok(stored) if stored.digest == *digest && (stored.key.rotated, stored.key.revoked) == (Some(at), None) => {
                self.confirm(stored).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Changes limits and policy of a key, as it was planned. A use does not change the version of its record, so that
    /// the time of the last one is a check of its own.
    pub(super) async fn patch(
        self,
        next: &Key,
        patch: &KeyPatch,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let stored = records.stored_key(next.id)?;
        let age = clock::now().since(self.0.shared.defaults.load().quota_since);
        let write = |transaction: &mut Transaction<CommitError>, record| {
            transaction.allow_oom();
            if patch.changes_limits() {
                let [before, after] = [&stored.key, next].map(|key| self.quota_in_force(key, records));
                transaction.convert_quota(record, before, after, age);
            }
            let Some(PolicyChange { patch, allowed }) = &patch.policy else { return };
            if let PolicyScope::Unused(since) = allowed {
                transaction.check(Check::UnusedSince(record, *since), ChangeError::InUse(next.id).into());
                if let Field::Set(disabled) = patch.disabled {
                    transaction.check(Check::Near(record, disabled.at), ChangeError::clock_differs().into());
                }
            }
            if let Field::Set(_) = patch.disabled {
                transaction.hset_field(record, "disablings", &(stored.disablings + 1).to_string());
            }
        };
        self.replace((next, &stored.digest), records, origin, write).await
    }

    /// The result of a rotation. Refused ones leave no claim of a digest behind.
    async fn settle_rotation(
        self,
        rotated: Result<u32, CommitError>,
        digest: &KeyDigest,
        id: KeyId,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let rotated = match rotated {
            // Unless another writer was faster, an equal request was.
            Err(CommitError::Conflict) => self.resolve_recorded(origin).await,
            rotated => rotated,
        };
        if let Err(CommitError::Final(ChangeError::KeyCreationLimited { .. } | ChangeError::Repeated(_))) = rotated {
            self.release_unused(digest, id, origin).await?;
        }
        rotated
    }

    /// Replaces the record of a key, and writes what belongs to it.
    async fn replace(
        self,
        (next, digest): (&Key, &KeyDigest),
        records: &ReadRecords,
        origin: Origin<'_>,
        write: impl FnOnce(&mut Transaction<CommitError>, Record),
    ) -> Result<u32, CommitError> {
        let stored = records.stored_key(next.id)?;
        origin.check_etag(|| stored.key.etag(), &stored.live.version)?;
        let names = &self.0.shared.names;
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || CommitError::Conflict);
        records.require(&mut transaction, names, None, || CommitError::Conflict);
        let record = transaction.record(names.key(next.id));
        let before = key_fields(&stored.key, &stored.digest);
        transaction.replace_fields(record, &before, &key_fields(next, digest));
        write(&mut transaction, record);
        transaction.replace_version(record, &origin.next_version()?);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Confirms what an earlier attempt wrote, by a write for replicas to confirm.
    async fn confirm(self, stored: &StoredKey) -> Result<u32, CommitError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.key(stored.key.id));
        transaction.check(Check::Version(record, &stored.live.version), CommitError::Conflict);
        transaction.replace_version(record, &new_version()?);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// The quota in force of a key, by the plans of its user and its organization as they were read.
    fn quota_in_force(self, key: &Key, records: &ReadRecords) -> Quota {
        let user = records.stored_user(key.org, key.user).ok().map(|(_, stored)| &stored.user);
        let org = records.stored_org(key.org).ok().map(|stored| &stored.org);
        self.0.shared.defaults.load().limits.limits_of_key(key, user, org).quota
    }

    /// One key, also one that is no longer listed.
    pub(crate) async fn find(self, id: KeyId) -> Result<Option<Key>, CommandError> {
        Ok(self.0.read_key(id).await?.map(|stored| stored.key))
    }

    /// The key that has, or had, a digest.
    pub(crate) async fn find_by_digest(self, digest: &KeyDigest) -> Result<Option<KeyId>, CommandError> {
        let id = digest_index::find_key(&self.0.client, &self.0.shared.names, digest).await?;
        let Some(id) = id else { return Ok(None) };
        // A claim without a record is no key.
        Ok(self.0.read_key(id).await?.map(|stored| stored.key.id))
    }
}
