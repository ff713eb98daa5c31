//! A gateway: what it knows, which is the product's own state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use state::RevocationLog;
use state::identity::{IdentityGuard, Memory};
use state::redis::{
    CachedKey, DeciderShared, KeptRevocations, ListedOrgs, LogFollower, RecordNames, SlotLeases, SlotSubject,
};

use crate::directory::Directory;
use crate::world::{instant, steady};

pub const GATEWAYS: usize = 2;

/// A process.
pub struct Gateway {
    /// Processes of the gateway before it.
    pub start: u32,
    /// Name of the process in Redis.
    pub id: Vec<u8>,
    /// The server that it is connected to.
    pub history: u32,
    pub decisions: DeciderShared,
    failovers: Arc<AtomicU64>,
    pub kept: Arc<KeptRevocations>,
    pub follower: LogFollower,
    pub identity: IdentityGuard,
    pub listed: ListedOrgs,
    /// Slot leases of which a resync is in flight, with the requests that wait for it.
    pub resyncing: Vec<(SlotSubject, Vec<ResyncFor>)>,
}

/// A request that waits for a resync of a lease, with its cached key.
pub type ResyncFor = (usize, Arc<CachedKey>);

impl Gateway {
    pub fn new(number: usize, start: u32, directory: &Directory, memory: Option<Memory>) -> Self {
        let id = format!("h:g{number}.{start}").into_bytes();
        let (settings, scripts) = (Arc::clone(&directory.settings), Arc::clone(&directory.scripts));
        let failovers = Arc::<AtomicU64>::default();
        let kept = Arc::new(KeptRevocations::new(RecordNames::new("keygate")));
        let name = id.clone().into();
        let slots = SlotLeases::new(Arc::clone(&settings), Arc::clone(&scripts), name, Arc::clone(&failovers));
        let max_loss = settings.max_loss;
        let decisions = DeciderShared::new(settings, scripts, Arc::new(slots), Arc::clone(&kept), steady(0));
        let log = Arc::new(RevocationLog::new());
        let follower = LogFollower::new(log, Arc::clone(&kept), Arc::clone(&failovers), instant(0));
        let identity = IdentityGuard::new(max_loss);
        memory.into_iter().for_each(|memory| identity.remember(memory));
        Self {
            start,
            id,
            history: 1,
            decisions,
            failovers,
            kept,
            follower,
            identity,
            listed: ListedOrgs::default(),
            resyncing: Vec::new(),
        }
    }

    pub fn seen_failovers(&self) -> u64 {
        self.failovers.load(Ordering::Acquire)
    }

    pub fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    pub fn is_verified(&self) -> bool {
        self.identity.is_verified(&self.failovers)
    }
}
