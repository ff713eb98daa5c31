//! Cached key records. The cache never authorizes: each decision carries the record versions and Redis rejects stale
//! ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use quick_cache::sync::Cache;

use super::budget::KeyBudget;
use super::usage::CachedUsage;
use super::verdict::Verdict;
use crate::limit_plans::smaller;
use crate::redis::active_defaults::ActiveDefaults;
use crate::redis::record_codec::{NO_RECORD, StoredKey, StoredRecords, StoredUser, Version};
use crate::redis::record_names::RecordNames;
use crate::redis::revocations::KeptRevocations;
use crate::redis::slots::{SlotLease, SlotLeases};
use crate::{Key, LimitsInForce};
use domain::clock::Micros;
use domain::identity::{AuthMethod, Permission, Principal, PrincipalHeaders};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::{Quota, SlotStatus};

/// Keys in the cache, some 500 bytes each. A key in use that was evicted costs one more round trip.
const CAPACITY: usize = 200_000;

/// Cached keys by their digest.
pub(super) struct KeyCache {
    entries: Cache<KeyDigest, Arc<CachedKey>>,
    /// Limits of keys and organizations without limits of their own; they can change while the gateway runs.
    pub(super) defaults: Arc<ArcSwap<ActiveDefaults>>,
    /// Revocations that hold whatever the records say.
    revocations: Arc<KeptRevocations>,
}

/// A key with its organization and its user, as of these versions of their records.
pub struct CachedKey {
    /// The digest that led here: the current one, or a replaced one.
    pub(super) digest: KeyDigest,
    /// Name of the key's record.
    pub(super) record: Box<[u8]>,
    pub(super) key_version: Version,
    pub(super) org_version: Version,
    /// Name of the record of the key's user.
    pub(super) user_record: Box<[u8]>,
    pub(super) user_version: Version,
    pub(super) principal: Arc<Principal>,
    pub(super) permissions: Box<[Permission]>,
    pub(super) secret: PresentedSecret,
    pub(super) revoked: AtomicBool,
    pub(super) user_removed: AtomicBool,
    /// Generation of the revocations that the two were last compared with.
    revocations_seen: AtomicU64,
    pub(super) user_suspended: bool,
    pub(super) org_suspended: bool,
    /// The provider no longer vouches for the user.
    pub(super) withdrawn: bool,
    pub(super) policy: Option<Box<KeyPolicy>>,
    /// Number of the default limits that `quota`, `concurrent` and `slots` were computed with.
    defaults: u64,
    /// Time since which these are in force at this gateway.
    quota_since: Micros,
    /// The configuration does not have the plan of the key.
    pub(super) is_plan_missing: bool,
    /// The effective quota.
    pub(super) quota: Quota,
    /// The effective concurrency limit.
    pub(super) concurrent: u32,
    /// The slot lease of its organization.
    pub lease: Arc<SlotLease>,
    /// None for a key without a limit of its own, as nearly all are.
    pub(super) slots: Option<Box<KeySlots>>,
    /// None for a key whose plan has no budget.
    pub(super) budget: Option<Box<KeyBudget>>,
    /// Shared by all secrets of the key, and kept when the rest of the entry is replaced.
    pub usage: Arc<CachedUsage>,
    /// Steady time at which Redis last confirmed this entry: its secret, as of these versions.
    confirmed: AtomicU64,
    pub(super) verdict: Verdict,
}

/// Slots of a key with a limit of requests in flight of its own.
#[derive(Debug)]
pub(super) struct KeySlots {
    /// The limit.
    pub(super) concurrent: u32,
    /// The lease on them, shared by all secrets of the key.
    pub(super) lease: Arc<SlotLease>,
}

impl KeyCache {
    pub(super) fn new(defaults: Arc<ArcSwap<ActiveDefaults>>, revocations: Arc<KeptRevocations>) -> Self {
        Self { entries: Cache::new(CAPACITY), defaults, revocations }
    }

    /// The entry of a digest, if it was computed with the active default limits.
    pub(super) fn lookup(&self, digest: &KeyDigest) -> Option<Arc<CachedKey>> {
        self.lookup_offline(digest).filter(|key| key.defaults == self.defaults.load().number)
    }

    /// The entry of a digest, even if the default limits have changed: Redis is not there to read the record again.
    pub(super) fn lookup_offline(&self, digest: &KeyDigest) -> Option<Arc<CachedKey>> {
        self.entries.get(digest).inspect(|key| key.apply_revocations(&self.revocations))
    }

    /// Adds an entry, or replaces the one of this digest.
    pub(super) fn insert(&self, digest: &KeyDigest, key: CachedKey) -> Arc<CachedKey> {
        let key = Arc::new(key);
        // The records may come from a new primary that lacks a revocation.
        key.apply_revocations(&self.revocations);
        self.entries.insert(*digest, Arc::clone(&key));
        key
    }

    pub(super) fn remove(&self, digest: &KeyDigest) {
        self.entries.remove(digest);
    }
}

/// Secret of the key that was presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresentedSecret {
    Current,
    /// The one before the last rotation, valid until this time.
    Previous(Micros),
    /// An earlier one, or one whose rotation had no overlap.
    Replaced,
}

impl PresentedSecret {
    pub(super) fn new(digest: &KeyDigest, key: &StoredKey) -> Self {
        // A rotation without an overlap stores its own time as the end of the previous secret.
        let until = key.key.previous_until.filter(|until| Some(*until) > key.key.rotated);
        if *digest == key.digest {
            Self::Current
        } else {
            let previous = key.previous.filter(|previous| previous == digest).and(until);
            previous.map_or(Self::Replaced, Self::Previous)
        }
    }
}

impl CachedKey {
    /// An entry for a presented digest, from records that were read at `now`, in steady time.
    pub(super) fn new(
        (defaults, limits, budget): (&ActiveDefaults, LimitsInForce<'_>, Option<Box<KeyBudget>>),
        names: &RecordNames,
        digest: &KeyDigest,
        StoredRecords { key, org, user }: &StoredRecords,
        leases: &SlotLeases,
        usage: Arc<CachedUsage>,
        now: Micros,
    ) -> Self {
        let permissions = permissions_of(&key.key, user.as_ref());
        Self {
            digest: *digest,
            record: names.key(key.key.id).into_bytes().into(),
            key_version: key.live.version,
            org_version: org.version,
            user_record: names.user(org.org.tag, key.key.user).into_bytes().into(),
            user_version: user.as_ref().map_or(NO_RECORD, |user| user.version),
            principal: Arc::new(principal_of(&key.key, &permissions)),
            permissions,
            secret: PresentedSecret::new(digest, key),
            revoked: AtomicBool::new(key.key.revoked.is_some()),
            // A user without a record has gone the same way.
            user_removed: AtomicBool::new(user.as_ref().is_none_or(|user| user.user.removed.is_some())),
            revocations_seen: AtomicU64::new(0),
            user_suspended: user.as_ref().is_some_and(|user| user.user.suspended.is_some()),
            org_suspended: org.org.suspended,
            withdrawn: user.as_ref().is_some_and(|user| user.user.withdrawn.is_some()),
            policy: key.key.policy.clone(),
            defaults: defaults.number,
            quota_since: defaults.quota_since,
            is_plan_missing: limits.is_missing,
            quota: limits.quota,
            concurrent: org.org.concurrent.unwrap_or(defaults.limits.concurrent),
            lease: leases.lease_of(org.org.tag),
            budget,
            slots: KeySlots::of_key(&key.key, limits.concurrent, leases),
            usage,
            confirmed: AtomicU64::new(now.0),
            verdict: Verdict::default(),
        }
    }

    /// Notes that Redis decided by this entry, at a steady time.
    pub(super) fn confirm(&self, now: Micros) {
        self.confirmed.store(now.0, Ordering::Relaxed);
    }

    /// Steady time of the last confirmation by Redis.
    pub(super) fn confirmed(&self) -> Micros {
        Micros(self.confirmed.load(Ordering::Relaxed))
    }

    /// Time for which the quota is in force, in microseconds; that of the key's own, if it has one, at least for so
    /// long.
    pub(super) fn quota_age(&self, now: Micros) -> u64 {
        now.since(self.quota_since)
    }

    /// Units of its budget that are to be told: start of the period, those that came back, those beyond reservations.
    pub fn untold_units(&self) -> Option<(Micros, u64, u64)> {
        self.budget.as_deref()?.counter.unconfirmed()
    }

    /// The id of the key; `None` for a session quota key.
    pub fn key_id(&self) -> Option<KeyId> {
        self.principal.key_id
    }

    /// Status of the key's slots, if it has a limit of its own, of which other gateways hold so many.
    pub(super) fn slot_status(&self, held_elsewhere: u32) -> Option<SlotStatus> {
        self.slots.as_deref().map(|slots| slots.status(held_elsewhere))
    }

    /// The tag of its organization.
    pub(super) fn tag(&self) -> OrgTag {
        self.lease.subject.tag()
    }

    /// Notes the revocations that this process keeps, if there are new ones.
    fn apply_revocations(&self, revocations: &KeptRevocations) {
        let generation = revocations.generation();
        if self.revocations_seen.load(Ordering::Acquire) == generation {
            return;
        }
        if self.principal.key_id.is_some_and(|key| revocations.has_key(key)) {
            self.revoked.store(true, Ordering::Relaxed);
        }
        if revocations.has_user(self.principal.user_id) {
            self.user_removed.store(true, Ordering::Relaxed);
        }
        self.revocations_seen.store(generation, Ordering::Release);
    }
}

/// All that the next decision depends on. Secrets and digests are left out.
impl std::fmt::Debug for CachedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let versions = (self.key_version, self.org_version, self.user_version);
        let withdrawn = (&self.revoked, &self.user_removed, &self.revocations_seen);
        f.debug_struct("CachedKey")
            .field("versions", &versions)
            .field("withdrawn", &withdrawn)
            .field("slots", &self.slots)
            .field("budget", &self.budget)
            .field("usage", &self.usage)
            .field("confirmed", &self.confirmed)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

impl KeySlots {
    /// The slots of a key, if its policy or its plan has a limit.
    fn of_key(key: &Key, of_plan: Option<u32>, leases: &SlotLeases) -> Option<Box<Self>> {
        let concurrent = smaller(key.policy.as_deref().and_then(|policy| policy.concurrent), of_plan)?;
        Some(Box::new(Self { concurrent, lease: leases.key_lease_of(key.id) }))
    }

    /// The status of the slots, of which other gateways hold so many.
    pub(super) fn status(&self, held_elsewhere: u32) -> SlotStatus {
        SlotStatus { concurrent: self.concurrent, in_flight: held_elsewhere.saturating_add(self.lease.held()) }
    }
}

/// The permissions of requests with a key: those of its user that its policy leaves it.
fn permissions_of(key: &Key, user: Option<&StoredUser>) -> Box<[Permission]> {
    let of_user = user.map_or(&[][..], |user| user.user.permissions_in_force());
    let own = key.policy.as_ref().map(|policy| policy.effective_permissions(of_user));
    own.map_or(of_user.into(), Vec::into_boxed_slice)
}

/// The principal of requests with a key that has these permissions.
fn principal_of(key: &Key, permissions: &[Permission]) -> Principal {
    let Key { user: user_id, org: org_id, .. } = *key;
    let key_id = (!key.session_quota_key).then_some(key.id);
    let method = if key_id.is_none() { AuthMethod::Session } else { AuthMethod::ApiKey };
    let headers = PrincipalHeaders::new(user_id, org_id, permissions);
    Principal { key_id, user_id, org_id, method, headers }
}
