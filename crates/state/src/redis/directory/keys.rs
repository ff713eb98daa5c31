//! Keys: their records and digests. Their lists are in `key_list`, patches in `key_updates`.

use super::check::Check;
use super::commit_error::CommitError;
use super::creation_token::CreationToken;
use super::digest_claims::DigestClaims;
use super::federation::FederationRules;
use super::idempotency::IdempotencyRecords;
use super::key_actors;
use super::key_list::KeyList;
use super::orgs::Orgs;
use super::origin::Origin;
use super::record_fields::key_fields;
use super::standing::BoundingPolicy;
use super::transaction::{CommitResult, Record, Transaction};
use super::transactions::Transactions;
use crate::bucket::Bucket;
use crate::redis::digest_index;
use crate::redis::record_codec::StoredKey;
use crate::redis::record_names::hex;
use crate::redis::revocations::Revocation;
use crate::{ChangeError, Key, KeyEvent, LastRotation};
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;
use redis_client::CommandError;

/// Check of a new key.
enum NewKeyCheck {
    NotRecorded,
    IdFree,
    UserExists,
    OrgActive,
    /// The organization has the policy that was read.
    SamePolicy,
    FewKeys(u32),
    /// With the microseconds until a key may be created again.
    Token(u64),
    /// Of the exchange for which it is created.
    Exchange(ChangeError),
}

/// The new secret of a key.
#[derive(Clone, Copy)]
pub(super) struct Rotation<'a> {
    /// SHA-256 of the secret.
    pub(super) digest: &'a KeyDigest,
    pub(super) at: Micros,
    /// Time until which the replaced secret stays valid; `at` for no overlap.
    pub(super) previous_until: Micros,
    pub(super) last: LastRotation,
}

/// Keys, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a>(pub(crate) &'a Transactions);

impl Keys<'_> {
    pub(super) async fn create(self, key: &Key, digest: &KeyDigest, origin: Origin<'_>) -> Result<u32, CommitError> {
        let tag = Orgs(self.0).require_tag(key.org).await?;
        let user = self.0.read_user(tag, key.user).await?.filter(|user| user.org == key.org && user.removed.is_none());
        user.ok_or(ChangeError::NoUser(key.user))?;
        if key.id.tag() != tag {
            return Err(ChangeError::NoOrg(key.org).into());
        }
        let policy = self.bounding_policy(key).await?;
        let token = CreationToken::find(self.0, tag, origin.person).await?;
        DigestClaims(self.0).claim(digest, key.id, key.created).await?;
        let created = self.write((key, digest), policy.as_ref(), token, origin).await;
        // After any other error the key may have been written, or the next attempt needs the claim again.
        if let Err(CommitError::Final(_)) = created {
            self.release_unused(digest, key.id, origin).await?;
        }
        created
    }

    async fn write(
        self,
        (key, digest): (&Key, &KeyDigest),
        policy: Option<&BoundingPolicy>,
        token: Option<CreationToken>,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let tag = key.id.tag();
        let quota = self.default_quota().in_force(key.quota);
        let full = Bucket::full(quota, key.created);
        let used = key.last_used.unwrap_or_default();
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || NewKeyCheck::NotRecorded);
        let [owner, record] = transaction.records([names.user(tag, key.user), names.key(key.id)]);
        transaction.check(Check::Absent(record), NewKeyCheck::IdFree);
        transaction.check(Check::NoField(owner, "removed"), NewKeyCheck::UserExists);
        if origin.person.is_some() || origin.exchange.is_some() {
            let org = transaction.record(names.org(tag));
            transaction.check(Check::Equal(org, "suspended", "0"), NewKeyCheck::OrgActive);
        }
        if let Some(policy) = policy {
            policy.require(&mut transaction, names, NewKeyCheck::SamePolicy);
        }
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
            CommitResult::Failed(NewKeyCheck::NotRecorded) => self.resolve_recorded(origin).await,
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
            NewKeyCheck::NotRecorded | NewKeyCheck::SamePolicy => Err(CommitError::Conflict),
            NewKeyCheck::UserExists => Err(ChangeError::NoUser(key.user).into()),
            NewKeyCheck::OrgActive => Err(ChangeError::OrgSuspended(key.org).into()),
            NewKeyCheck::FewKeys(limit) => {
                let pruned = KeyList(self.0).prune_user(key.id.tag(), key.user).await?;
                Err(if pruned { CommitError::Conflict } else { ChangeError::TooManyKeys(limit).into() })
            }
            NewKeyCheck::Exchange(refused) => Err(refused.into()),
            NewKeyCheck::Token(wait_us) => Err(ChangeError::KeyCreationLimited { wait_us }.into()),
            NewKeyCheck::IdFree => match self.0.read_key(key.id).await? {
                // Written by an earlier attempt whose reply was lost; this write is for replicas to confirm.
                Some(same) if same.digest == *digest && same.key.created == key.created => {
                    self.change(&same, Origin::default(), |_, _| ()).await
                }
                _ => Err(ChangeError::Taken("id").into()),
            },
        }
    }

    /// The policy within which a new key is created; none of a session quota key.
    async fn bounding_policy(self, key: &Key) -> Result<Option<BoundingPolicy>, CommitError> {
        if key.session_quota_key {
            return Ok(None);
        }
        let bounding = BoundingPolicy::read(self.0, key.id.tag()).await?;
        let expires = key.policy.as_deref().and_then(|policy| policy.expires);
        bounding.policy.check_new_key(expires, key.created).map_err(ChangeError::from)?;
        Ok(Some(bounding))
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

    pub(super) async fn revoke(self, id: KeyId, at: Micros, origin: Origin<'_>) -> Result<u32, CommitError> {
        let stored = self.0.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        // The first revocation stands, with its actor; the write is repeated all the same, for replicas to confirm.
        let actor = origin.actor.filter(|_| stored.key.revoked.is_none());
        let at = stored.key.revoked.unwrap_or(at);
        let write = |transaction: &mut Transaction<_>, record| {
            transaction.allow_oom();
            transaction.hset_field(record, "revoked", &at.0.to_string());
            KeyList(self.0).add_revoked(transaction, &stored.key, at);
            key_actors::add(transaction, &self.0.shared.names, (id, KeyEvent::Revoked, at), actor);
        };
        let replicas = self.change(&stored, origin, write).await?;
        self.0.shared.revocations.add(Revocation::Key { key: id, at });
        Ok(replicas)
    }

    pub(super) async fn rotate(
        self,
        id: KeyId,
        rotation: Rotation<'_>,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let Rotation { digest, at, previous_until, last } = rotation;
        let stored = self.require_active(id).await?;
        if stored.key.session_quota_key {
            return Err(ChangeError::NoKey(id).into());
        }
        // Rotated by an earlier attempt whose reply was lost; this write is for replicas to confirm.
        if stored.digest == *digest && stored.key.rotated == Some(at) {
            return self.change(&stored, Origin::default(), |_, _| ()).await;
        }
        // The write requires the version that was read here, so that another rotation begins this anew.
        last.check(id, stored.key.rotated)?;
        let token = CreationToken::find(self.0, id.tag(), origin.person).await?;
        DigestClaims(self.0).claim(digest, id, at).await?;
        let fields = [
            ("digest", hex(digest.as_bytes())),
            ("previous", hex(stored.digest.as_bytes())),
            ("rotated", at.0.to_string()),
            ("previous_until", previous_until.0.to_string()),
            ("rotations", (stored.rotations + 1).to_string()),
        ];
        let write = |transaction: &mut Transaction<CommitError>, record| {
            transaction.hset(record, &fields);
            key_actors::add(transaction, &self.0.shared.names, (id, KeyEvent::Rotated, at), origin.actor);
            if let Some(token) = token {
                let limited = ChangeError::KeyCreationLimited { wait_us: token.wait_us };
                token.take(transaction, limited.into());
            }
        };
        let rotated = self.change(&stored, origin, write).await;
        self.settle_rotation(rotated, digest, id, origin).await
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

    /// Changes a key, if its record still has the version that was read.
    pub(super) async fn change(
        self,
        stored: &StoredKey,
        origin: Origin<'_>,
        write: impl FnOnce(&mut Transaction<CommitError>, Record),
    ) -> Result<u32, CommitError> {
        let StoredKey { key, live, .. } = stored;
        origin.check_etag(|| key.etag(), &live.version)?;
        let names = &self.0.shared.names;
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || CommitError::Conflict);
        let record = transaction.record(names.key(key.id));
        transaction.check(Check::Version(record, &live.version), CommitError::Conflict);
        write(&mut transaction, record);
        transaction.replace_version(record, &origin.next_version()?);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// A key that is not revoked.
    pub(super) async fn require_active(self, id: KeyId) -> Result<StoredKey, CommitError> {
        let stored = self.0.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        if stored.key.revoked.is_some() {
            return Err(ChangeError::Revoked(id).into());
        }
        Ok(stored)
    }

    /// The quota of keys without one of their own.
    pub(super) fn default_quota(self) -> Quota {
        self.0.shared.defaults.load().limits.quota
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
