//! The records in memory as a tree: organizations with their users and keys, for management. Decisions never lock it.

use std::sync::Arc;
use std::thread;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::bucket::Bucket;
use crate::embedded::budgets::Budgets;
use crate::embedded::key::UserEntitlements;
use crate::embedded::key::by_owner;
use crate::embedded::key::{ById, DirtyKeys, KeyRecord, OrgRecord, OwnedKeys, Permit, StoredKey};
use crate::{Defaults, GivenPlan, GivenPlans, Key, KeyList, KeyPosition, LimitsInForce, Org, User};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::page::Page;

use super::user_map::UserMap;

/// Organizations with their users and keys.
///
/// - Default limits are read and applied under the same lock: so none is applied that was replaced meanwhile.
pub(crate) struct Tree {
    /// Limits of keys and organizations without limits of their own.
    pub(super) defaults: Defaults,
    /// In the order of their creation.
    orgs: Vec<OrgId>,
    org: FxHashMap<OrgId, OrgEntry>,
    pub(crate) users: UserMap,
    key: FxHashSet<ById>,
    /// The meters of budgets, which keys of plans share.
    budgets: Arc<Budgets>,
}

struct OrgEntry {
    /// The organization as it was created; its suspension and its limit are in `record`.
    org: Org,
    record: Arc<OrgRecord>,
    /// In the order of their creation.
    users: Vec<UserId>,
    keys: OwnedKeys,
}

impl Tree {
    /// An empty tree with room for this many keys.
    pub(super) fn with_capacity(keys: usize, defaults: Defaults, budgets: Arc<Budgets>) -> Self {
        Self {
            budgets,
            defaults,
            orgs: Vec::new(),
            org: FxHashMap::default(),
            users: UserMap::default(),
            key: FxHashSet::with_capacity_and_hasher(keys, FxBuildHasher),
        }
    }

    /// All organizations, in the order of their creation.
    pub(crate) fn orgs(&self) -> Vec<Org> {
        self.orgs.iter().map(|id| self.org[id].view()).collect()
    }

    /// Some organizations. See [`crate::State::page_of_orgs`].
    pub(crate) fn page_of_orgs(&self, from: u64, limit: usize) -> Page<Org, u64> {
        let orgs = self.orgs.iter().skip(position(from)).take(limit + 1).map(|id| self.org[id].view());
        Page::cut(orgs.collect(), limit, |_| from + limit as u64)
    }

    /// One organization.
    pub(crate) fn org(&self, id: OrgId) -> Option<Org> {
        self.org.get(&id).map(OrgEntry::view)
    }

    /// The organization with a name.
    pub(crate) fn org_by_name(&self, name: &str) -> Option<Org> {
        self.org.values().find(|entry| entry.org.name == name).map(OrgEntry::view)
    }

    /// The organization with a tag.
    pub(crate) fn org_by_tag(&self, tag: OrgTag) -> Option<Org> {
        self.org.values().find(|entry| entry.org.tag == tag).map(OrgEntry::view)
    }

    /// Holds a slot of an organization.
    pub(crate) fn hold_slot(&self, org: OrgId) -> Option<Permit> {
        self.org.get(&org).map(|entry| Permit::hold(None, &entry.record))
    }

    /// Requests in flight of all organizations together.
    pub(crate) fn in_flight(&self) -> u64 {
        self.org.values().map(|entry| u64::from(entry.record.in_flight())).sum()
    }

    /// The ids of the users of an organization, in the order of their creation.
    pub(crate) fn user_ids(&self, org: OrgId) -> &[UserId] {
        self.org.get(&org).map_or(&[][..], |entry| &entry.users)
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    pub(crate) fn users(&self, org: OrgId) -> Vec<User> {
        self.users.list(self.user_ids(org).iter())
    }

    /// Some users of an organization. See [`crate::State::page_of_users`].
    pub(crate) fn page_of_users(&self, org: OrgId, from: u64, limit: usize) -> Page<User, u64> {
        let ids = self.user_ids(org).iter().skip(position(from)).take(limit + 1);
        Page::cut(self.users.list(ids), limit, |_| from + limit as u64)
    }

    /// The organization of a user.
    pub(crate) fn org_of(&self, user: UserId) -> Option<OrgId> {
        self.users.entry(user).map(|entry| entry.user.org)
    }

    /// An organization and one of its users.
    pub(crate) fn member(&self, org: OrgId, user: UserId) -> Option<(Org, User)> {
        let user = self.users.entry(user).filter(|entry| entry.user.org == org)?;
        Some((self.org.get(&org)?.view(), user.user.clone()))
    }

    /// The keys of an organization, without session quota keys, in the order of their creation.
    pub(crate) fn keys(&self, org: OrgId) -> Vec<Arc<KeyRecord>> {
        self.org.get(&org).map_or_else(Vec::new, |org| org.keys.listed().cloned().collect())
    }

    /// At most `count` keys of a list behind a position.
    pub(crate) fn listed_keys(&self, list: KeyList, after: Option<KeyPosition>, count: usize) -> Vec<Arc<KeyRecord>> {
        self.keys_of(list).map(|keys| keys.read(list.newest_first, after, count)).unwrap_or_default()
    }

    /// The number of keys of a list.
    pub(crate) fn count_of_keys(&self, list: KeyList) -> u64 {
        self.keys_of(list).map_or(0, |keys| keys.listed().len() as u64)
    }

    fn keys_of(&self, list: KeyList) -> Option<&OwnedKeys> {
        match list.owner {
            Some(owner) => self.users.entry(owner).filter(|entry| entry.user.org == list.org).map(|entry| &entry.keys),
            None => self.org.get(&list.org).map(|entry| &entry.keys),
        }
    }

    /// The ids of the keys of an organization, session quota keys too.
    pub(crate) fn key_ids(&self, org: OrgId) -> Vec<KeyId> {
        self.org.get(&org).map_or_else(Vec::new, |org| org.keys.iter().map(|record| record.id()).collect())
    }

    /// The key with an id.
    pub(super) fn key(&self, id: KeyId) -> Option<&Arc<KeyRecord>> {
        self.key.get(&id).map(|key| &key.0)
    }

    /// Replaces the default limits. A decision waits at most for the lock of its own key's record.
    pub(super) fn set_defaults(&mut self, defaults: Defaults, now: Micros, dirty: &DirtyKeys) {
        if self.defaults == defaults {
            return;
        }
        self.defaults = defaults;
        self.org.values().for_each(|entry| entry.record.set_default_limit(self.defaults.concurrent));
        for entry in self.org.values() {
            entry.users.iter().for_each(|user| self.apply_limits(*user, now, dirty));
        }
    }

    /// Puts the limits in force of a user's keys: by the plan of each, of the user and of the organization.
    fn apply_limits(&self, user: UserId, now: Micros, dirty: &DirtyKeys) {
        let Some(entry) = self.users.entry(user) else { return };
        let of_org = self.org.get(&entry.user.org);
        let given = GivenPlans {
            key: GivenPlan::default(),
            user: (&entry.user).into(),
            org: of_org.map(|entry| GivenPlan::from(&entry.org)).unwrap_or_default(),
        };
        entry.keys.iter().for_each(|key| key.apply_limits(&self.defaults, given, &self.budgets, now, dirty));
    }

    /// Sets the own quota and the plan of a key, and puts the limits in force that follow.
    pub(super) fn set_limits(&self, record: &Arc<KeyRecord>, next: &Key, now: Micros, dirty: &DirtyKeys) {
        record.set_limits(next, self.limits_of(next), &self.budgets, now, dirty);
    }

    /// The limits in force of a key.
    pub(super) fn limits_of<'a>(&'a self, key: &'a Key) -> LimitsInForce<'a> {
        let user = self.users.entry(key.user).map(|entry| &entry.user);
        self.defaults.limits_of_key(key, user, self.org.get(&key.org).map(|entry| &entry.org))
    }

    pub(super) fn add_org(&mut self, org: Org) {
        let record = Arc::new(OrgRecord::new(org.id, org.suspended, org.concurrent, self.defaults.concurrent));
        self.orgs.push(org.id);
        self.org.insert(org.id, OrgEntry { org, record, users: Vec::new(), keys: OwnedKeys::default() });
    }

    pub(super) fn update_org(&mut self, next: Org, now: Micros, dirty: &DirtyKeys) {
        let Some(entry) = self.org.get_mut(&next.id) else { return };
        entry.record.set_suspended(next.suspended);
        entry.record.set_own_limit(next.concurrent);
        let id = next.id;
        let before = std::mem::replace(&mut entry.org, next);
        let entry = &self.org[&id];
        if GivenPlan::from(&before) != GivenPlan::from(&entry.org) {
            entry.users.iter().for_each(|user| self.apply_limits(*user, now, dirty));
        }
    }

    pub(super) fn add_user(&mut self, user: User) {
        let Some(entry) = self.org.get_mut(&user.org) else { return };
        entry.users.push(user.id);
        let entitlements = UserEntitlements::new(&user, Arc::clone(&entry.record));
        self.users.add(user, entitlements);
    }

    /// Replaces a user, and applies the change to the user's keys.
    pub(super) fn update_user(&mut self, next: User, now: Micros, dirty: &DirtyKeys) {
        if let Some(voucher) = &next.vouched_by {
            self.users.add_person(next.id, voucher);
        }
        let Some(entry) = self.users.entry_mut(next.id) else { return };
        let Some(org) = self.org.get(&entry.user.org) else { return };
        let id = next.id;
        let before = std::mem::replace(&mut entry.user, next);
        entry.entitlements = Arc::new(UserEntitlements::new(&entry.user, Arc::clone(&org.record)));
        for key in entry.keys.iter() {
            key.apply_user(&entry.entitlements);
        }
        if GivenPlan::from(&before) != GivenPlan::from(&entry.user) {
            self.apply_limits(id, now, dirty);
        }
    }

    /// The record of a key, which is in no index yet; none when its user is not known.
    pub(crate) fn new_record(&self, stored: StoredKey) -> Option<Arc<KeyRecord>> {
        let entitlements = Arc::clone(&self.users.entry(stored.key.user)?.entitlements);
        let limits = self.limits_of(&stored.key).unnamed();
        let quota = limits.quota;
        let full = || Bucket::full(quota, stored.key.created);
        let bucket = stored.bucket.map_or_else(full, |(bucket, per)| bucket.convert(per, quota));
        Some(Arc::new(KeyRecord::new(stored, entitlements, bucket, limits, &self.budgets)))
    }

    /// Adds a key; returns its record, none when its user is not known.
    pub(super) fn add_key(&mut self, stored: StoredKey) -> Option<Arc<KeyRecord>> {
        let record = self.new_record(stored)?;
        for keys in self.owned_keys(&record) {
            keys.add(Arc::clone(&record));
        }
        self.key.insert(ById(Arc::clone(&record)));
        Some(record)
    }

    /// Takes a key out of all lists.
    pub(super) fn remove_key(&mut self, id: KeyId) -> Option<Arc<KeyRecord>> {
        let ById(record) = self.key.take(&id)?;
        for keys in self.owned_keys(&record) {
            keys.remove(&record);
        }
        Some(record)
    }

    /// The keys of the organization of a key, and those of its user.
    fn owned_keys(&mut self, record: &KeyRecord) -> impl Iterator<Item = &mut OwnedKeys> {
        let (org, user) = record.owners();
        let of_org = self.org.get_mut(&org).map(|entry| &mut entry.keys);
        of_org.into_iter().chain(self.users.entry_mut(user).map(|entry| &mut entry.keys))
    }

    /// Adds many records, which are in no index yet: to the lists of their owners beside the others. Each
    /// is given to `index`.
    pub(super) fn add_records(&mut self, parts: &[Vec<Arc<KeyRecord>>], index: impl Fn(&Arc<KeyRecord>)) {
        let Self { org, users, key, .. } = self;
        thread::scope(|scope| {
            scope.spawn(|| {
                let (of_orgs, of_users) = by_owner(parts);
                for (id, keys) in of_orgs {
                    if let Some(entry) = org.get_mut(&id) {
                        entry.keys.add_all(keys);
                    }
                }
                for (id, keys) in of_users {
                    if let Some(entry) = users.entry_mut(id) {
                        entry.keys.add_all(keys);
                    }
                }
            });
            for record in parts.iter().flatten() {
                key.insert(ById(Arc::clone(record)));
                index(record);
            }
        });
    }
}

impl OrgEntry {
    fn view(&self) -> Org {
        Org { suspended: self.record.is_suspended(), concurrent: self.record.own_limit(), ..self.org.clone() }
    }
}

fn position(from: u64) -> usize {
    usize::try_from(from).unwrap_or(usize::MAX)
}
