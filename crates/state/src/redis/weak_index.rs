//! Values that all cached entries of a key, or of another subject, share.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

/// Entries below which the index is not swept.
const SMALLEST_SWEEP: usize = 1024;

/// Shared values by the id of their subject.
///
/// - An entry is usable for as long as a cached key, or anything else, has the value.
pub(super) struct WeakIndex<K, T> {
    values: DashMap<K, Weak<T>, FxBuildHasher>,
    /// Number of entries at which those that are not used any more are removed.
    sweep_at: AtomicUsize,
}

impl<K: Eq + Hash, T> Default for WeakIndex<K, T> {
    fn default() -> Self {
        Self { values: DashMap::default(), sweep_at: AtomicUsize::new(0) }
    }
}

impl<K: Eq + Hash, T> WeakIndex<K, T> {
    /// The value of a subject; a new one when there is none.
    pub(super) fn value_of(&self, key: K, new: impl FnOnce() -> T) -> Arc<T> {
        self.sweep();
        let mut entry = self.values.entry(key).or_default();
        if let Some(value) = entry.upgrade() {
            return value;
        }
        let value = Arc::new(new());
        *entry = Arc::downgrade(&value);
        value
    }

    /// Removes what is not used any more, when the index has doubled since the last time.
    fn sweep(&self) {
        if self.values.len() > self.sweep_at.load(Ordering::Relaxed).max(SMALLEST_SWEEP) {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.sweep_at.store(self.values.len() * 2, Ordering::Relaxed);
        }
    }
}
