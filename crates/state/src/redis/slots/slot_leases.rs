//! All slot leases of this process, and the reports about them outside of decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::Value;
use rustc_hash::FxBuildHasher;
use tokio::time::timeout;

use super::active_set::ActiveSet;
use super::lease::{Resync, SlotLease, SlotReportReply};
use super::membership::{Membership, Portion};
use super::sign_of_life::{HashSlots, SignOfLife, SignsOfLife, sign_argument};
use super::slot_report::PendingReport;
use super::subject::SlotSubject;
use crate::redis::packed::{pack, unpack};
use crate::redis::record_names::RecordNames;
use crate::redis::scripts::Scripts;
use crate::redis::settings::Settings;
use crate::redis::weak_index::WeakIndex;
use domain::clock::{self, Micros};
use domain::key::{KeyId, OrgTag};
use redis_client::{CommandError, RedisClient, hash_slot};

/// Generations of one lease of a key: a resync takes one, and the lease ends when nothing is held. With so many, the
/// numbers of four billion leases are exact in a double.
const GENERATIONS: u64 = 1 << 20;

/// The slot leases of this process, shared by all its threads.
pub struct SlotLeases {
    pub(super) settings: Arc<Settings>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) names: RecordNames,
    /// Field of this process in the records of organizations and gateways; no other process has the same.
    pub gateway_id: Box<[u8]>,
    leases: DashMap<OrgTag, Arc<SlotLease>, FxBuildHasher>,
    /// Leases on the slots of keys. One that no cached key, permit or visit has any more holds nothing.
    key_leases: WeakIndex<KeyId, SlotLease>,
    /// Leases of keys so far, by which their generations differ.
    key_leases_made: AtomicU64,
    /// Leases that the heartbeat visits.
    pub active: Arc<ActiveSet<SlotLease>>,
    /// This gateway's place among the gateways, by the reply to the last heartbeat; `None` before the first.
    membership: Mutex<Option<Membership>>,
    /// Signs of life of the servers.
    pub(super) signs: SignsOfLife,
    /// Failovers of the servers so far, counted by the client.
    failovers: Arc<AtomicU64>,
}

/// Arguments of `slot_report.lua`.
pub struct SlotReport {
    /// Slots held, which begins a generation; `None` when only releases are reported.
    absolute: Option<u32>,
    released: u32,
    generation: u64,
    /// True when the entry is to be deleted if nothing is held.
    deregister: bool,
}

impl From<Resync> for SlotReport {
    fn from(resync: Resync) -> Self {
        let Resync { held, generation, .. } = resync;
        Self { absolute: Some(held), released: 0, generation, deregister: held == 0 }
    }
}

impl SlotReport {
    /// A report of releases; with `deregister`, the entry is deleted if nothing is held.
    pub fn new(report: &PendingReport, deregister: bool) -> Self {
        Self { absolute: None, released: report.released, generation: report.generation, deregister }
    }

    /// The packed argument, with the signs of life of its server.
    pub fn encode(&self, settings: &Settings, sign: SignOfLife) -> Vec<u8> {
        let mut packed = Vec::with_capacity(64);
        match self.absolute {
            Some(held) => pack(&mut packed, u64::from(held)),
            None => packed.extend_from_slice(&(-1.0_f64).to_le_bytes()),
        }
        let numbers = [
            u64::from(self.released),
            settings.lease_micros(),
            self.generation,
            u64::from(self.deregister),
            settings.script_time(clock::now()),
            sign.since,
            sign.last,
        ];
        numbers.into_iter().for_each(|number| pack(&mut packed, number));
        packed
    }
}

/// All that the next step depends on.
impl std::fmt::Debug for SlotLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (membership, failovers) = (self.membership(), self.failovers());
        let mut leases: Vec<_> = self.leases.iter().map(|lease| format!("{:?}", lease.value())).collect();
        leases.sort_unstable();
        f.debug_tuple("SlotLeases").field(&leases).field(&membership).field(&self.signs).field(&failovers).finish()
    }
}

impl SlotLeases {
    /// Number of failovers of the servers so far.
    pub(crate) fn failovers(&self) -> u64 {
        self.failovers.load(Ordering::Acquire)
    }

    /// No leases, for the gateway with this id.
    pub fn new(
        settings: Arc<Settings>,
        scripts: Arc<Scripts>,
        gateway_id: Box<[u8]>,
        failovers: Arc<AtomicU64>,
    ) -> Self {
        Self {
            names: RecordNames::new(&settings.prefix),
            settings,
            scripts,
            gateway_id,
            leases: DashMap::with_hasher(FxBuildHasher),
            key_leases: WeakIndex::default(),
            key_leases_made: AtomicU64::new(0),
            active: Arc::new(ActiveSet::new()),
            membership: Mutex::new(None),
            signs: SignsOfLife::default(),
            failovers,
        }
    }

    /// The lease on the slots of an organization.
    pub fn lease_of(&self, tag: OrgTag) -> Arc<SlotLease> {
        let lease = self.leases.entry(tag).or_insert_with(|| {
            let active = Arc::clone(&self.active);
            let failovers = Arc::clone(&self.failovers);
            Arc::new(SlotLease::new(&self.names, SlotSubject::Org(tag), 1, active, failovers))
        });
        Arc::clone(&lease)
    }

    /// The lease on the slots of a key.
    pub fn key_lease_of(&self, key: KeyId) -> Arc<SlotLease> {
        self.key_leases.value_of(key, || {
            // A command of an earlier lease of the key may still be on its way: no two leases share a generation.
            let generation = self.key_leases_made.fetch_add(1, Ordering::Relaxed) * GENERATIONS + 1;
            let active = Arc::clone(&self.active);
            let failovers = Arc::clone(&self.failovers);
            SlotLease::new(&self.names, SlotSubject::Key(key), generation, active, failovers)
        })
    }

    /// Permits that exist, of all organizations.
    pub(crate) fn in_flight(&self) -> u64 {
        self.leases.iter().map(|lease| u64::from(lease.held())).sum()
    }

    /// This gateway's portion in an outage that began at `since`, and the time from which inflow belongs to it; `None`
    /// when it may not admit in it.
    pub(crate) fn portion(&self, since: Micros) -> Option<(Portion, Micros)> {
        self.membership()?.portion(since, self.settings.lease)
    }

    /// This gateway's place among the gateways; `None` before the first heartbeat.
    pub fn membership(&self) -> Option<Membership> {
        *self.membership.lock()
    }

    pub(super) fn set_membership(&self, membership: Membership) {
        *self.membership.lock() = Some(membership);
    }

    /// Sends the absolute number of slots held under a new generation, if the lease is in doubt. Returns false when
    /// Redis has no such organization or key, as after it has lost its data.
    pub(crate) async fn resync(&self, client: &RedisClient, lease: &Arc<SlotLease>) -> Result<bool, CommandError> {
        let _one_at_a_time = lease.resync.lock().await;
        // Another caller may have resynced the lease while this one waited for the lock.
        let Some(resync) = lease.begin_resync(Instant::now()) else { return Ok(true) };
        let reply = self.send_slot_report(client, lease, &resync.into()).await?;
        Ok(lease.complete_resync(resync, reply))
    }

    /// Runs `slot_report.lua`.
    pub(super) async fn send_slot_report(
        &self,
        client: &RedisClient,
        lease: &SlotLease,
        report: &SlotReport,
    ) -> Result<SlotReportReply, CommandError> {
        let packed = report.encode(&self.settings, self.sign_of(lease.hash_slot));
        let arguments: [&[u8]; 2] = [&self.gateway_id, &packed];
        let reply = client.run(lease.hash_slot, &self.scripts.slot_report, &lease.report_keys(), &arguments).await?;
        let Value::BulkString(packed) = reply else { return Err(CommandError::UnexpectedReply) };
        SlotReportReply::decode(&packed).ok_or(CommandError::UnexpectedReply)
    }
}

/// Sends heartbeats to all servers for as long as the task lives.
pub(crate) async fn keep_signs_of_life(slots: Arc<SlotLeases>, client: RedisClient) {
    let mut topology = client.shared().subscribe_topology();
    loop {
        // A change from now on is a reason for the next heartbeats; it may be a link that is up again.
        topology.mark_unchanged();
        join_all(client.hash_slots_of_servers().into_iter().map(|server| slots.send_sign(&client, server))).await;
        let _ = timeout(slots.settings.sign_interval(), topology.changed()).await;
    }
}

impl SlotLeases {
    /// Signs of life of the server that has a hash slot.
    pub fn sign_of(&self, hash_slot: u16) -> SignOfLife {
        self.signs.of(hash_slot)
    }

    /// Notes the packed reply of the server of these hash slots.
    pub fn note_sign(&self, hash_slots: HashSlots, reply: &[u8]) {
        if let Some([since, last]) = unpack(reply) {
            self.signs.note(hash_slots, SignOfLife { since, last });
        }
    }

    /// Sends a heartbeat to the server of these hash slots. One that is lost is made up for by the next.
    async fn send_sign(&self, client: &RedisClient, hash_slots: HashSlots) {
        // All gateways choose the same record.
        let is_there = |name: &String| hash_slots.iter().any(|range| range.contains(&hash_slot(name)));
        let Some(name) = (0..=u16::MAX).map(|number| self.names.sign_of_life(number)).find(is_there) else { return };
        let argument = sign_argument(&self.settings);
        let (keys, arguments) = ([name.as_bytes()], [&*argument]);
        // A server that hangs delays the heartbeats to the others by no more than one of them.
        let longest = self.settings.sign_interval().min(2 * self.settings.deadline);
        let sent = client.run(hash_slot(&name), &self.scripts.sign_of_life, &keys, &arguments);
        if let Ok(Ok(Value::BulkString(reply))) = timeout(longest, sent).await {
            self.note_sign(hash_slots, &reply);
        }
    }
}
