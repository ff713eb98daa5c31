//! A gateway: its clocks, its links to the shards, and what it knows, which is the product's own state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::clock::Micros;
use rustc_hash::{FxHashMap, FxHashSet};
use state::RevocationLog;
use state::identity::IdentityGuard;
use state::redis::{DeciderShared, KeptRevocations, ListedOrgs, LogFollower, RecordNames, SlotLeases};

use super::disk::Disk;
use super::event::{Process, ResyncFor};
use super::journal::Journal;
use super::product::Product;
use super::ship::Shipper;
use super::subjects::Subject;

/// Time-out of a decision.
pub const DEADLINE: u64 = 50_000;
/// Microseconds by which the clocks of gateways are apart: they are up to a year off.
pub const YEAR: u64 = 365 * 24 * 3600 * 1_000_000;

/// Link of a gateway to the primary of a shard.
#[derive(Clone, Default)]
pub struct Link {
    pub is_up: bool,
    /// Number of the connection; grows with each.
    pub connection: u32,
    /// History of the server, as the last connection found it; 0 before the first.
    pub history: u32,
    /// Time since which it is down.
    pub down_since: Option<u64>,
    /// Late replies in a row.
    pub late: u32,
    pub pause: u64,
    /// Time of the last trouble: a late reply, or that it came up again.
    pub troubled: u64,
    /// Time at which it came up for the first time after a promotion, which lost what the replica had not got.
    pub restored_from: u64,
}

/// State of a process.
pub struct Gateway {
    pub process: Process,
    pub is_up: bool,
    /// Time of its start.
    pub started: u64,
    /// Takes no new requests, and leaves.
    pub is_leaving: bool,
    /// Its disk is gone.
    pub is_lost: bool,
    /// Steady clock minus true time, and how much faster it runs, in millionths.
    offset: u64,
    drift: i64,
    /// Name of the process in Redis.
    pub id: Vec<u8>,
    pub links: Vec<Link>,
    /// Commands that it has sent, and that are still on their way or awaited.
    pub sent: BTreeSet<u64>,
    /// End of the partition from each shard.
    pub cut_until: Vec<u64>,
    /// Cached keys, slot leases and membership, as the product has them.
    pub decisions: DeciderShared,
    pub failovers: Arc<AtomicU64>,
    /// Continuity of the state, and the organizations by which lost data of a shard is noticed.
    pub identity: IdentityGuard,
    pub listed: ListedOrgs,
    /// Numbers of gateways that the heartbeats told, each from a steady time on.
    pub counts: Vec<(u64, u32)>,
    pub kept: Arc<KeptRevocations>,
    /// Reads the shared log of revocations, and appends to that of the process.
    pub follower: LogFollower,
    pub log: Arc<RevocationLog>,
    /// Position up to which the process has obeyed its log.
    pub obeyed: u64,
    /// Subjects of slots of which a resync is in flight, with the requests that wait for it.
    pub resyncing: FxHashMap<Subject, Vec<ResyncFor>>,
    /// Requests that it forwards.
    pub open: FxHashSet<u64>,
    /// Organizations about which Redis did not answer, with the steady time at which that was noticed.
    pub noticed: FxHashMap<usize, u64>,
    /// Lines that are not written yet, and uses that are open.
    pub journal: Journal,
    pub disk: Disk,
    pub shipper: Shipper,
}

impl Gateway {
    /// A process that starts at a time on a machine with a disk.
    pub fn new(
        process: Process,
        shards: usize,
        (offset, drift): (u64, i64),
        now: Instant,
        (mut disk, time): (Disk, u64),
        Product { settings, scripts, keeps_revocations }: &Product,
    ) -> Self {
        let Process { gateway, start } = process;
        let id = format!("h:g{gateway}.{start}").into_bytes();
        let settings = Arc::clone(settings);
        let scripts = Arc::clone(scripts);
        let max_loss = settings.max_loss;
        let failovers = Arc::<AtomicU64>::default();
        let kept = Arc::new(kept_revocations());
        let slots =
            SlotLeases::new(Arc::clone(&settings), Arc::clone(&scripts), id.clone().into(), Arc::clone(&failovers));
        let decisions = DeciderShared::new(settings, scripts, Arc::new(slots), Arc::clone(&kept), Micros(offset));
        let identity = IdentityGuard::new(max_loss);
        disk.memory.iter().for_each(|memory| identity.remember(memory.clone()));
        let log = Arc::new(RevocationLog::new());
        let in_log = if *keeps_revocations { Arc::clone(&kept) } else { Arc::new(kept_revocations()) };
        let follower = LogFollower::new(Arc::clone(&log), in_log, Arc::clone(&failovers), now);
        Self {
            process,
            is_up: true,
            started: 0,
            is_leaving: false,
            is_lost: false,
            offset,
            drift,
            id,
            links: vec![Link::default(); shards],
            sent: BTreeSet::new(),
            cut_until: vec![0; shards],
            decisions,
            failovers,
            identity,
            listed: ListedOrgs::default(),
            counts: Vec::new(),
            kept,
            follower,
            log,
            obeyed: 0,
            resyncing: FxHashMap::default(),
            open: FxHashSet::default(),
            noticed: FxHashMap::default(),
            journal: Journal::open(&mut disk, gateway, time),
            disk,
            shipper: Shipper::new(gateway, now),
        }
    }

    /// The steady clock. It runs a little faster or slower than the true time.
    pub fn steady(&self, now: u64) -> Micros {
        let drifted = i64::try_from(now).unwrap() * self.drift / 1_000_000;
        Micros((self.offset + now).strict_add_signed(drifted))
    }

    /// The steady clock as an instant; only differences count.
    pub fn instant(&self, base: Instant, now: u64) -> Instant {
        base + Duration::from_micros(self.steady(now).0)
    }

    pub fn seen_failovers(&self) -> u64 {
        self.failovers.load(Ordering::Acquire)
    }

    pub fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    /// Part of a rate that is this gateway's, integrated from one steady time to another: microseconds divided by the
    /// number of gateways, as its heartbeats told it, but at most by `most`.
    pub fn portion_of_time(&self, from: u64, to: u64, most: u32) -> f64 {
        let mut sum = 0.0;
        for (at, (begin, count)) in self.counts.iter().enumerate() {
            let end = self.counts.get(at + 1).map_or(u64::MAX, |(end, _)| *end);
            let time = end.min(to).saturating_sub((*begin).max(from));
            sum += time as f64 / f64::from((*count).min(most));
        }
        sum
    }
}

fn kept_revocations() -> KeptRevocations {
    KeptRevocations::new(RecordNames::new("keygate"))
}
