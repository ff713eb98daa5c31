//! State that the deciders of all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};

use super::health::DecisionHealth;
use super::key_cache::{CachedKey, KeyCache};
use super::usage::CachedUsage;
use crate::redis::active_defaults::ActiveDefaults;
use crate::redis::record_codec::{StoredRecords, new_version};
use crate::redis::record_names::RecordNames;
use crate::redis::revocations::KeptRevocations;
use crate::redis::scripts::Scripts;
use crate::redis::settings::Settings;
use crate::redis::slots::SlotLeases;
use crate::redis::weak_index::WeakIndex;
use domain::clock::Micros;
use domain::key::KeyDigest;

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
    usages: WeakIndex<CachedUsage>,
    /// Number of changes that this process has made to the directory.
    changes: AtomicU64,
    /// Decisions about keys of plans that the configuration does not have.
    missing_plan_decisions: AtomicU64,
    /// Keys with uses that were admitted offline and have not been reported. Added by decisions without Redis, taken by
    /// the task that reports.
    unreported_keys: Mutex<Vec<Arc<CachedKey>>>,
    /// Written by decisions and by the probe; read by readiness and metrics.
    pub(super) health: DecisionHealth,
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
            changes: AtomicU64::new(0),
            missing_plan_decisions: AtomicU64::new(0),
            unreported_keys: Mutex::default(),
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
        CachedKey::new((&**defaults, limits), &self.names, digest, records, &self.slots, usage, now)
    }

    /// Records a use of this cost that was admitted offline, to be reported.
    pub fn record_unreported(&self, key: &Arc<CachedKey>, cost: u32) {
        // Without randomness there is no name to report it under: the use is not counted.
        let Some(name) = new_version().ok().and_then(|name| name.as_bytes().first_chunk().copied()) else {
            return;
        };
        // The first unreported use enters the key into the list; later ones find it there.
        if key.usage.add_unreported(name, cost) == 1 {
            self.add_unreported_key(key);
        }
    }

    /// Enters a key whose uses were reported into the list again, if uses are left: the report may have failed, or more
    /// uses may have been added meanwhile. A key that is gone has no record to count uses in.
    pub fn end_report(&self, key: &Arc<CachedKey>, is_gone: bool) {
        if !is_gone && key.usage.unreported().is_some() {
            self.add_unreported_key(key);
        }
    }

    /// Enters a key into the list of those with unreported uses.
    fn add_unreported_key(&self, key: &Arc<CachedKey>) {
        self.unreported_keys().push(Arc::clone(key));
    }

    /// Takes all keys with unreported uses out of the list.
    pub fn take_unreported_keys(&self) -> Vec<Arc<CachedKey>> {
        std::mem::take(&mut *self.unreported_keys())
    }

    fn unreported_keys(&self) -> MutexGuard<'_, Vec<Arc<CachedKey>>> {
        self.unreported_keys.lock()
    }
}
