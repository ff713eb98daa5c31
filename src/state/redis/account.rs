//! What this gateway holds of one organization's slots, and what Redis knows of it.
//!
//! - `held` is the number of [`Permit`]s there are. Redis counts the same, but for what is on its way.
//! - A release is told with the next decision of the organization, or by the keeper when none comes; it is told once.
//! - When an answer is lost, what Redis counts is unknown: the account is *unsettled*, and nothing is admitted until
//!   Redis was told the whole number in a new *epoch*. Commands of an earlier epoch that Redis finds afterwards, in a
//!   buffer of a broken connection for instance, have no effect, and what they had answered is not believed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::active::Active;
use super::layout::{self, Layout};
use super::telling::Telling;
use crate::key::OrgTag;

/// The account of one organization, shared by all threads of this gateway.
pub(super) struct Account {
    pub(super) tag: OrgTag,
    /// Where a Cluster has the organization.
    pub(super) slot: u16,
    /// The name of the organization's record.
    pub(super) org: Box<[u8]>,
    holding: Mutex<Holding>,
    /// Held while the account is being settled.
    pub(super) settling: tokio::sync::Mutex<()>,
    /// Told whenever Redis has heard of released permits.
    heard: Notify,
    active: Arc<Active>,
    /// How often another server process took over.
    successions: Arc<AtomicU64>,
}

/// What is held, and what was said about it.
pub(super) struct Holding {
    /// Permits that there are.
    pub(super) held: u32,
    /// Permits given back that Redis was not told of.
    pub(super) released: u32,
    /// Commands on their way that tell of released permits.
    releasing: u32,
    /// Which of our accounts Redis has; grows with every settlement.
    pub(super) epoch: u64,
    pub(super) standing: Standing,
    /// Commands sent: by it the keeper sees whether any went out since it last looked.
    sent: u64,
    /// `sent` when the keeper last looked.
    seen: u64,
    /// When Redis last heard of us here, or a little before.
    told: Instant,
    /// Whether the organization was last seen near its limit, so that others may wait for what we release.
    pub(super) crowded: bool,
    /// How often what Redis counts became unknown.
    doubts: u64,
    /// Whether the keeper looks after it.
    listed: bool,
    /// The successions that there had been when Redis last had the account: after another it may not have it so.
    successions: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Redis does not know us, and we hold nothing.
    Fresh,
    /// Redis counts what we hold.
    Registered,
    /// What Redis counts is unknown.
    Unsettled,
}

/// A slot of an organization, given back on drop.
pub struct Permit(pub(super) Arc<Account>);

/// What the keeper has to tell of an account.
pub(super) enum Due {
    /// Nothing, for now.
    Nothing,
    /// Nothing any more: Redis has forgotten us, as it should.
    Rest,
    /// What was released, and that we live; whether we leave.
    Tell(Telling, bool),
    /// All of it, anew.
    Settle,
}

/// A settlement that has begun.
#[derive(Clone, Copy)]
pub(super) struct Settling {
    /// The slots that we held then.
    pub(super) held: u32,
    /// The epoch that begins with it.
    pub(super) epoch: u64,
    doubts: u64,
    begun: Instant,
}

/// When the keeper looks.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) now: Instant,
    /// Whether only those are meant for whom others may wait.
    pub(super) crowded_only: bool,
    /// How often Redis must hear of us.
    pub(super) beat: std::time::Duration,
}

impl Account {
    pub(super) fn new(layout: &Layout, tag: OrgTag, active: Arc<Active>, successions: Arc<AtomicU64>) -> Self {
        let holding = Holding {
            held: 0,
            released: 0,
            releasing: 0,
            epoch: 1,
            standing: Standing::Fresh,
            sent: 0,
            seen: 0,
            told: Instant::now(),
            crowded: false,
            doubts: 0,
            listed: false,
            successions: 0,
        };
        Self {
            tag,
            slot: layout::slot(tag.as_str()),
            org: layout.org(tag).into_bytes().into(),
            holding: Mutex::new(holding),
            settling: tokio::sync::Mutex::default(),
            heard: Notify::new(),
            active,
            successions,
        }
    }

    /// Permits that there are.
    pub(super) fn held(&self) -> u32 {
        self.holding().held
    }

    /// Begins a command; none when the account must be settled first.
    pub(super) fn tell(self: &Arc<Self>) -> Option<Telling> {
        self.telling(&mut self.holding())
    }

    fn telling(self: &Arc<Self>, holding: &mut Holding) -> Option<Telling> {
        self.follow(holding);
        if holding.standing == Standing::Unsettled {
            return None;
        }
        holding.sent += 1;
        let released = std::mem::take(&mut holding.released);
        let crossed = holding.releasing > 0;
        holding.releasing += u32::from(released > 0);
        let (epoch, fresh) = (holding.epoch, holding.standing == Standing::Fresh);
        Some(Telling::new(Arc::clone(self), released, epoch, fresh, crossed))
    }

    /// After a succession the account is doubtful, unless nothing is held.
    fn follow(self: &Arc<Self>, holding: &mut Holding) {
        let successions = self.successions.load(Ordering::Acquire);
        if std::mem::replace(&mut holding.successions, successions) != successions
            && holding.standing == Standing::Registered
        {
            self.unsettle(holding);
        }
    }

    /// Begins a settlement: none when there is nothing to settle. Permits given back from here on belong to the new epoch.
    pub(super) fn begin_settling(&self) -> Option<Settling> {
        let mut holding = self.holding();
        if holding.standing != Standing::Unsettled {
            return None;
        }
        holding.epoch += 1;
        holding.released = 0;
        holding.sent += 1;
        Some(Settling { held: holding.held, epoch: holding.epoch, doubts: holding.doubts, begun: Instant::now() })
    }

    /// Redis has the account in this epoch; or it has forgotten it, as nothing was held.
    /// When it was doubted once more meanwhile, it must be settled once more.
    pub(super) fn settled(self: &Arc<Self>, settling: Settling, left: bool) {
        let mut holding = self.holding();
        if holding.epoch == settling.epoch && holding.doubts == settling.doubts {
            self.registered(&mut holding, settling.begun, left);
        }
    }

    /// Redis has heard of us, by a command that began then.
    pub(super) fn registered(self: &Arc<Self>, holding: &mut Holding, begun: Instant, left: bool) {
        holding.told = holding.told.max(begun);
        if left {
            holding.epoch += 1;
            holding.standing = Standing::Fresh;
        } else {
            holding.standing = Standing::Registered;
            self.list(holding);
        }
    }

    /// Takes a slot without Redis, which is away, when we hold less than `share`. It is settled when Redis is back.
    pub(super) fn take_provisionally(self: &Arc<Self>, share: u32) -> Option<Permit> {
        let mut holding = self.holding();
        if holding.held >= share {
            return None;
        }
        holding.held += 1;
        self.unsettle(&mut holding);
        Some(Permit(Arc::clone(self)))
    }

    /// What Redis counts became unknown.
    fn unsettle(self: &Arc<Self>, holding: &mut Holding) {
        holding.standing = Standing::Unsettled;
        holding.doubts += 1;
        self.list(holding);
    }

    /// Redis does not know us in this epoch: it has given our slots away.
    pub(super) fn forgotten(self: &Arc<Self>, holding: &mut Holding, epoch: u64) {
        if holding.epoch == epoch {
            self.unsettle(holding);
        }
    }

    /// A command that told of so many released permits is on its way no more.
    pub(super) fn answered(&self, holding: &mut Holding, released: u32) {
        if released > 0 {
            holding.releasing -= 1;
            self.heard.notify_waiters();
        }
    }

    /// Waits until Redis has heard of the released permits that are on their way.
    pub(super) async fn heard(&self) {
        let heard = self.heard.notified();
        if self.holding().releasing > 0 {
            heard.await;
        }
    }

    /// What is to be told of the account now.
    pub(super) fn due(self: &Arc<Self>, look: Look) -> Due {
        let mut holding = self.holding();
        self.follow(&mut holding);
        let quiet = holding.seen == holding.sent;
        if !look.crowded_only {
            holding.seen = holding.sent;
        }
        let heard_of = look.now.duration_since(holding.told) < look.beat;
        let told = |account: &Arc<Self>, holding: &mut Holding, leaves| match account.telling(holding) {
            Some(telling) => Due::Tell(telling, leaves),
            None => Due::Nothing,
        };
        match holding.standing {
            Standing::Unsettled if look.crowded_only => Due::Nothing,
            Standing::Unsettled => Due::Settle,
            _ if holding.released > 0 && (holding.crowded || quiet) => told(self, &mut holding, false),
            _ if look.crowded_only || heard_of => Due::Nothing,
            Standing::Fresh => {
                holding.listed = false;
                Due::Rest
            }
            Standing::Registered => {
                let idle = holding.held == 0 && holding.released == 0;
                told(self, &mut holding, idle)
            }
        }
    }

    fn list(self: &Arc<Self>, holding: &mut Holding) {
        if !std::mem::replace(&mut holding.listed, true) {
            self.active.add(Arc::clone(self));
        }
    }

    fn release(&self) {
        let mut holding = self.holding();
        holding.held -= 1;
        holding.released += 1;
        if holding.crowded {
            self.active.hurry();
        }
    }

    /// Nothing that holds this lock can leave it half changed: it only assigns.
    pub(super) fn holding(&self) -> MutexGuard<'_, Holding> {
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
