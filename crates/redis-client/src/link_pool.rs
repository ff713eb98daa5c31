//! The links of one thread: one for each server, and the map that says which link serves a hash slot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use redis::cmd;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::connect::{Connector, Target};
use super::hash_slots::{HashSlotMap, SlotRange, parse_slots};
use super::link::ServerLink;
use super::request::CommandRequest;
use super::settings::{Address, Servers};
use super::shared::ClientShared;

/// Links to all servers, for one thread.
pub(super) struct LinkPool {
    pub(super) shared: Arc<ClientShared>,
    /// True when commands that wait for replicas are sent over these links, and block what is behind them.
    may_block: bool,
    links: Mutex<HashMap<Target, (Arc<ServerLink>, AbortHandle)>>,
    pub(super) slots: ArcSwap<HashSlotMap>,
    /// Refreshes of the slot map so far: each begins with another node.
    refreshes: AtomicUsize,
    /// The tasks of the links and of the topology; they end with the pool.
    tasks: Mutex<JoinSet<()>>,
}

impl LinkPool {
    /// Links to the configured servers; they connect on the current runtime.
    pub(super) fn new(shared: Arc<ClientShared>, may_block: bool) -> Self {
        let pool = Self {
            shared,
            may_block,
            links: Mutex::default(),
            slots: ArcSwap::from_pointee(HashSlotMap::default()),
            refreshes: AtomicUsize::new(0),
            tasks: Mutex::default(),
        };
        let configured: Vec<_> = pool.seeds().into_iter().map(|target| pool.link_to(target)).collect();
        // A single server gets everything from the start; if it turns out to be a node of a Cluster, it redirects.
        if let [only] = &*configured {
            pool.slots.store(Arc::new(HashSlotMap::with_one(Arc::clone(only))));
        }
        pool
    }

    /// Runs a task for as long as the pool lives.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.lock().spawn(task)
    }

    pub(super) fn all_links(&self) -> Vec<Arc<ServerLink>> {
        self.links().values().map(|(link, _)| Arc::clone(link)).collect()
    }

    /// The link to the node that a redirection names. An address without a host means the node that redirected.
    pub(super) fn link_at(&self, address: &Address, redirected_by: &Arc<ServerLink>) -> Arc<ServerLink> {
        match redirected_by.target() {
            Target::Server(same) if address.host.is_empty() => {
                self.link_to(Target::Server(Address { host: same.host.clone(), port: address.port }))
            }
            _ => self.link_to(Target::Server(address.clone())),
        }
    }

    /// Asks the nodes, one after the other, for the slot map, and applies the first reply.
    pub(super) async fn refresh_slots(&self) {
        let mut links = self.all_links();
        links.retain(|link| link.is_up());
        // Begin with another node each time: one that is cut off from the others reports an outdated map.
        let first = self.refreshes.fetch_add(1, Ordering::Relaxed) % links.len().max(1);
        links.rotate_left(first);
        for link in links {
            let Target::Server(asked) = link.target() else { continue };
            let mut query = cmd("CLUSTER");
            query.arg("SLOTS");
            // A late reply is not waited for: while a node hangs, others take over its slots, and another node knows.
            let request = (&query).into();
            let reply = timeout(2 * self.shared.settings.deadline, link.send(CommandRequest::new(&request))).await;
            if let Ok(Ok((reply, _))) = reply
                && let Some(ranges) = parse_slots(&reply, asked)
                && !ranges.is_empty()
            {
                return self.apply_slots(ranges);
            }
        }
    }

    fn apply_slots(&self, ranges: Vec<SlotRange>) {
        let known = self.slots.load();
        let slots = known.updated(ranges, |primary| self.link_to(Target::Server(primary)));
        // A slot that moved may have moved by a failover, to a node without the last acknowledged writes.
        if known.has_moved_slots(&slots) {
            self.shared.count_failover();
        }
        let used: Vec<Target> = slots.links().map(|link| link.target().clone()).collect();
        self.slots.store(Arc::new(slots));
        self.retain_links(&used);
    }

    /// The targets in the settings.
    fn seeds(&self) -> Vec<Target> {
        match &self.shared.settings.servers {
            Servers::Single(address) => vec![Target::Server(address.clone())],
            Servers::Sentinel { .. } => vec![Target::Primary],
            Servers::Cluster(nodes) => nodes.iter().cloned().map(Target::Server).collect(),
        }
    }

    /// The link to a server; opened when there is none.
    fn link_to(&self, target: Target) -> Arc<ServerLink> {
        let mut links = self.links();
        let link = links.entry(target).or_insert_with_key(|target| {
            let connector = Connector::new(target.clone(), Arc::clone(&self.shared), self.may_block);
            let link = Arc::new(ServerLink::new(connector));
            let task = self.spawn(Arc::clone(&link).run());
            (link, task)
        });
        Arc::clone(&link.0)
    }

    /// Closes the links to servers that are neither used nor configured. Configured ones stay as seeds.
    fn retain_links(&self, used: &[Target]) {
        let seeds = self.seeds();
        self.links().retain(|target, (_, task)| {
            let stays = used.contains(target) || seeds.contains(target);
            if !stays {
                task.abort();
            }
            stays
        });
    }

    fn links(&self) -> MutexGuard<'_, HashMap<Target, (Arc<ServerLink>, AbortHandle)>> {
        self.links.lock()
    }
}
