//! A gateway: its clocks, its links to the shards, and what it knows. The slot leases, the shares, the membership and
//! the kept revocations are the product's own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::clock::Micros;
use rustc_hash::{FxHashMap, FxHashSet};
use state::redis::{ActiveSet, CachedUsage, KeptRevocations, Membership, RecordNames, SlotLease};

use super::database::Bytes;
use super::directory::Org;
use super::event::Process;
use super::journal::Journal;

/// Settings of the product that the simulation runs with: its defaults, and `known_keys`.
pub const DEADLINE: u64 = 50_000;
pub const LEASE: Duration = Duration::from_secs(10);
pub const LEASE_US: u64 = 10_000_000;
pub const MAX_STALENESS: Duration = Duration::from_secs(60);
/// As `Settings::registration_micros` adds them.
pub const REGISTRATION: u64 = 70_000_000;
/// As `Settings::renew_interval` divides it.
pub const RENEW: u64 = LEASE_US / 3;

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

/// A key as the gateway has it cached.
pub struct CachedKey {
    pub versions: [u8; 24],
    pub is_revoked: bool,
    /// Generation of the kept revocations that it was compared with.
    pub seen: u64,
    pub usage: CachedUsage,
    pub confirmed: Micros,
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
    leases: FxHashMap<usize, Arc<SlotLease>>,
    pub active: Arc<ActiveSet<SlotLease>>,
    pub failovers: Arc<AtomicU64>,
    pub membership: Option<Membership>,
    /// Numbers of gateways that the heartbeats told, each from a steady time on.
    pub counts: Vec<(u64, u32)>,
    pub keys: FxHashMap<usize, CachedKey>,
    /// Keys with uses to report.
    pub unreported: Vec<usize>,
    pub kept: KeptRevocations,
    /// The last entry of the log that was read.
    pub position: Option<(u64, Option<Bytes>)>,
    /// Organizations of which a resync is in flight, with the requests that wait for it.
    pub resyncing: FxHashMap<usize, Vec<u64>>,
    /// Requests that it forwards.
    pub open: FxHashSet<u64>,
    /// Organizations about which Redis did not answer, with the steady time at which that was noticed.
    pub noticed: FxHashMap<usize, u64>,
    pub journal: Journal,
}

impl Gateway {
    /// A process on a machine that holds a journal.
    pub fn new(process: Process, shards: usize, offset: u64, drift: i64, journal: Journal) -> Self {
        let Process { gateway, start } = process;
        Self {
            process,
            is_up: true,
            started: 0,
            is_leaving: false,
            is_lost: false,
            offset,
            drift,
            id: format!("h:g{gateway}.{start}").into_bytes(),
            links: vec![Link::default(); shards],
            sent: BTreeSet::new(),
            cut_until: vec![0; shards],
            leases: FxHashMap::default(),
            active: Arc::new(ActiveSet::new()),
            failovers: Arc::new(AtomicU64::new(0)),
            membership: None,
            counts: Vec::new(),
            keys: FxHashMap::default(),
            unreported: Vec::new(),
            kept: KeptRevocations::new(RecordNames::new("keygate")),
            position: None,
            resyncing: FxHashMap::default(),
            open: FxHashSet::default(),
            noticed: FxHashMap::default(),
            journal,
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

    pub fn lease(&mut self, number: usize, org: &Org, base: Instant, now: u64) -> Arc<SlotLease> {
        let instant = self.instant(base, now);
        let (active, failovers) = (&self.active, &self.failovers);
        let lease = self.leases.entry(number).or_insert_with(|| {
            let names = RecordNames::new("keygate");
            Arc::new(SlotLease::new(&names, org.tag, Arc::clone(active), Arc::clone(failovers), instant))
        });
        Arc::clone(lease)
    }

    /// Slots that it holds of an organization.
    pub fn held(&self, org: usize) -> u32 {
        self.leases.get(&org).map_or(0, |lease| lease.held())
    }

    pub fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    /// The cached key, once it obeys the kept revocations; as `CachedKey::apply_revocations` of the product.
    pub fn cached(&mut self, key: usize, id: domain::key::KeyId) -> Option<&CachedKey> {
        let cached = self.keys.get_mut(&key)?;
        let generation = self.kept.generation();
        if std::mem::replace(&mut cached.seen, generation) != generation {
            cached.is_revoked |= self.kept.has_key(id);
        }
        Some(cached)
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
