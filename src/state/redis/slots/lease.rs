//! What this gateway holds of one organization's slots, and what Redis knows of it.
//!
//! - `held` is the number of [`Permit`]s there are. Redis counts the same, but for what is on its way.
//! - A release is told with the next decision of the organization, or by the keeper when none comes; it is told once.
//! - When an answer is lost, what Redis counts is unknown: the lease is *unsettled*, and nothing is admitted until
//!   Redis was told the whole number in a new *generation*. Commands of an earlier generation that Redis finds afterwards, in a
//!   buffer of a broken connection for instance, have no effect, and what they had answered is not believed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::key::OrgTag;
use crate::state::redis::record_names::{self, RecordNames};
use crate::state::redis::slots::active_leases::ActiveLeases;
use crate::state::redis::slots::slot_report::PendingReport;

/// The lease of one organization, shared by all threads of this gateway.
pub(in crate::state::redis) struct SlotLease {
    pub(in crate::state::redis) tag: OrgTag,
    /// Where a Cluster has the organization.
    pub(in crate::state::redis) slot: u16,
    /// The name of the organization's record.
    pub(in crate::state::redis) org: Box<[u8]>,
    holding: Mutex<LeaseData>,
    /// Held while the lease is being settled.
    pub(in crate::state::redis) resync: tokio::sync::Mutex<()>,
    /// Told whenever Redis has heard of released permits.
    heard: Notify,
    active: Arc<ActiveLeases>,
    /// How often another server process took over.
    failovers: Arc<AtomicU64>,
}

/// What is held, and what was said about it.
pub(in crate::state::redis) struct LeaseData {
    /// Permits that there are.
    pub(in crate::state::redis) held: u32,
    /// Permits given back that Redis was not told of.
    pub(in crate::state::redis) released: u32,
    /// Commands on their way that tell of released permits.
    releasing: u32,
    /// Which of our leases Redis has; grows with every settlement.
    pub(in crate::state::redis) generation: u64,
    pub(in crate::state::redis) standing: LeaseState,
    /// Commands sent: by it the keeper sees whether any went out since it last looked.
    sent: u64,
    /// `sent` when the keeper last looked.
    seen: u64,
    /// When Redis last heard of us here, or a little before.
    told: Instant,
    /// Whether the organization was last seen near its limit, so that others may wait for what we release.
    pub(in crate::state::redis) near_limit: bool,
    /// How often what Redis counts became unknown.
    times_in_doubt: u64,
    /// Whether the keeper looks after it.
    listed: bool,
    /// The failovers that there had been when Redis last had the lease: after another it may not have it so.
    failovers: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::state::redis) enum LeaseState {
    /// Redis does not know us, and we hold nothing.
    Unregistered,
    /// Redis counts what we hold.
    Registered,
    /// What Redis counts is unknown.
    InDoubt,
}

/// A slot of an organization, given back on drop.
pub struct Permit(pub(in crate::state::redis) Arc<SlotLease>);

/// What the keeper has to tell of an lease.
pub(in crate::state::redis) enum HeartbeatAction {
    /// Nothing, for now.
    Nothing,
    /// Nothing any more: Redis has forgotten us, as it should.
    Rest,
    /// What was released, and that we live; whether we leave.
    Tell(PendingReport, bool),
    /// All of it, anew.
    Settle,
}

/// A settlement that has begun.
#[derive(Clone, Copy)]
pub(in crate::state::redis) struct Resync {
    /// The slots that we held then.
    pub(in crate::state::redis) held: u32,
    /// The generation that begins with it.
    pub(in crate::state::redis) generation: u64,
    times_in_doubt: u64,
    begun: Instant,
}

/// When the keeper looks.
#[derive(Clone, Copy)]
pub(in crate::state::redis) struct HeartbeatRound {
    pub(in crate::state::redis) now: Instant,
    /// Whether only those are meant for whom others may wait.
    pub(in crate::state::redis) near_limit_only: bool,
    /// How often Redis must hear of us.
    pub(in crate::state::redis) beat: std::time::Duration,
}

impl SlotLease {
    pub(in crate::state::redis) fn new(
        record_names: &RecordNames,
        tag: OrgTag,
        active: Arc<ActiveLeases>,
        failovers: Arc<AtomicU64>,
    ) -> Self {
        let holding = LeaseData {
            held: 0,
            released: 0,
            releasing: 0,
            generation: 1,
            standing: LeaseState::Unregistered,
            sent: 0,
            seen: 0,
            told: Instant::now(),
            near_limit: false,
            times_in_doubt: 0,
            listed: false,
            failovers: 0,
        };
        Self {
            tag,
            slot: record_names::hash_slot(tag.as_str()),
            org: record_names.org(tag).into_bytes().into(),
            holding: Mutex::new(holding),
            resync: tokio::sync::Mutex::default(),
            heard: Notify::new(),
            active,
            failovers,
        }
    }

    /// Permits that there are.
    pub(in crate::state::redis) fn held(&self) -> u32 {
        self.holding().held
    }

    /// Begins a command; none when the lease must be settled first.
    pub(in crate::state::redis) fn begin_report(self: &Arc<Self>) -> Option<PendingReport> {
        self.report(&mut self.holding())
    }

    fn report(self: &Arc<Self>, holding: &mut LeaseData) -> Option<PendingReport> {
        self.follow(holding);
        if holding.standing == LeaseState::InDoubt {
            return None;
        }
        holding.sent += 1;
        let released = std::mem::take(&mut holding.released);
        let crossed = holding.releasing > 0;
        holding.releasing += u32::from(released > 0);
        let (generation, fresh) = (holding.generation, holding.standing == LeaseState::Unregistered);
        Some(PendingReport::new(Arc::clone(self), released, generation, fresh, crossed))
    }

    /// After a succession the lease is doubtful, unless nothing is held.
    fn follow(self: &Arc<Self>, holding: &mut LeaseData) {
        let failovers = self.failovers.load(Ordering::Acquire);
        if std::mem::replace(&mut holding.failovers, failovers) != failovers
            && holding.standing == LeaseState::Registered
        {
            self.mark_in_doubt(holding);
        }
    }

    /// Begins a settlement: none when there is nothing to settle. Permits given back from here on belong to the new generation.
    pub(in crate::state::redis) fn begin_resync(&self) -> Option<Resync> {
        let mut holding = self.holding();
        if holding.standing != LeaseState::InDoubt {
            return None;
        }
        holding.generation += 1;
        holding.released = 0;
        holding.sent += 1;
        Some(Resync {
            held: holding.held,
            generation: holding.generation,
            times_in_doubt: holding.times_in_doubt,
            begun: Instant::now(),
        })
    }

    /// Redis has the lease in this generation; or it has forgotten it, as nothing was held.
    /// When it was doubted once more meanwhile, it must be settled once more.
    pub(in crate::state::redis) fn finish_resync(self: &Arc<Self>, resync: Resync, left: bool) {
        let mut holding = self.holding();
        if holding.generation == resync.generation && holding.times_in_doubt == resync.times_in_doubt {
            self.registered(&mut holding, resync.begun, left);
        }
    }

    /// Redis has heard of us, by a command that began then.
    pub(in crate::state::redis) fn registered(self: &Arc<Self>, holding: &mut LeaseData, begun: Instant, left: bool) {
        holding.told = holding.told.max(begun);
        if left {
            holding.generation += 1;
            holding.standing = LeaseState::Unregistered;
        } else {
            holding.standing = LeaseState::Registered;
            self.activate(holding);
        }
    }

    /// Takes a slot without Redis, which is away, when we hold less than `share`. It is settled when Redis is back.
    pub(in crate::state::redis) fn take_provisionally(self: &Arc<Self>, share: u32) -> Option<Permit> {
        let mut holding = self.holding();
        if holding.held >= share {
            return None;
        }
        holding.held += 1;
        self.mark_in_doubt(&mut holding);
        Some(Permit(Arc::clone(self)))
    }

    /// What Redis counts became unknown.
    fn mark_in_doubt(self: &Arc<Self>, holding: &mut LeaseData) {
        holding.standing = LeaseState::InDoubt;
        holding.times_in_doubt += 1;
        self.activate(holding);
    }

    /// Redis does not know us in this generation: it has given our slots away.
    pub(in crate::state::redis) fn forgotten(self: &Arc<Self>, holding: &mut LeaseData, generation: u64) {
        if holding.generation == generation {
            self.mark_in_doubt(holding);
        }
    }

    /// A command that told of so many released permits is on its way no more.
    pub(in crate::state::redis) fn answered(&self, holding: &mut LeaseData, released: u32) {
        if released > 0 {
            holding.releasing -= 1;
            self.heard.notify_waiters();
        }
    }

    /// Waits until Redis has heard of the released permits that are on their way.
    pub(in crate::state::redis) async fn heard(&self) {
        let heard = self.heard.notified();
        if self.holding().releasing > 0 {
            heard.await;
        }
    }

    /// What is to be told of the lease now.
    pub(in crate::state::redis) fn due(self: &Arc<Self>, look: HeartbeatRound) -> HeartbeatAction {
        let mut holding = self.holding();
        self.follow(&mut holding);
        let quiet = holding.seen == holding.sent;
        if !look.near_limit_only {
            holding.seen = holding.sent;
        }
        let heard_of = look.now.duration_since(holding.told) < look.beat;
        let told = |lease: &Arc<Self>, holding: &mut LeaseData, leaves| match lease.report(holding) {
            Some(report) => HeartbeatAction::Tell(report, leaves),
            None => HeartbeatAction::Nothing,
        };
        match holding.standing {
            LeaseState::InDoubt if look.near_limit_only => HeartbeatAction::Nothing,
            LeaseState::InDoubt => HeartbeatAction::Settle,
            _ if holding.released > 0 && (holding.near_limit || quiet) => told(self, &mut holding, false),
            _ if look.near_limit_only || heard_of => HeartbeatAction::Nothing,
            LeaseState::Unregistered => {
                holding.listed = false;
                HeartbeatAction::Rest
            }
            LeaseState::Registered => {
                let idle = holding.held == 0 && holding.released == 0;
                told(self, &mut holding, idle)
            }
        }
    }

    fn activate(self: &Arc<Self>, holding: &mut LeaseData) {
        if !std::mem::replace(&mut holding.listed, true) {
            self.active.add(Arc::clone(self));
        }
    }

    fn release(&self) {
        let mut holding = self.holding();
        holding.held -= 1;
        holding.released += 1;
        if holding.near_limit {
            self.active.hurry();
        }
    }

    /// Nothing that holds this lock can leave it half changed: it only assigns.
    pub(in crate::state::redis) fn holding(&self) -> MutexGuard<'_, LeaseData> {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
