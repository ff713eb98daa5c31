//! The heartbeat: reports about leases outside of decisions, and the registration of this gateway.
//!
//! - Released slots are reported within two [`TICK`]s when no decision of their organization carries them sooner, and
//!   within [`EARLY_REPORT`] when the organization was last seen near its limit.
//! - Leases and the registration are renewed [`BEATS`] times per lease time; the registration at every [`TICK`] while not
//!   every gateway has seen every other one (`membership`).
//! - Leases in doubt are resynced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use redis::Value;
use tokio::time::{sleep, timeout};

use super::lease::{LeaseState, SlotLease};
use super::membership::Membership;
use super::slot_leases::{SlotLeases, SlotReport, SlotReportReply};
use super::slot_report::PendingReport;

use crate::clock;
use crate::state::redis::client::{CommandError, RedisClient};
use crate::state::redis::record_names::gateways_slot;

/// Interval of visits to the active leases. A decision of the organization that comes sooner carries the releases, so
/// at ten requests a second and more they cost no command of their own; and no free slot stays unseen for longer.
const TICK: Duration = Duration::from_millis(100);
/// Time that releases wait for a decision to carry them where others may be waiting for the slot.
const EARLY_REPORT: Duration = Duration::from_millis(2);
/// Leases that are reported about at a time.
const CONCURRENT_REPORTS: usize = 256;
/// Heartbeats per lease time: two may be lost.
const BEATS: u32 = 3;

/// Action of the heartbeat for one lease.
enum HeartbeatAction {
    /// Nothing now.
    None,
    /// Leave the active set: Redis has no entry, and needs none.
    Retire,
    /// Send the report, which also renews the lease; or deletes the entry if nothing is held.
    Report(PendingReport, bool),
    /// Resync.
    Resync,
}

/// One round of visits to the active leases.
#[derive(Clone, Copy)]
struct HeartbeatRound {
    now: Instant,
    /// True for an early round, which visits only leases of organizations near their limit.
    near_limit_only: bool,
    /// Longest time between two renewals of a lease.
    renew_interval: Duration,
}

/// Timing of the heartbeat from round to round.
pub(in crate::state::redis) struct Heartbeat {
    renew_interval: Duration,
    /// The last registration that Redis confirmed.
    registered: Option<Instant>,
    /// True when every gateway had seen every other one then.
    settled: bool,
    /// The last round that visited all leases.
    last_round: Instant,
}

impl Heartbeat {
    /// A heartbeat for this lease time.
    pub(in crate::state::redis) fn new(lease: Duration) -> Self {
        Self { renew_interval: lease / BEATS, registered: None, settled: false, last_round: Instant::now() }
    }

    /// Renews the registration of this gateway, when it is time to.
    pub(in crate::state::redis) async fn renew_registration(&mut self, slots: &SlotLeases, client: &RedisClient) {
        let interval = if self.settled { self.renew_interval } else { TICK };
        let is_due = self.registered.is_none_or(|at| at.elapsed() >= interval);
        if is_due && let Ok(settled) = slots.register(client).await {
            (self.registered, self.settled) = (Some(Instant::now()), settled);
        }
    }

    /// Waits for the next round and carries it out.
    pub(in crate::state::redis) async fn run_round(&mut self, slots: &SlotLeases, client: &RedisClient) {
        // Without active leases there is only the registration to renew. Until all gateways know of each other, that is
        // done at every tick.
        let is_idle = slots.active.is_empty() && self.settled;
        let pause = if is_idle { self.renew_interval } else { TICK };
        // Both the end of the pause and a wake-up are reasons for a round.
        let _ = timeout(pause, slots.active.wait_for_wake_up()).await;
        if slots.active.take_early_visit() {
            sleep(EARLY_REPORT).await;
        }
        let visits_all = self.last_round.elapsed() >= TICK;
        if visits_all {
            self.last_round = Instant::now();
            // A gateway on Redis has no other task that keeps its clock in step with the wall clock.
            clock::follow_wall();
        }
        let round =
            HeartbeatRound { now: Instant::now(), near_limit_only: !visits_all, renew_interval: self.renew_interval };
        slots.visit_leases(client, round).await;
    }
}

impl SlotLeases {
    /// Reports all releases, deletes the entries of leases that hold nothing, and removes this gateway's registration.
    pub(in crate::state::redis) async fn deregister(&self, client: &RedisClient) -> Result<(), CommandError> {
        let now = Instant::now();
        // The first round reports the releases; only then is nothing held, and the second one deletes the entries.
        for _ in 0..2 {
            let round = HeartbeatRound { now, near_limit_only: false, renew_interval: Duration::ZERO };
            self.visit_leases(client, round).await;
        }
        self.send_heartbeat(client, 0).await.map(drop)
    }

    /// Registers this gateway as live, and learns its place among the gateways. Returns whether every gateway has seen
    /// every other one.
    async fn register(&self, client: &RedisClient) -> Result<bool, CommandError> {
        // Read before the heartbeat: the entry lives no shorter than from here.
        let (beat, seen) = (clock::steady(), self.membership().map_or(0, |membership| membership.latest_join));
        let reply = self.send_heartbeat(client, self.settings.registration_micros()).await?;
        let Value::BulkString(packed) = reply else { return Err(CommandError::UnexpectedReply) };
        let membership = Membership::decode(&packed, beat).ok_or(CommandError::UnexpectedReply)?;
        self.set_membership(membership);
        Ok(membership.is_settled(seen))
    }

    /// Runs `heartbeat.lua`. A lifetime of 0 removes the registration.
    async fn send_heartbeat(&self, client: &RedisClient, lifetime: u64) -> Result<Value, CommandError> {
        let seen = self.membership().map_or(0, |membership| membership.latest_join);
        let (gateways, lifetime, seen) = (self.names.gateways(), lifetime.to_string(), seen.to_string());
        let arguments: [&[u8]; 3] = [&self.gateway_id, lifetime.as_bytes(), seen.as_bytes()];
        client.run(gateways_slot(), &self.scripts.heartbeat, &[gateways.as_bytes()], &arguments).await
    }

    async fn visit_leases(&self, client: &RedisClient, round: HeartbeatRound) {
        let leases = self.active.all();
        let mut retired = Vec::new();
        let mut due = Vec::new();
        for lease in leases {
            match lease.next_action(round) {
                HeartbeatAction::None => {}
                HeartbeatAction::Retire => retired.push(lease),
                action => due.push((action, lease)),
            }
        }
        self.active.remove(&retired);
        stream::iter(due)
            .for_each_concurrent(CONCURRENT_REPORTS, async |(action, lease)| match action {
                HeartbeatAction::Report(report, deregister) => {
                    self.send_report(client, &lease, report, deregister).await
                }
                // A failed resync leaves the lease in doubt: the next round tries again.
                HeartbeatAction::Resync => drop(self.resync(client, &lease).await),
                HeartbeatAction::None | HeartbeatAction::Retire => {}
            })
            .await;
    }

    async fn send_report(&self, client: &RedisClient, lease: &SlotLease, report: PendingReport, deregister: bool) {
        let (released, generation) = (report.released, report.generation);
        let slot_report = SlotReport { absolute: None, released, generation, deregister };
        match self.send_slot_report(client, lease, slot_report).await {
            Ok(SlotReportReply::Unregistered) => report.unregistered(),
            Ok(reply) => {
                report.acknowledged(reply == SlotReportReply::Deleted);
                if let SlotReportReply::Done(taken) = reply {
                    lease.note_answer(taken);
                }
            }
            Err(error) if error.did_not_run() => report.not_sent(),
            Err(_) => drop(report),
        }
    }
}

impl SlotLease {
    /// Decides what this round does about the lease.
    fn next_action(self: &Arc<Self>, round: HeartbeatRound) -> HeartbeatAction {
        let mut data = self.data();
        self.check_failovers(&mut data);
        let is_quiet = data.commands_at_visit == data.commands;
        if !round.near_limit_only {
            data.commands_at_visit = data.commands;
        }
        let is_renewed = round.now.duration_since(data.renewed) < round.renew_interval;
        let report = |data: &mut _, deregister| match PendingReport::begin_locked(self, data) {
            Some(report) => HeartbeatAction::Report(report, deregister),
            None => HeartbeatAction::None,
        };
        match data.state {
            // Early rounds are for releases; a resync waits for the next full round.
            LeaseState::InDoubt if round.near_limit_only => HeartbeatAction::None,
            LeaseState::InDoubt => HeartbeatAction::Resync,
            // While decisions keep coming they carry the releases, unless others may be waiting for the slots.
            _ if data.released > 0 && (data.near_limit || is_quiet) => report(&mut data, false),
            _ if round.near_limit_only || is_renewed => HeartbeatAction::None,
            LeaseState::Unregistered => {
                data.is_active = false;
                HeartbeatAction::Retire
            }
            LeaseState::Registered => {
                // An organization that is idle for a renewal interval needs no entry; its next decision creates one.
                let is_idle = data.held == 0 && data.released == 0;
                report(&mut data, is_idle)
            }
        }
    }
}
