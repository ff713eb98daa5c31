//! The lease on the slots of one organization or key.
//!
//! The table of states and events is in the module's documentation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::active_set::ActiveSet;
use super::subject::SlotSubject;
use crate::redis::packed::unpack;
use crate::redis::record_names::RecordNames;
use domain::clock::Micros;

/// This gateway's lease on the slots of one organization or key, shared by all its threads, its permits, and the
/// commands in flight about it. Dropped with the last of them, it holds nothing.
pub struct SlotLease {
    /// The organization or key.
    pub subject: SlotSubject,
    /// Hash slot of the organization.
    pub(crate) hash_slot: u16,
    /// Name of the record that has the leases.
    pub(crate) record: Box<[u8]>,
    /// Name of the key's record; none for an organization, whose record has the leases.
    key_record: Option<Box<[u8]>>,
    /// Locked for no longer than numbers change, and never across an await.
    data: Mutex<LeaseData>,
    /// Held during a resync: one at a time.
    pub(super) resync: tokio::sync::Mutex<()>,
    /// Notified whenever a report of releases has ended.
    report_ended: Notify,
    /// Leases that the heartbeat visits; this one adds itself.
    active: Arc<ActiveSet<SlotLease>>,
    /// Failovers of the servers so far, counted by the client.
    failovers: Arc<AtomicU64>,
}

/// The numbers and the state of a lease.
///
/// - `held` is the number of [`Permit`]s that exist; each adds one to `released` when it is dropped.
/// - A lease that is `Unregistered` holds nothing.
#[derive(Debug)]
pub(super) struct LeaseData {
    /// Permits that exist.
    pub(super) held: u32,
    /// Permits given back and not reported yet.
    pub(super) released: u32,
    /// Commands in flight that report releases.
    pub(super) releases_in_flight: u32,
    /// Generation of the entry in Redis; grows with every resync.
    pub(super) generation: u64,
    pub(super) state: LeaseState,
    /// Commands sent so far.
    pub(super) commands: u64,
    /// `commands` in the last round of the heartbeat: equal when no decision came since.
    pub(super) commands_at_visit: u64,
    /// Visits of the heartbeat that go on.
    pub(super) visits: u32,
    /// Begin of the last command that renewed the lease; `None` before the first.
    pub(super) renewed: Option<Instant>,
    /// True when the organization or key was last seen near its limit, so that others may be waiting for released
    /// slots.
    pub(super) near_limit: bool,
    /// Transitions to [`LeaseState::InDoubt`], and doubts within it.
    /// A resync that began before the last of them proves nothing.
    doubts: u64,
    /// True when the lease is in the active set.
    pub(super) is_active: bool,
    /// Failovers that this lease has reacted to.
    failovers: u64,
    /// Slots of the organization or key that were taken, by the last answer that says so; all, before the first.
    pub(super) taken: u32,
    /// Begin of the outage of Redis, in steady time; `None` once Redis has answered about them.
    pub(super) outage: Option<Micros>,
    /// Slots that may be held in the outage; `None` before one is acquired in it, and once Redis counts what is held.
    pub(super) allowance: Option<u32>,
}

/// State of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// Redis has no entry, and nothing is held.
    Unregistered,
    /// Redis counts what is held, but for commands in flight.
    Registered,
    /// Redis may count something else. Nothing is acquired before a resync.
    InDoubt,
}

/// A resync that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Resync {
    /// The slots held at its begin.
    pub(super) held: u32,
    /// The generation that it begins.
    pub(super) generation: u64,
    doubts: u64,
    begun: Instant,
}

/// A slot of an organization or key; released on drop.
pub(crate) struct Permit(Arc<SlotLease>);

/// Reply of `slot_report.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotReportReply {
    /// The report was applied, and the lease renewed; so many slots of the organization or key are taken.
    Done(u32),
    /// There is no such organization or key; nothing was changed.
    NoSubject,
    /// The report was applied, and the entry deleted, as nothing was held.
    Deleted,
    /// There is no entry of this generation; nothing was changed.
    Unregistered,
}

impl SlotLease {
    /// A lease without slots, of which Redis has no entry; its first generation is this one.
    pub(super) fn new(
        names: &RecordNames,
        subject: SlotSubject,
        generation: u64,
        active: Arc<ActiveSet<SlotLease>>,
        failovers: Arc<AtomicU64>,
    ) -> Self {
        let data = LeaseData {
            held: 0,
            released: 0,
            releases_in_flight: 0,
            generation,
            state: LeaseState::Unregistered,
            commands: 0,
            commands_at_visit: 0,
            visits: 0,
            renewed: None,
            near_limit: false,
            doubts: 0,
            is_active: false,
            failovers: 0,
            taken: u32::MAX,
            outage: None,
            allowance: None,
        };
        Self {
            subject,
            hash_slot: subject.hash_slot(),
            record: subject.record(names),
            key_record: subject.key_record(names),
            data: Mutex::new(data),
            resync: tokio::sync::Mutex::default(),
            report_ended: Notify::new(),
            active,
            failovers,
        }
    }

    /// Permits that exist.
    pub fn held(&self) -> u32 {
        self.data().held
    }

    /// The keys of `slot_report.lua`.
    pub fn report_keys(&self) -> Vec<&[u8]> {
        [Some(&self.record), self.key_record.as_ref()].into_iter().flatten().map(|name| &**name).collect()
    }

    /// Adds a permit.
    pub(super) fn grant(self: &Arc<Self>, data: &mut LeaseData) -> Permit {
        data.held += 1;
        Permit::new(self)
    }

    /// Puts the lease in doubt after a failover: the new primary may lack the last reports.
    pub(super) fn check_failovers(self: &Arc<Self>, data: &mut LeaseData) {
        let failovers = self.failovers.load(Ordering::Acquire);
        let is_new = std::mem::replace(&mut data.failovers, failovers) != failovers;
        // Without an entry there is nothing that the new primary could lack.
        if is_new && data.state == LeaseState::Registered {
            self.mark_in_doubt(data);
        }
    }

    /// Begins a resync, if the lease is in doubt. Permits released from here on belong to the new generation.
    pub fn begin_resync(&self, now: Instant) -> Option<Resync> {
        let mut data = self.data();
        if data.state != LeaseState::InDoubt {
            return None;
        }
        data.generation += 1;
        // `held` is without the released permits, so their report would count them twice.
        data.released = 0;
        data.commands += 1;
        let held = data.held;
        let generation = data.generation;
        let doubts = data.doubts;
        Some(Resync { held, generation, doubts, begun: now })
    }

    /// Ends a resync that Redis has confirmed. `deleted` says that Redis has deleted the entry, as nothing was held.
    pub(super) fn finish_resync(self: &Arc<Self>, resync: Resync, deleted: bool) {
        let mut data = self.data();
        // A doubt since its begin, an offline admission for instance, is not covered by the number that was sent.
        if data.generation == resync.generation && data.doubts == resync.doubts {
            self.mark_registered(&mut data, resync.begun, deleted);
        }
    }

    /// Applies the reply to a resync. Returns false when Redis has no such organization or key.
    pub fn complete_resync(self: &Arc<Self>, resync: Resync, reply: SlotReportReply) -> bool {
        match reply {
            SlotReportReply::Done(taken) => {
                self.finish_resync(resync, false);
                self.note_answer(taken);
            }
            SlotReportReply::Deleted => self.finish_resync(resync, true),
            // With nothing held there is nothing to report either, should the organization or key come back.
            SlotReportReply::NoSubject if resync.held == 0 => self.finish_resync(resync, true),
            SlotReportReply::NoSubject => {}
            // Redis has a later generation already. The lease stays in doubt, and the next resync counts on from here.
            SlotReportReply::Unregistered => {}
        }
        reply != SlotReportReply::NoSubject
    }

    /// Notes that Redis confirmed the lease with a command that began at `begun`.
    pub(super) fn mark_registered(self: &Arc<Self>, data: &mut LeaseData, begun: Instant, deleted: bool) {
        data.renewed = data.renewed.max(Some(begun));
        if deleted {
            debug_assert_eq!(data.held, 0, "Redis deletes the entry of a lease that holds nothing");
            // Commands in flight must not find the entry that the next decision creates.
            data.generation += 1;
            data.state = LeaseState::Unregistered;
        } else {
            data.state = LeaseState::Registered;
            self.activate(data);
        }
        data.allowance = None;
    }

    /// Notes that Redis has no entry of this generation, or that a reply of this generation was lost.
    pub(super) fn doubt_generation(self: &Arc<Self>, data: &mut LeaseData, generation: u64) {
        // An earlier generation is fenced: whatever became of its command has no effect any more.
        if data.generation == generation {
            self.mark_in_doubt(data);
        }
    }

    pub(super) fn mark_in_doubt(self: &Arc<Self>, data: &mut LeaseData) {
        data.state = LeaseState::InDoubt;
        data.doubts += 1;
        self.activate(data);
    }

    /// Notes that a command that reported releases has ended, one way or the other.
    pub(super) fn end_report(&self, data: &mut LeaseData, released: u32) {
        if released > 0 {
            debug_assert!(data.releases_in_flight > 0, "each report ends once");
            data.releases_in_flight -= 1;
            self.report_ended.notify_waiters();
        }
    }

    /// Returns whether a report of releases is in flight.
    pub fn has_report_in_flight(&self) -> bool {
        self.data().releases_in_flight > 0
    }

    /// Waits until a report of releases that is in flight has ended.
    pub(crate) async fn wait_for_report(&self) {
        // Registered before the check: a report that ends in between is not missed.
        let ended = self.report_ended.notified();
        if self.has_report_in_flight() {
            ended.await;
        }
    }

    /// Puts the lease into the active set.
    fn activate(self: &Arc<Self>, data: &mut LeaseData) {
        if !std::mem::replace(&mut data.is_active, true) {
            self.active.add(Arc::clone(self));
        }
    }

    /// Takes a permit back.
    pub(super) fn release(&self) {
        let mut data = self.data();
        debug_assert!(data.held > 0, "each permit is given back once");
        debug_assert!(data.state != LeaseState::Unregistered, "such a lease holds nothing");
        data.held -= 1;
        data.released += 1;
        if data.near_limit {
            self.active.request_early_visit();
        }
    }

    /// A panic under this lock leaves nothing half changed: its holders only assign.
    pub(super) fn data(&self) -> MutexGuard<'_, LeaseData> {
        self.data.lock()
    }
}

impl Permit {
    /// A permit that the lease has counted.
    pub(super) fn new(lease: &Arc<SlotLease>) -> Self {
        Self(Arc::clone(lease))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// All that its next step depends on: of the commands, only that one came since the last visit.
impl std::fmt::Debug for SlotLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LeaseData { commands, commands_at_visit, .. } = *self.data();
        let data =
            LeaseData { commands: commands - commands_at_visit.min(commands), commands_at_visit: 0, ..*self.data() };
        f.debug_tuple("SlotLease").field(&self.subject).field(&data).finish()
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl SlotReportReply {
    /// Decodes a packed reply; `None` when it is none of this script.
    pub fn decode(packed: &[u8]) -> Option<Self> {
        let [code, taken] = unpack(packed)?;
        match code {
            0 => Some(Self::Done(u32::try_from(taken).unwrap_or(u32::MAX))),
            1 => Some(Self::NoSubject),
            2 => Some(Self::Deleted),
            9 => Some(Self::Unregistered),
            _ => None,
        }
    }
}
