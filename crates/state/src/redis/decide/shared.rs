//! State that the deciders of all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::budget::{BudgetCounter, KeyBudget};
use super::health::DecisionHealth;
use super::key_cache::{CachedKey, KeyCache};
use super::usage::CachedUsage;
use crate::near_budgets::NearBudgets;
use crate::redis::active_defaults::ActiveDefaults;
use crate::redis::record_codec::{StoredRecords, new_version};
use crate::redis::record_names::RecordNames;
use crate::redis::revocations::KeptRevocations;
use crate::redis::scripts::Scripts;
use crate::redis::settings::Settings;
use crate::redis::slots::SlotLeases;
use crate::redis::weak_index::WeakIndex;
use domain::budget::BudgetSubject;
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};

/// Keys with something that Redis is to be told: uses that were admitted offline, and units that came back of a budget.
#[derive(Default)]
pub(crate) struct UnreportedKeys(Mutex<Vec<Arc<CachedKey>>>);

impl UnreportedKeys {
    pub(super) fn add(&self, key: &Arc<CachedKey>) {
        self.0.lock().push(Arc::clone(key));
    }
}

/// State that the deciders of all threads share. It sends nothing.
pub struct DeciderShared {
    pub(super) settings: Arc<Settings>,
    pub(super) names: RecordNames,
    pub(super) scripts: Arc<Scripts>,
    /// The slot leases.
    pub slots: Arc<SlotLeases>,
    /// Written by decisions that read records; each thread looks keys up in it.
    pub(super) cache: KeyCache,
    /// Uses of keys, which outlive their entries in the cache while requests or reports hold them.
    usages: WeakIndex<KeyId, CachedUsage>,
    /// Counters of budgets, by their subjects.
    budgets: WeakIndex<BudgetSubject, BudgetCounter>,
    /// The budgets that are nearly spent.
    pub(super) near: NearBudgets,
    /// Microseconds by which the clock of Redis is ahead of this gateway's, as a decision about a budget showed it.
    clock_ahead: AtomicI64,
    /// Number of changes that this process has made to the directory.
    changes: AtomicU64,
    /// Decisions about keys of plans that the configuration does not have.
    missing_plan_decisions: AtomicU64,
    /// Keys with uses that were admitted offline and have not been reported. Added by decisions without Redis, taken by
    /// the task that reports.
    pub(super) unreported_keys: Arc<UnreportedKeys>,
    /// Written by decisions and by the probe; read by readiness and metrics.
    pub(super) health: DecisionHealth,
}

/// All that the next step depends on, but for the cached keys ([`DeciderShared::cached`]).
impl std::fmt::Debug for DeciderShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unreported = self.unreported_keys.0.lock().len();
        let numbers = (unreported, self.verdict_epoch(), &self.clock_ahead);
        f.debug_tuple("DeciderShared").field(&self.slots).field(&numbers).finish()
    }
}

impl DeciderShared {
    /// The state of a gateway that starts at `now`, with an empty cache.
    pub fn new(
        settings: Arc<Settings>,
        scripts: Arc<Scripts>,
        slots: Arc<SlotLeases>,
        revocations: Arc<KeptRevocations>,
        now: Micros,
    ) -> Self {
        let names = RecordNames::new(&settings.prefix);
        let defaults = Arc::new(ArcSwap::from_pointee(ActiveDefaults::new(settings.defaults(), now)));
        Self {
            settings,
            names,
            scripts,
            slots,
            cache: KeyCache::new(defaults, revocations),
            usages: WeakIndex::default(),
            budgets: WeakIndex::default(),
            near: NearBudgets::default(),
            clock_ahead: AtomicI64::new(0),
            changes: AtomicU64::new(0),
            missing_plan_decisions: AtomicU64::new(0),
            unreported_keys: Arc::default(),
            health: DecisionHealth::default(),
        }
    }

    /// Epoch of local verdicts: changes of this process and failovers begin another one.
    pub(super) fn verdict_epoch(&self) -> u64 {
        self.changes.load(Ordering::Acquire) + self.slots.failovers()
    }

    /// Begins another epoch of local verdicts: a change of the directory was made.
    pub fn end_verdicts(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Counts a decision about a key, if the configuration does not have the plan of the key.
    pub(super) fn count_missing_plan(&self, key: &CachedKey) {
        if key.is_plan_missing {
            self.missing_plan_decisions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Decisions about keys of plans that the configuration does not have.
    pub(super) fn missing_plan_decisions(&self) -> u64 {
        self.missing_plan_decisions.load(Ordering::Relaxed)
    }

    /// The active default limits, which can be replaced.
    pub(crate) fn defaults(&self) -> &Arc<ArcSwap<ActiveDefaults>> {
        &self.cache.defaults
    }

    /// The cache entry of a digest.
    pub fn cached(&self, digest: &KeyDigest) -> Option<Arc<CachedKey>> {
        self.cache.lookup_offline(digest)
    }

    /// A cache entry from records that were read at `now`, in steady time, under the active default limits.
    pub(super) fn cached_key(&self, digest: &KeyDigest, records: &StoredRecords, now: Micros) -> CachedKey {
        let StoredRecords { key, org, user } = records;
        let defaults = self.cache.defaults.load();
        let user = user.as_ref().map(|user| &user.user);
        let limits = defaults.limits.limits_of_key(&key.key, user, Some(&org.org));
        let usage = self.usages.value_of(key.key.id, || CachedUsage::new(key, limits.quota, now));
        let budget = limits.budget.map(|budget| {
            let key = &key.key;
            let subject = budget.subject((!key.session_quota_key).then_some(key.id), key.user, key.org);
            let counter = self.budgets.value_of(subject, || BudgetCounter::new(subject));
            Box::new(KeyBudget { budget, counter })
        });
        CachedKey::new((&**defaults, limits, budget), &self.names, digest, records, &self.slots, usage, now)
    }

    /// Records a use of this cost that was admitted offline, to be reported.
    pub fn record_unreported(&self, key: &Arc<CachedKey>, cost: u32) {
        // Without randomness there is no name to report it under: the use is not counted.
        let Some(name) = new_version().ok().and_then(|name| name.as_bytes().first_chunk().copied()) else {
            return;
        };
        // The first unreported use enters the key into the list; later ones find it there.
        if key.usage.add_unreported(name, cost) == 1 {
            self.unreported_keys.add(key);
        }
    }

    /// Enters a key whose uses were reported into the list again, if uses are left: the report may have failed, or more
    /// uses may have been added meanwhile. A key that is gone has no record to count uses in.
    pub fn end_report(&self, key: &Arc<CachedKey>, is_gone: bool) {
        let untold = key.budget.as_deref().and_then(|budget| budget.counter.untold());
        if !is_gone && (key.usage.unreported().is_some() || untold.is_some()) {
            self.unreported_keys.add(key);
        }
    }

    /// Takes all keys with unreported uses out of the list.
    pub fn take_unreported_keys(&self) -> Vec<Arc<CachedKey>> {
        std::mem::take(&mut *self.unreported_keys.0.lock())
    }

    /// A time of this gateway by the clock of Redis, as far as it is known.
    pub(super) fn redis_time(&self, now: Micros) -> Micros {
        Micros(now.0.saturating_add_signed(self.clock_ahead.load(Ordering::Relaxed)))
    }

    /// Notes the time of Redis at a time of this gateway.
    pub(super) fn note_redis_time(&self, redis: Micros, now: Micros) {
        let ahead = redis.0.cast_signed().saturating_sub(now.0.cast_signed());
        self.clock_ahead.store(ahead, Ordering::Relaxed);
    }
}
