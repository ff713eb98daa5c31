//! The set of items that a background task visits, and the signals that wake the task.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Items to visit. Shared by the items, which add themselves, and by the one task that visits them.
pub struct ActiveSet<T> {
    /// In the order in which they became active. The task removes those that no longer need a visit.
    items: Mutex<Vec<Arc<T>>>,
    /// Set by items, and taken by the task: the next round is early.
    early_visit: AtomicBool,
    /// Wakes the task.
    wake_up: Notify,
}

impl<T> Default for ActiveSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ActiveSet<T> {
    /// An empty set.
    pub fn new() -> Self {
        Self { items: Mutex::default(), early_visit: AtomicBool::new(false), wake_up: Notify::new() }
    }

    /// Adds an item, and wakes the task, which sleeps long while the set is empty.
    pub(super) fn add(&self, item: Arc<T>) {
        self.items().push(item);
        self.wake_up.notify_one();
    }

    /// Wakes the task before its regular interval.
    pub(super) fn request_early_visit(&self) {
        if !self.early_visit.swap(true, Ordering::AcqRel) {
            self.wake_up.notify_one();
        }
    }

    /// Returns whether an early visit was requested since the last call.
    pub fn take_early_visit(&self) -> bool {
        self.early_visit.swap(false, Ordering::AcqRel)
    }

    pub(super) async fn wait_for_wake_up(&self) {
        self.wake_up.notified().await;
    }

    /// Returns whether there is nothing to visit.
    pub fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    /// A copy of the set.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.items().clone()
    }

    /// Removes these items, each once: an item that became active again was added a second time, behind, and stays.
    pub fn remove(&self, inactive: &[Arc<T>]) {
        if inactive.is_empty() {
            return;
        }
        let mut inactive: HashSet<*const T> = inactive.iter().map(Arc::as_ptr).collect();
        self.items().retain(|item| !inactive.remove(&Arc::as_ptr(item)));
    }

    /// A panic under this lock leaves nothing half changed: its holders only push and remove.
    fn items(&self) -> MutexGuard<'_, Vec<Arc<T>>> {
        self.items.lock()
    }
}
