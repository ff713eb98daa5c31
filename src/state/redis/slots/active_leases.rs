//! The leases that the keeper looks after, and how it is woken.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::state::redis::slots::lease::SlotLease;

/// The leases of organizations that are in use.
#[derive(Default)]
pub(in crate::state::redis) struct ActiveLeases {
    leases: Mutex<Vec<Arc<SlotLease>>>,
    hurried: AtomicBool,
    woken: Notify,
}

impl ActiveLeases {
    /// One more to look after. The keeper is woken: it sleeps when there is none.
    pub(in crate::state::redis) fn add(&self, lease: Arc<SlotLease>) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).push(lease);
        self.woken.notify_one();
    }

    /// A slot was released for which others may wait.
    pub(in crate::state::redis) fn hurry(&self) {
        if !self.hurried.swap(true, Ordering::AcqRel) {
            self.woken.notify_one();
        }
    }

    /// Whether somebody was in a hurry since the last question.
    pub(in crate::state::redis) fn hurried(&self) -> bool {
        self.hurried.swap(false, Ordering::AcqRel)
    }

    pub(in crate::state::redis) async fn woken(&self) {
        self.woken.notified().await;
    }

    pub(in crate::state::redis) fn is_empty(&self) -> bool {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All of them, to look at.
    pub(in crate::state::redis) fn all(&self) -> Vec<Arc<SlotLease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets these: they rest. One that is in use again already was added once more, behind: that one stays.
    pub(in crate::state::redis) fn remove(&self, resting: &[Arc<SlotLease>]) {
        if resting.is_empty() {
            return;
        }
        let mut resting: HashSet<*const SlotLease> = resting.iter().map(Arc::as_ptr).collect();
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.retain(|lease| !resting.remove(&Arc::as_ptr(lease)));
    }
}
