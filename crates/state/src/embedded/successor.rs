//! Successor of an embedded state: the process that decides after a hand-over, and the switch between
//! it and this process.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc as std_mpsc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

use super::budgets::{SettleElsewhere, Settlement};
use crate::{DecideRequest, Decision, RouteAccess, Session};
use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::{KeyDigest, KeyId};
use domain::session::TokenDigest;

/// Sends requests to the process that has the state now.
pub type Successor = UnboundedSender<SuccessorRequest>;

/// Request to the process that has the state now. A dropped reply says that it cannot be reached.
#[derive(Debug)]
pub enum SuccessorRequest {
    /// Decide a request.
    Decide(Box<OwnedDecideRequest>, oneshot::Sender<Decision>),
    /// Find a session, which counts as a use of it.
    Session(TokenDigest, Micros, oneshot::Sender<Option<Session>>),
    /// Settle a reservation in a budget.
    Settle(Settlement),
}

impl SettleElsewhere for Successor {
    fn settle(&self, settlement: Settlement) {
        // Units of which a successor that is gone is not told stay spent.
        self.send(SuccessorRequest::Settle(settlement)).ok();
    }
}

/// A [`DecideRequest`] that owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedDecideRequest {
    /// SHA-256 of the presented key.
    pub digest: KeyDigest,
    /// Key id within the presented key.
    pub id: Option<KeyId>,
    /// Access that the route grants: to every caller, or to those with a permission; none without a route.
    pub access: OwnedAccess,
    /// Cost of the request.
    pub cost: Cost,
    /// Address of the client.
    pub client: Option<IpAddr>,
    /// Time of the decision.
    pub now: Micros,
}

/// A [`RouteAccess`] that owns its permission.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OwnedAccess {
    /// Every caller.
    Everyone,
    /// Callers with this permission.
    Permission(Permission),
    /// There is no such route.
    NoRoute,
}

/// Switch between deciding here and at the successor.
#[derive(Debug)]
pub(super) struct HandoverSwitch {
    /// False while the state decides itself: then nothing else of this is looked at. All workers read it.
    pub(super) is_frozen: AtomicBool,
    /// Wakes the requests that wait while the state is frozen.
    pub(super) phase: watch::Sender<HandoverPhase>,
    /// Present from the begin of a pause on: lets the writer thread go on. When it is dropped, the thread ends.
    paused_writer: Mutex<Option<std_mpsc::Sender<()>>>,
}

#[derive(Clone, Debug)]
pub(super) enum HandoverPhase {
    Serving,
    Frozen,
    HandedOver(Successor),
}

impl OwnedDecideRequest {
    pub(super) fn new(request: DecideRequest<'_>) -> Self {
        let DecideRequest { digest, id, access, cost, client, now } = request;
        let access = match access {
            RouteAccess::Everyone => OwnedAccess::Everyone,
            RouteAccess::Permission(permission) => OwnedAccess::Permission(permission.clone()),
            RouteAccess::NoRoute => OwnedAccess::NoRoute,
        };
        Self { digest: *digest, id, access, cost, client: client.copied(), now }
    }

    /// The request.
    pub fn as_request(&self) -> DecideRequest<'_> {
        let access = match &self.access {
            OwnedAccess::Everyone => RouteAccess::Everyone,
            OwnedAccess::Permission(permission) => RouteAccess::Permission(permission),
            OwnedAccess::NoRoute => RouteAccess::NoRoute,
        };
        let Self { digest, id, cost, client, now, .. } = self;
        DecideRequest { digest, id: *id, access, cost: *cost, client: client.as_ref(), now: *now }
    }
}

impl HandoverSwitch {
    pub(super) fn new() -> Self {
        let phase = watch::Sender::new(HandoverPhase::Serving);
        Self { is_frozen: AtomicBool::new(false), phase, paused_writer: Mutex::default() }
    }

    /// Waits while the state is frozen. Returns the successor; none when this process goes on.
    pub(super) async fn successor(&self) -> Option<Successor> {
        let mut phase = self.phase.subscribe();
        // The state holds the sender, so waiting cannot fail.
        let phase = phase.wait_for(|phase| !matches!(phase, HandoverPhase::Frozen)).await.ok()?;
        match &*phase {
            HandoverPhase::HandedOver(successor) => Some(successor.clone()),
            HandoverPhase::Serving | HandoverPhase::Frozen => None,
        }
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Option<std_mpsc::Sender<()>>> {
        self.paused_writer.lock()
    }
}
