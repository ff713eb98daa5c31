//! Usages by key id: all cached entries of a key, one for each of its secrets, have the same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use super::usage::CachedUsage;
use domain::key::KeyId;

/// Entries below which the index is not swept.
const SMALLEST_SWEEP: usize = 1024;

/// Usages by key id.
///
/// - An entry is usable for as long as a cached key, or the list of unreported uses, has the usage.
#[derive(Default)]
pub(super) struct UsageIndex {
    usages: DashMap<KeyId, Weak<CachedUsage>, FxBuildHasher>,
    /// Number of entries at which those that are not used any more are removed.
    sweep_at: AtomicUsize,
}

impl UsageIndex {
    /// The usage of a key; a new one when the key is not cached.
    pub(super) fn usage_of(&self, key: KeyId, new: impl FnOnce() -> CachedUsage) -> Arc<CachedUsage> {
        self.sweep();
        let mut entry = self.usages.entry(key).or_default();
        if let Some(usage) = entry.upgrade() {
            return usage;
        }
        let usage = Arc::new(new());
        *entry = Arc::downgrade(&usage);
        usage
    }

    /// Removes what is not used any more, when the index has doubled since the last time.
    fn sweep(&self) {
        if self.usages.len() > self.sweep_at.load(Ordering::Relaxed).max(SMALLEST_SWEEP) {
            self.usages.retain(|_, usage| usage.strong_count() > 0);
            self.sweep_at.store(self.usages.len() * 2, Ordering::Relaxed);
        }
    }
}
