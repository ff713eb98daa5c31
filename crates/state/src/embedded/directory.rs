//! Directory in memory: organizations, users, keys, the index by digest, and the sessions.
//!
//! Only the writer changes it, after the change was committed. Decisions use the index by digest and nothing else; the
//! rest is for management.

mod bounds;
mod bulk;
mod export;
mod pages;
mod users;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dashmap::{DashMap, DashSet};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::bucket::Bucket;
use crate::{Bounds, Change, Defaults, Key, Org, RevocationLog, User};
use domain::clock;
use domain::identity::{OrgId, PersonId, UserId};
use domain::key::{KeyDigest, KeyId};

use super::entitlements::{Secrets, UserEntitlements};
use super::key_index::{ByDigest, ById};
use super::key_record::{DirtyKeys, KeyRecord};
use super::org_record::{OrgRecord, Permit};
use super::owned_keys::OwnedKeys;
use super::retired::RetiredKeys;
use super::sessions::Sessions;
use super::stored_key::StoredKey;

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
    pub(super) sessions: Sessions,
    pub(super) revocations: Arc<RevocationLog>,
    /// The keys that have left the rest of the directory.
    pub(super) retired: RetiredKeys,
    /// None until they were set.
    bounds: RwLock<Option<Bounds>>,
}

/// Organizations with their users and keys.
///
/// - Default limits are read and applied under the same lock: so none is applied that was replaced meanwhile.
struct Tree {
    /// Limits of keys and organizations without limits of their own.
    defaults: Defaults,
    /// In the order of their creation.
    orgs: Vec<OrgId>,
    org: FxHashMap<OrgId, OrgEntry>,
    user: FxHashMap<UserId, UserEntry>,
    /// The users with each email address, in all organizations, removed ones too; in the order of their creation.
    email: FxHashMap<String, Vec<UserId>>,
    /// The users for whom a provider has vouched as a person, also those for whom another one has since.
    person: FxHashMap<PersonId, BTreeSet<UserId>>,
    key: FxHashSet<ById>,
}

struct OrgEntry {
    /// The organization as it was created; its suspension and its limit are in `record`.
    org: Org,
    record: Arc<OrgRecord>,
    /// In the order of their creation.
    users: Vec<UserId>,
    keys: OwnedKeys,
}

struct UserEntry {
    user: User,
    entitlements: Arc<UserEntitlements>,
    keys: OwnedKeys,
}

impl Directory {
    /// An empty directory with room for this many keys.
    pub(super) fn with_capacity(keys: usize, defaults: Defaults) -> Self {
        let tree = Tree {
            defaults,
            orgs: Vec::new(),
            org: FxHashMap::default(),
            user: FxHashMap::default(),
            email: FxHashMap::default(),
            person: FxHashMap::default(),
            key: FxHashSet::with_capacity_and_hasher(keys, FxBuildHasher),
        };
        Self {
            by_digest: DashSet::with_capacity_and_hasher(keys, FxBuildHasher),
            by_other_digest: DashMap::default(),
            tree: RwLock::new(tree),
            dirty: DirtyKeys::default(),
            sessions: Sessions::default(),
            revocations: Arc::new(RevocationLog::new()),
            retired: RetiredKeys::default(),
            bounds: RwLock::default(),
        }
    }

    /// The limits of keys and organizations without limits of their own.
    pub(super) fn defaults(&self) -> Defaults {
        self.read().defaults
    }

    /// Replaces the default limits. A decision waits at most for the lock of its own key's record.
    pub(super) fn set_defaults(&self, defaults: Defaults) {
        let mut tree = self.write();
        if tree.defaults == defaults {
            return;
        }
        tree.defaults = defaults;
        tree.org.values().for_each(|entry| entry.record.set_default_limit(defaults.concurrent));
        let now = clock::now();
        for ById(record) in &tree.key {
            record.set_default_quota(defaults.quota, now, &self.dirty);
        }
    }

    /// The key that has, or had, this digest.
    pub(super) fn by_digest(&self, digest: &KeyDigest) -> Option<Arc<KeyRecord>> {
        let record = self.by_digest.get(digest).map(|key| Arc::clone(&key.0));
        record.or_else(|| self.by_other_digest.get(digest).map(|record| Arc::clone(&record)))
    }

    /// The key with this id.
    pub(super) fn key(&self, id: KeyId) -> Option<Arc<KeyRecord>> {
        self.read().key.get(&id).map(|key| Arc::clone(&key.0))
    }

    pub(super) fn orgs(&self) -> Vec<Org> {
        let tree = self.read();
        tree.orgs.iter().map(|id| tree.org[id].view()).collect()
    }

    pub(super) fn users(&self, org: OrgId) -> Vec<User> {
        let tree = self.read();
        let users = tree.org.get(&org).map_or(&[][..], |entry| &entry.users);
        users.iter().map(|id| tree.user[id].user.clone()).collect()
    }

    pub(super) fn org(&self, id: OrgId) -> Option<Org> {
        self.read().org.get(&id).map(OrgEntry::view)
    }

    /// The keys of an organization, without session quota keys.
    pub(super) fn keys(&self, org: OrgId) -> Vec<Key> {
        let records: Vec<_> =
            self.read().org.get(&org).map_or_else(Vec::new, |org| org.keys.listed().cloned().collect());
        records.iter().map(|record| record.view()).collect()
    }

    /// The keys of an organization, with session quota keys.
    fn records(&self, org: OrgId) -> Vec<Arc<KeyRecord>> {
        self.read().org.get(&org).map_or_else(Vec::new, |org| org.keys.iter().cloned().collect())
    }

    /// Holds a slot of an organization.
    pub(super) fn hold_slot(&self, org: OrgId) -> Option<Permit> {
        self.read().org.get(&org).map(|entry| entry.record.hold_slot())
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.read().org.values().map(|entry| u64::from(entry.record.in_flight())).sum()
    }

    /// Makes a committed change effective. The records that it names exist: the commit has checked that.
    pub(super) fn apply(&self, change: Change) {
        match change {
            Change::CreateOrg(org) => self.add_org(org),
            Change::SuspendOrg { org, suspended } => self.with_org(org, |record| record.set_suspended(suspended)),
            Change::LimitOrg { org, concurrent } => self.with_org(org, |record| record.set_own_limit(concurrent)),
            Change::CreateUser(user) => self.add_user(user),
            Change::PermitUser { user, permissions, vouched_by, .. } => self.permit_user(user, permissions, vouched_by),
            Change::WithdrawUser { user, at, .. } => {
                self.with_user(user, |user| user.withdrawn = user.withdrawn.or(Some(at)));
            }
            Change::RemoveUser { user, at, .. } => self.with_user(user, |user| user.removed = Some(at)),
            Change::CreateKey { key, digest } => {
                self.add_key(StoredKey { key, row: 0, secrets: Secrets::new(digest), bucket: None });
            }
            Change::RevokeKey { key, at } => self.with_key(key, |record| record.revoke(at)),
            Change::RotateKey { key, digest, at, previous_until, last: _ } => self.with_key(key, |record| {
                // Indexed first: from the moment that the new secret is valid, it is found.
                self.by_other_digest.insert(digest, Arc::clone(record));
                record.rotate(digest, at, previous_until);
            }),
            Change::LimitKey { key, quota } => {
                let tree = self.read();
                if let Some(ById(record)) = tree.key.get(&key) {
                    record.set_quota(quota, tree.defaults.quota, clock::now(), &self.dirty);
                }
            }
            Change::ByPerson { change, .. } => self.apply(*change),
            of_session => self.sessions.apply(of_session),
        }
    }

    pub(super) fn add_org(&self, org: Org) {
        let mut tree = self.write();
        let record = Arc::new(OrgRecord::new(org.id, org.suspended, org.concurrent, tree.defaults.concurrent));
        tree.orgs.push(org.id);
        let (users, keys) = (Vec::new(), OwnedKeys::default());
        tree.org.insert(org.id, OrgEntry { org, record, users, keys });
    }

    pub(super) fn add_key(&self, stored: StoredKey) {
        let mut guard = self.write();
        let tree = &mut *guard;
        let (org, user) = (stored.key.org, stored.key.user);
        let Some(record) = tree.new_record(stored) else { return };
        for keys in tree.owned_keys(org, user).into_iter().flatten() {
            keys.add(Arc::clone(&record));
        }
        tree.key.insert(ById(Arc::clone(&record)));
        self.by_digest.insert(ByDigest(record));
    }

    /// Adds a digest that the key had before its last rotation.
    pub(super) fn add_replaced_digest(&self, digest: KeyDigest, key: KeyId) {
        self.with_key(key, |record| {
            record.add_replaced_digest(digest);
            self.by_other_digest.insert(digest, Arc::clone(record));
        });
    }

    fn with_org(&self, org: OrgId, change: impl FnOnce(&OrgRecord)) {
        if let Some(entry) = self.read().org.get(&org) {
            change(&entry.record);
        }
    }

    fn with_key(&self, key: KeyId, change: impl FnOnce(&Arc<KeyRecord>)) {
        if let Some(record) = self.key(key) {
            change(&record);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    /// The record of a key, which is in no index yet; none when its user is not known.
    fn new_record(&self, stored: StoredKey) -> Option<Arc<KeyRecord>> {
        let entitlements = Arc::clone(&self.user.get(&stored.key.user)?.entitlements);
        let quota = self.defaults.quota.in_force(stored.key.quota);
        let full = || Bucket::full(quota, stored.key.created);
        let bucket = stored.bucket.map_or_else(full, |(bucket, per)| bucket.convert(per, quota));
        Some(Arc::new(KeyRecord::new(stored, entitlements, quota, bucket)))
    }

    /// The keys of an organization and those of a user.
    fn owned_keys(&mut self, org: OrgId, user: UserId) -> [Option<&mut OwnedKeys>; 2] {
        let of_org = self.org.get_mut(&org).map(|entry| &mut entry.keys);
        [of_org, self.user.get_mut(&user).map(|entry| &mut entry.keys)]
    }
}

impl OrgEntry {
    fn view(&self) -> Org {
        Org { suspended: self.record.is_suspended(), concurrent: self.record.own_limit(), ..self.org.clone() }
    }
}
