//! Directory in memory: the tree of organizations, users and keys, the index by digest, and the sessions.
//!
//! Only the writer changes it, after the change was committed. Decisions use the index by digest and nothing else; the
//! rest is for management.

mod policies;
mod tree;
mod user_map;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxBuildHasher;

use crate::import::Import;
use crate::plan::{Planned, Rotation};
use crate::{
    Bounds, Change, DecideRequest, Decision, Defaults, Key, KeyExport, KeyPatch, Org, OrgPatch, PolicyChange,
    RevocationEntry, SpentExport,
};
use crate::{RevocationLog, RuleChange, User, UserPatch, session_quota_digest};
use domain::clock;
use domain::key::policy::Field;
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;

use super::budgets::Budgets;
use super::federation::FederationRules;
use super::key::{ByDigest, CachedPrincipals, DirtyKeys, KeyRecord, Secrets, StoredKey};
use super::management_tokens::ManagementTokens;
use super::retired::{RetiredKey, RetiredKeys};
use super::sessions::Sessions;
use super::{JournaledUse, UsedKey};

pub(crate) use tree::Tree;

/// All records of the embedded state.
pub(super) struct Directory {
    /// Keys by the digests of their records. Digests are uniform, so the fastest hash is good enough.
    by_digest: DashSet<ByDigest, FxBuildHasher>,
    /// Keys that were rotated, by the other digests that they have or had.
    by_other_digest: DashMap<KeyDigest, Arc<KeyRecord>, FxBuildHasher>,
    /// The records as a tree, for management. Decisions never lock it.
    tree: RwLock<Tree>,
    /// The keys whose usage is to be written back.
    pub(super) dirty: DirtyKeys,
    pub(super) principals: CachedPrincipals,
    /// The meters of budgets.
    pub(super) budgets: Arc<Budgets>,
    /// Decisions about keys of plans that the configuration does not have.
    pub(super) missing_plan_decisions: AtomicU64,
    pub(super) sessions: Sessions,
    pub(super) management_tokens: ManagementTokens,
    pub(super) revocations: Arc<RevocationLog>,
    pub(super) federation: FederationRules,
    /// The keys that have left the rest of the directory.
    pub(super) retired: RetiredKeys,
    /// None until they were set.
    bounds: RwLock<Option<Bounds>>,
}

impl Directory {
    /// An empty directory with room for this many keys.
    pub(super) fn with_capacity(keys: usize, defaults: Defaults) -> Self {
        let budgets = Arc::<Budgets>::default();
        Self {
            by_digest: DashSet::with_capacity_and_hasher(keys, FxBuildHasher),
            by_other_digest: DashMap::default(),
            tree: RwLock::new(Tree::with_capacity(keys, defaults, Arc::clone(&budgets))),
            budgets,
            dirty: DirtyKeys::default(),
            principals: CachedPrincipals::default(),
            missing_plan_decisions: AtomicU64::new(0),
            sessions: Sessions::default(),
            management_tokens: ManagementTokens::default(),
            revocations: Arc::new(RevocationLog::new()),
            federation: FederationRules::default(),
            retired: RetiredKeys::default(),
            bounds: RwLock::default(),
        }
    }

    /// The limits of keys and organizations without limits of their own.
    pub(super) fn defaults(&self) -> Defaults {
        self.tree().defaults.clone()
    }

    /// Replaces the default limits. A decision waits at most for the lock of its own key's record.
    pub(super) fn set_defaults(&self, defaults: Defaults) {
        self.write().set_defaults(defaults, clock::now(), &self.dirty);
    }

    /// The effective bounds of what people create.
    pub(super) fn bounds(&self) -> Bounds {
        (*self.bounds.read()).unwrap_or_default()
    }

    pub(super) fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.write() = Some(bounds);
    }

    /// The time for which revoked keys are listed; none when it was not set, so that no key retires by a default.
    pub(super) fn keep_revoked(&self) -> Option<Duration> {
        self.bounds.read().map(|bounds| bounds.keep_revoked)
    }

    /// The key that has, or had, this digest.
    pub(super) fn by_digest(&self, digest: &KeyDigest) -> Option<Arc<KeyRecord>> {
        let record = self.by_digest.get(digest).map(|key| Arc::clone(&key.0));
        record.or_else(|| self.by_other_digest.get(digest).map(|record| Arc::clone(&record)))
    }

    /// Decides one request with a key.
    pub(super) fn decide(&self, record: &Arc<KeyRecord>, request: DecideRequest<'_>) -> Decision {
        let count = || _ = self.missing_plan_decisions.fetch_add(1, Ordering::Relaxed);
        record.decide(request, &self.dirty, &self.principals, count)
    }

    /// The key with this id.
    pub(super) fn key(&self, id: KeyId) -> Option<Arc<KeyRecord>> {
        self.tree().key(id).cloned()
    }

    /// The records, for management. The guard keeps changes waiting.
    pub(super) fn tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write()
    }

    /// Makes a committed change effective, then logs what it revoked: a decision that is made without the change was
    /// begun before the entry, so its exchange is found by those who read the log.
    pub(super) fn apply_and_log(&self, change: Change, planned: Planned) {
        let revoked = match change.as_made() {
            Change::RevokeKey { key, .. } => Some(RevocationEntry::Key(*key)),
            Change::RemoveUser { user, .. }
            | Change::UpdateUser { user, patch: UserPatch { suspended: Field::Set(_), .. }, .. } => {
                Some(RevocationEntry::User(*user))
            }
            Change::UpdateOrg { org, patch: OrgPatch { suspended: Some(true), .. } } => {
                Some(RevocationEntry::Org(*org))
            }
            Change::EndSession { session } => Some(RevocationEntry::Session(*session)),
            Change::EndMembership { session, org } => {
                Some(RevocationEntry::Membership { session: *session, org: *org })
            }
            _ => None,
        };
        let rotated = if let Change::RotateKey { key, .. } = change.as_made() { Some(*key) } else { None };
        let restricted = match change.as_made() {
            Change::UpdateKey { key, patch: KeyPatch { policy: Some(_), .. } } => Some(*key),
            _ => None,
        };
        self.apply(planned);
        let entry = revoked
            .or_else(|| self.key(rotated?).map(|record| record.secrets_entry()))
            .or_else(|| self.key(restricted?).map(|record| record.policy_entry()));
        entry.into_iter().for_each(|entry| self.revocations.append(entry));
    }

    /// Makes a committed change effective, as it was planned. The records that it names exist: the commit has checked
    /// that.
    fn apply(&self, planned: Planned) {
        match planned {
            Planned::NewOrg(org) => self.write().add_org(org),
            Planned::Org(org) => self.write().update_org(org, clock::now(), &self.dirty),
            Planned::NewUser(user) => self.write().add_user(user),
            Planned::User(user) => self.write().update_user(user, clock::now(), &self.dirty),
            Planned::NewKey(key, digest) => {
                self.add_key(StoredKey { key, row: 0, secrets: Secrets::new(digest), bucket: None });
            }
            Planned::PatchedKey(key, patch) => self.patch_key(key, &patch),
            Planned::RevokedKey(key, at) => self.with_key(key.id, |record| record.revoke(at)),
            Planned::RotatedKey(key, Rotation { digest, at, previous_until }) => self.with_key(key.id, |record| {
                // Indexed first: from the moment that the new secret is valid, it is found.
                self.by_other_digest.insert(digest, Arc::clone(record));
                record.rotate(digest, at, previous_until);
            }),
            Planned::Rule(change) => self.federation.apply(change),
            Planned::NewSession(session, digest) => self.sessions.add(*session, digest),
            Planned::Session(session) => self.sessions.update(*session),
            Planned::EndOfSession(session) => self.sessions.end(session),
            Planned::NewToken(token) => {
                let now = token.created;
                self.management_tokens.add(*token, now);
            }
            Planned::EndOfToken(token, at) => self.management_tokens.revoke(token, at),
            Planned::UseOfToken(token, last, expires) => self.management_tokens.set_use(token, *last, expires),
            // The file alone has it.
            Planned::Ticket { .. } => {}
        }
    }

    /// Makes a committed import effective.
    pub(super) fn apply_import(&self, import: Import) {
        match import {
            Import::Org(org) => self.write().add_org(org),
            Import::User { user, .. } => self.write().add_user(user),
            Import::Key(export) => self.add_imported_key(*export),
            Import::Digest(claim) => self.add_replaced_digest(claim.digest, claim.key),
            Import::Rule { rule, .. } => self.federation.apply(RuleChange::Create(rule)),
            Import::Token { token, now } => self.management_tokens.add(*token, now),
            Import::Spent { spent: SpentExport { subject, start, units, .. }, .. } => {
                if let Some(imported) = self.budgets.spending(subject).imported(start, units) {
                    self.budgets.replay(subject, imported);
                }
            }
        }
    }

    fn add_imported_key(&self, export: KeyExport) {
        let quota = self.quota_of(&export.key);
        let bucket = export.bucket_under(quota, clock::now());
        let KeyExport { key, digest, previous, replaced, .. } = export;
        let secrets = Secrets {
            current: digest,
            replaced: Vec::new(),
            previous: previous.zip(key.previous_until),
            rotated: key.rotated,
            previous_until: key.previous_until,
        };
        let id = key.id;
        self.add_key(StoredKey { key, row: 0, secrets, bucket: Some((bucket, quota.per_micros())) });
        previous.into_iter().chain(replaced).for_each(|digest| self.add_replaced_digest(digest, id));
    }

    /// Adds an organization that the file has.
    pub(super) fn add_org(&self, org: Org) {
        self.write().add_org(org);
    }

    /// Adds a user that the file has.
    pub(super) fn add_user(&self, user: User) {
        self.write().add_user(user);
    }

    /// Adds many records, which are in no index yet, to all indexes.
    pub(super) fn add_records(&self, parts: &[Vec<Arc<KeyRecord>>]) {
        self.write().add_records(parts, |record| {
            self.by_digest.insert(ByDigest(Arc::clone(record)));
        });
    }

    fn add_key(&self, stored: StoredKey) {
        if let Some(record) = self.write().add_key(stored) {
            self.by_digest.insert(ByDigest(record));
        }
    }

    /// Adds a digest that the key had before its last rotation.
    pub(super) fn add_replaced_digest(&self, digest: KeyDigest, key: KeyId) {
        self.with_key(key, |record| {
            record.add_replaced_digest(digest);
            self.by_other_digest.insert(digest, Arc::clone(record));
        });
    }

    fn patch_key(&self, next: Key, patch: &KeyPatch) {
        let Some(record) = self.key(next.id) else { return };
        if patch.changes_limits() {
            // Under the lock of the tree, so that none is applied beside a default that is replaced meanwhile.
            self.tree().set_limits(&record, &next, clock::now(), &self.dirty);
        }
        if patch.name.is_some() {
            record.rename(next.name);
        }
        if let Some(PolicyChange { patch, .. }) = &patch.policy {
            let mut policy = next.policy;
            // One that was prepared for a later change of this commit stays.
            if patch.disabled == Field::Keep
                && let Some(disabled) = record.view().policy.and_then(|policy| policy.disabled)
            {
                policy.get_or_insert_default().disabled = Some(disabled);
            }
            record.set_policy(policy);
        }
    }

    /// The quota in force of a key that is in no list.
    pub(super) fn quota_of(&self, key: &Key) -> Quota {
        self.tree().limits_of(key).quota
    }

    fn with_key(&self, key: KeyId, change: impl FnOnce(&Arc<KeyRecord>)) {
        if let Some(record) = self.key(key) {
            change(&record);
        }
    }

    /// Takes a key out of the lists and the index; its digests stay known as those of a revoked key.
    pub(super) fn retire(&self, id: KeyId) {
        let removed = self.write().remove_key(id);
        let Some(record) = removed else { return };
        let (org, user) = record.owners();
        for digest in record.digests() {
            // Known as retired before it leaves the index: a request in between is refused either way.
            self.retired.add(digest, RetiredKey { id, user, org });
            self.by_digest.remove(&digest);
            self.by_other_digest.remove(&digest);
        }
    }

    /// A retired key, as the file has it, with the digests that it had before.
    pub(super) fn export_retired(&self, stored: StoredKey, digests: Vec<KeyDigest>) -> KeyExport {
        let quota = self.quota_of(&stored.key);
        stored.export(digests, quota)
    }

    /// Counts the uses, sorted by key and number, that the state file lacks; returns their number. No use cost more
    /// than `largest` tokens.
    pub(super) fn replay(&self, uses: &[JournaledUse], largest: u32) -> u64 {
        let record = |key: UsedKey| match key {
            UsedKey::Key(key) => self.key(key),
            UsedKey::SessionQuotaKey(user) => self.by_digest(&session_quota_digest(user)),
        };
        // Marked dirty all at once: a write-back of a part would count for the whole, which a crash could then lose.
        let dirty = DirtyKeys::default();
        let counted = |replayed: &&JournaledUse| {
            record(replayed.key).is_some_and(|record| record.replay(replayed, largest, &dirty))
        };
        let count = uses.iter().filter(counted).count() as u64;
        self.dirty.append(dirty);
        count
    }
}
