//! The connected links of a process, of all its clients together, by the server process that they lead to.
//!
//! A link is registered from the moment at which it may serve commands until its connection ends. So every server that
//! can decide for this process is in the list, whatever name or address led there: a Cluster replica that is promoted,
//! an old primary that only one thread still talks to, two servers behind one virtual address.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::connection::Connection;
use super::settings::Address;

/// All connected links.
pub struct LiveLinks {
    links: Mutex<HashMap<u64, LiveLink>>,
    /// The number of the next link; wakes those who wait for a change.
    changes: watch::Sender<u64>,
}

/// A connected link.
#[derive(Clone)]
pub(super) struct LiveLink {
    /// `run_id` of the server process, which a connection keeps for as long as it lives.
    pub(super) server: Arc<str>,
    /// The address by which commands get there; on a Cluster, the one that the slot map names.
    pub(super) address: Address,
    pub(super) connection: Connection,
    /// True when commands may have to wait on it for the replicas of others.
    pub(super) may_block: bool,
}

/// Keeps a link in the list; removes it on drop.
pub(super) struct Registration {
    links: Arc<LiveLinks>,
    number: u64,
}

impl LiveLinks {
    pub(super) fn new() -> Self {
        Self { links: Mutex::default(), changes: watch::Sender::new(0) }
    }

    pub(super) fn register(self: &Arc<Self>, link: LiveLink) -> Registration {
        let mut number = 0;
        self.changes.send_modify(|changes| {
            number = *changes;
            self.links().insert(number, link);
            *changes += 1;
        });
        Registration { links: Arc::clone(self), number }
    }

    /// Changes whenever a link connects or ends.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The server processes to which at least one link is connected.
    pub fn servers(&self) -> HashSet<Arc<str>> {
        self.links().values().map(|link| Arc::clone(&link.server)).collect()
    }

    /// The links to a server; first those on which nothing blocks.
    pub(super) fn links_to(&self, server: &str) -> Vec<LiveLink> {
        let mut found: Vec<LiveLink> = self.links().values().filter(|link| &*link.server == server).cloned().collect();
        found.sort_by_key(|link| link.may_block);
        found
    }

    /// A panic under this lock leaves nothing half changed: its holders only insert, remove and copy.
    fn links(&self) -> MutexGuard<'_, HashMap<u64, LiveLink>> {
        self.links.lock()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.links.links().remove(&self.number);
        self.links.changes.send_modify(|changes| *changes += 1);
    }
}
