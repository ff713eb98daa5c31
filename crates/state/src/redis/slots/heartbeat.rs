//! The heartbeat of the slot leases: reports outside of decisions.
//!
//! - Released slots are reported within two [`TICK`]s when no decision of their organization carries them sooner, and
//!   within [`EARLY_REPORT`] when the organization was last seen near its limit.
//! - Leases are renewed several times per lease time.
//! - Leases in doubt are resynced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::lease::{LeaseData, LeaseState, SlotLease};
use super::slot_leases::{SlotLeases, SlotReport};
use super::slot_report::PendingReport;

use domain::clock;
use redis_client::RedisClient;

/// Interval of visits to the active leases. A decision of the organization that comes sooner carries the releases, so
/// at ten requests a second and more they cost no command of their own; and no free slot stays unseen for longer.
pub const TICK: Duration = Duration::from_millis(100);
/// Time that releases wait for a decision to carry them where others may be waiting for the slot.
pub const EARLY_REPORT: Duration = Duration::from_millis(2);
/// Visits at a time: the link carries them and the other background work, and those to a server that hangs leave room
/// for others until they are given up.
const CONCURRENT_VISITS: usize = 1024;

/// Action of the heartbeat for one lease.
pub enum HeartbeatAction {
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
pub struct HeartbeatRound {
    /// Its time.
    pub now: Instant,
    /// True for an early round, which visits only leases of organizations near their limit.
    pub near_limit_only: bool,
    /// Longest time between two renewals of a lease.
    pub renew_interval: Duration,
}

/// A visit to a lease, with something to do.
pub struct LeaseVisit {
    /// The lease.
    pub lease: VisitedLease,
    /// The next action.
    pub action: HeartbeatAction,
}

/// A lease that is being visited; the visit ends on drop.
pub struct VisitedLease(pub Arc<SlotLease>);

/// Visits the active leases for as long as the task lives.
///
/// No round waits for the visits of the one before. So a server that does not answer, or many leases to resync, delay
/// no other lease, and no lease is visited later than in the round in which it is due.
pub(crate) async fn visit_leases(slots: Arc<SlotLeases>, client: RedisClient) {
    let renew_interval = slots.settings.renew_interval();
    let visit_timeout = 2 * slots.settings.deadline;
    let mut visits = JoinSet::new();
    let mut last_round = Instant::now();
    loop {
        let pause = if slots.active.is_empty() { renew_interval } else { TICK };
        // Both the end of the pause and a wake-up are reasons for a round.
        let _ = timeout(pause, slots.active.wait_for_wake_up()).await;
        if slots.active.take_early_visit() {
            sleep(EARLY_REPORT).await;
        }
        let now = Instant::now();
        let near_limit_only = now.duration_since(last_round) < TICK;
        if !near_limit_only {
            last_round = now;
            // A gateway on Redis has no other task that keeps its clock in step with the wall clock.
            clock::follow_wall();
        }
        while visits.try_join_next().is_some() {}
        // Each report would be refused.
        if client.shared().is_out_of_memory() {
            continue;
        }
        let room = CONCURRENT_VISITS.saturating_sub(visits.len());
        for visit in slots.due_visits(HeartbeatRound { now, near_limit_only, renew_interval }, room) {
            let slots = Arc::clone(&slots);
            let client = client.clone();
            // A visit that was given up counts as a lost reply, which the next one makes up for.
            visits.spawn(async move { timeout(visit_timeout, slots.carry_out(&client, visit)).await.ok() });
        }
    }
}

impl SlotLeases {
    /// Reports all releases, and deletes the entries of leases that hold nothing.
    pub(super) async fn report_all(&self, client: &RedisClient) {
        let now = Instant::now();
        // The first round reports the releases; only then is nothing held, and the second one deletes the entries.
        for _ in 0..2 {
            let round = HeartbeatRound { now, near_limit_only: false, renew_interval: Duration::ZERO };
            let visits = stream::iter(self.due_visits(round, usize::MAX));
            visits.for_each_concurrent(CONCURRENT_VISITS, async |visit| self.carry_out(client, visit).await).await;
        }
    }

    /// The visits that are due in a round, `room` at most: the rest is due in the next round.
    pub fn due_visits(&self, round: HeartbeatRound, room: usize) -> Vec<LeaseVisit> {
        let mut retired = Vec::new();
        let mut due = Vec::new();
        for lease in self.active.all() {
            if due.len() >= room {
                break;
            }
            match lease.begin_visit(round) {
                HeartbeatAction::None => {}
                HeartbeatAction::Retire => retired.push(lease),
                action => due.push(LeaseVisit { lease: VisitedLease(lease), action }),
            }
        }
        self.active.remove(&retired);
        due
    }

    async fn carry_out(&self, client: &RedisClient, LeaseVisit { lease, action }: LeaseVisit) {
        match action {
            HeartbeatAction::Report(report, deregister) => {
                let slot_report = SlotReport::new(&report, deregister);
                report.complete(self.send_slot_report(client, &lease.0, &slot_report).await);
            }
            // A failed resync leaves the lease in doubt: the next round tries again.
            HeartbeatAction::Resync => drop(self.resync(client, &lease.0).await),
            HeartbeatAction::None | HeartbeatAction::Retire => {}
        }
    }
}

impl SlotLease {
    /// Decides what this round does about the lease; anything but nothing and retiring begins a visit.
    fn begin_visit(self: &Arc<Self>, round: HeartbeatRound) -> HeartbeatAction {
        let mut data = self.data();
        let action = self.next_action(&mut data, round);
        data.visits += u32::from(matches!(action, HeartbeatAction::Report(..) | HeartbeatAction::Resync));
        action
    }

    fn next_action(self: &Arc<Self>, data: &mut LeaseData, round: HeartbeatRound) -> HeartbeatAction {
        self.check_failovers(data);
        let is_quiet = data.commands_at_visit == data.commands;
        if !round.near_limit_only {
            data.commands_at_visit = data.commands;
        }
        // The visits that go on renew the lease or resync it, once Redis answers.
        let is_visited = data.visits > 0;
        let is_recent = |renewed| round.now.duration_since(renewed) < round.renew_interval;
        let is_renewed = is_visited || data.renewed.is_some_and(is_recent);
        match data.state {
            // Early rounds are for releases; a resync waits for the next full round.
            LeaseState::InDoubt if round.near_limit_only || is_visited => HeartbeatAction::None,
            LeaseState::InDoubt => HeartbeatAction::Resync,
            // While decisions keep coming they carry the releases, unless others may be waiting for the slots.
            _ if data.released > 0 && (data.near_limit || is_quiet) => self.report_action(data, false, round.now),
            _ if round.near_limit_only || is_renewed => HeartbeatAction::None,
            LeaseState::Unregistered => {
                data.is_active = false;
                HeartbeatAction::Retire
            }
            LeaseState::Registered => {
                // An organization that is idle for a renewal interval needs no entry; its next decision creates one.
                let is_idle = data.held == 0 && data.released == 0;
                self.report_action(data, is_idle, round.now)
            }
        }
    }

    fn report_action(self: &Arc<Self>, data: &mut LeaseData, deregister: bool, now: Instant) -> HeartbeatAction {
        match PendingReport::begin_locked(self, data, now) {
            Some(report) => HeartbeatAction::Report(report, deregister),
            None => HeartbeatAction::None,
        }
    }
}

impl Drop for VisitedLease {
    fn drop(&mut self) {
        self.0.data().visits -= 1;
    }
}
