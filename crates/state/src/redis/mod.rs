//! The shared state on Redis: any number of gateways with one set of records.
//!
//! Read in this order: `record_names` (the records), `scripts/decide.lua` and `decide` (a decision), `slots` (the lease
//! on slots, which cannot leak), `directory` (records and their changes), `revocations` (how they outlast a failover),
//! `client` (connections, and how they fail).
//!
//! # Guarantees
//!
//! - A decision is one script in one hash slot, at the server's time. It carries the versions of the records that the
//!   gateway evaluated, and is committed only if they are current: it obeys every change made before it begins. A key
//!   that is not cached, or that was changed, costs one more round trip.
//! - A gateway holds slots on a lease in the organization's record. It renews the lease while it lives. When it dies,
//!   the lease expires, and the next command about the organization removes the entry. Leases that could not be
//!   renewed, because the server was away or its clock stepped, begin anew, twice at most. If a reply is lost, the
//!   gateway sends the absolute number of its slots before it admits anything else.
//! - A released slot is reported with the next decision of the organization, or within 0.2 s (2 ms if the organization
//!   was last seen at half its limit or more). Until then it counts as taken.
//! - A change is acknowledged once the primary has it, and as many replicas as `durability` says.
//!
//! # What a failover undoes
//!
//! A primary that dies takes along what no replica has got yet: usually the last milliseconds. Of that,
//!
//! - tokens come back to buckets: as many requests as were lost may be admitted once more;
//! - slots are reported again, the absolute number of them, by every gateway before it admits anything on the new
//!   primary. Until all have done so an organization may get more, by what the others have not reported yet;
//! - revocations of keys and management tokens, removals of users with their keys and of federation rules, and ends of
//!   sessions are obeyed without a gap by the gateway that acknowledged them, and by those that have read them in the
//!   log of revocations since. These write them to the new primary, so that all obey them (`revocations`). They are
//!   undone only when all these gateways die with the primary;
//! - disabled keys, suspensions and rotations are written again likewise, and hold again from then on;
//! - entries of the revocation log may be lost: every gateway checks all its open exchanges (`revocation_reader`);
//! - a ticket may be taken once more; other changes (new keys and sessions, permissions, limits) are undone.
//!
//! With `durability: { replicas: 1 }` a change is acknowledged only when a replica has it too. Set Redis's
//! `min-replicas-to-write 1` and `min-replicas-max-lag` as well, so that a primary that is cut off stops admitting.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Bounds, Change, ChangeError, DecideRequest, Decision, Defaults, RevocationLog, Unavailable};
use crate::near_budgets::NearBudgets;
use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;

mod settings;
mod open_error;
mod active_defaults;
mod record_names;
mod slot_numbers;
mod record_codec;
mod format;
mod packed;
mod identity;
mod scripts;
mod decide;
pub(super) mod slots;
mod revocations;
pub(super) mod directory;
mod digest_index;
mod weak_index;
mod open_credentials;
mod log_follower;
mod revocation_reader;
mod maintenance;
mod unavailable;
mod inspect;
pub mod import;
pub(super) mod export;

use decide::Decider;
use directory::{Changes, DirectoryShared, Transactions};
use maintenance::Maintenance;
use redis_client::{ClientShared, RedisClient};
use revocation_reader::RevocationReader;
use revocations::assert_revocations;

pub(super) use self::{identity::IdentityRecord, unavailable::read};

pub use format::OtherVersion;
pub use inspect::{InspectError, InspectedServer, ServerDescription, inspect};
pub use open_error::OpenError;
pub use redis_client::{
    Address, ConnectError, Durability, Fault, InvalidUrl, Login, MAX_CLOCK_DIFFERENCE, Replication, ReplicationStatus,
    Servers, Unsuitable, Url,
};
pub use settings::{Clock, OnUnavailable, Settings};
pub use slots::Permits;

// The steps that decide without I/O: the simulation of many gateways drives them.
pub(crate) use decide::RedisReservation;
pub use decide::{
    CachedKey, CachedUsage, CallArguments, CallOutcome, CallResult, DecideError, DecideInput, Decided, DeciderShared,
    DecisionSteps, Evaluation, LateAnswer, Next, Step, UnreportedUses, after_status_call, complete, decode_read,
    encode_read, give_back, took_token,
};
pub(crate) use directory::Spendings;
pub use directory::{ChangeSteps, ChangeWrite, CommitError, key_fields, org_fields, user_fields};
pub use identity::{INTERVAL as IDENTITY_INTERVAL, ListedOrgs, Listing, MISSED_FOR};
pub use log_follower::{LogFollower, LogRead};
pub use record_codec::StoredRecords;
pub use record_names::RecordNames;
pub use revocation_reader::INTERVAL as LOG_READ_INTERVAL;
pub use revocations::{ASSERTION_GATHER, ASSERTION_RETRY, Kept, KeptRevocations, Revocation, Write, round_trips};
pub use scripts::Scripts;
pub use slot_numbers::{gateways_slot, org_slot, orgs_slot, revocations_slot};
pub use slots::{
    ActiveSet, EARLY_REPORT, HashSlots, HeartbeatAction, HeartbeatRound, LeaseVisit, Membership, PendingReport,
    Portion, Resync, SignOfLife, SlotLease, SlotLeases, SlotReport, SlotReportReply, SlotSubject, TICK, VisitedLease,
    sign_argument,
};

/// Time to wait for the servers at the start, before going on without them.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// The Redis state, for one thread. Cache and leases are shared by all threads of a process.
///
/// - It belongs to the runtime in which it was created, and its connections live as long as both.
pub struct Redis {
    client: RedisClient,
    pub(super) client_shared: Arc<ClientShared>,
    pub(super) decider: Decider,
    slots: Arc<SlotLeases>,
    /// False for a command, which is registered nowhere.
    is_gateway: bool,
    pub(super) transactions: Transactions,
    /// Log of revocations, shared by all threads.
    revocations: Arc<RevocationLog>,
    maintenance: Maintenance,
}

impl Redis {
    /// Connects as a gateway, and starts the background tasks, on the current runtime.
    ///
    /// # Errors
    /// [`OpenError`] when an operator has to change something. When no server can be reached, this is no error: until
    /// one can, decisions are refused, or made offline.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        Self::open_as(settings, true).await
    }

    /// For a command that reads and changes records, and decides nothing: no gateway divides limits with it, nor waits
    /// until it has seen the others. See [`Redis::open`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open_for_changes(settings: Settings) -> Result<Self, OpenError> {
        Self::open_as(settings, false).await
    }

    async fn open_as(settings: Settings, is_gateway: bool) -> Result<Self, OpenError> {
        let settings = Arc::new(settings);
        let scripts = Arc::new(Scripts::new());
        let revocations = Arc::new(KeptRevocations::new(RecordNames::new(&settings.prefix)));
        let client_shared = Arc::new(ClientShared::new(settings.connections())?);
        let gateway_id = format!("h:{}", record_codec::new_version()?).into_bytes().into();
        let failovers = Arc::clone(client_shared.failovers());
        let slots = Arc::new(SlotLeases::new(Arc::clone(&settings), Arc::clone(&scripts), gateway_id, failovers));

        let client = RedisClient::start(&client_shared);
        match timeout(START_TIMEOUT, client.wait_connected()).await {
            Ok(Ok(())) => format::check_at_start(&client, &settings.prefix).await?,
            Ok(Err(error)) if error.is_lasting() => return Err(OpenError::Server(error)),
            // A server may come back.
            Ok(Err(_)) | Err(_) => {}
        }
        let decider_shared = DeciderShared::new(
            Arc::clone(&settings),
            Arc::clone(&scripts),
            Arc::clone(&slots),
            Arc::clone(&revocations),
            clock::now(),
        );
        let defaults = Arc::clone(decider_shared.defaults());
        let decider = Decider::new(decider_shared, client.clone());
        let background = RedisClient::start(&client_shared);
        let reporter = decider.with_client(background.clone());
        let assertion = assert_revocations(Arc::clone(&revocations), Arc::clone(&scripts), Arc::clone(&client_shared));
        let log = Arc::new(RevocationLog::new());
        let names = RecordNames::new(&settings.prefix);
        let reader = RevocationReader::new(background.clone(), &names, Arc::clone(&log), Arc::clone(&revocations));
        let member = is_gateway.then(|| Arc::clone(&slots));
        // WAIT blocks all that is behind it on a connection, so commits that use it get connections of their own.
        let waits = settings.durability.replicas > 0;
        let commit_client = if waits { RedisClient::start_for_waits(&client_shared) } else { client.clone() };
        let directory_shared = Arc::new(DirectoryShared::new(settings, scripts, revocations, defaults));
        let transactions = Transactions::new(directory_shared, client.clone(), commit_client);
        let maintenance = Maintenance::start(member, reporter, background, transactions.clone(), assertion, reader);
        Ok(Self { client, client_shared, decider, slots, is_gateway, transactions, revocations: log, maintenance })
    }

    /// The same state with connections of its own, on the current runtime. The first attempt to connect has ended when
    /// it returns.
    pub async fn for_thread(&self) -> Self {
        let client = RedisClient::start(&self.client_shared);
        // Without a server the thread starts all the same: `on_unavailable` says what it does then.
        let _ = timeout(START_TIMEOUT, client.wait_connected()).await;
        Self {
            client_shared: Arc::clone(&self.client_shared),
            decider: self.decider.with_client(client.clone()),
            slots: Arc::clone(&self.slots),
            is_gateway: self.is_gateway,
            transactions: self.transactions.with_client(client.clone()),
            revocations: Arc::clone(&self.revocations),
            maintenance: self.maintenance.clone(),
            client,
        }
    }

    /// Returns whether requests with known keys are admitted while Redis decides nothing.
    pub(super) fn admits_known_keys(&self) -> bool {
        matches!(self.transactions.shared.settings.on_unavailable, OnUnavailable::KnownKeys { .. })
    }

    /// Decides one request. See [`super::State::decide`].
    ///
    /// # Errors
    /// [`Unavailable`]. When a reply was late or lost, a token may have been taken; a slot never stays taken.
    pub async fn decide(&self, request: DecideRequest<'_>) -> Result<Decision, Unavailable> {
        let identity = IdentityRecord(&self.transactions);
        if !identity.is_verified() {
            Box::pin(identity.verify_after_failover()).await?;
        }
        let failovers = identity.failovers();
        let decision = self.decider.decide(request).await?;
        if let Decision::Denied { refusal: Refusal::Unknown, .. } = decision {
            Box::pin(identity.confirm_unknown(request.id.map(|id| id.tag()), failovers)).await?;
        }
        Ok(decision)
    }

    /// Makes one change durable and effective. See [`super::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        let result = Changes(&self.transactions).change(change).await;
        // Also after an error: the change may have been made.
        self.decider.end_verdicts();
        result
    }

    /// The rate-limit status of a key. Takes nothing.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn rate_limit_status(&self, id: KeyId, now: Micros) -> Result<Option<RateLimitStatus>, Unavailable> {
        read(self.decider.rate_limit_status(id, now)).await
    }

    /// The limits of keys and organizations without limits of their own.
    pub fn defaults(&self) -> Defaults {
        self.transactions.shared.defaults.load().limits.clone()
    }

    /// Decisions about keys of plans that the configuration does not have.
    pub(super) fn missing_plan_decisions(&self) -> u64 {
        self.decider.missing_plan_decisions()
    }

    /// Replaces the limits of keys and organizations without limits of their own. See [`super::State::set_defaults`].
    ///
    /// The next decision of each key reads its records again; while Redis is unavailable, cached ones stay in use. The
    /// time before this moment still counts by the quota before.
    pub fn set_defaults(&self, defaults: Defaults) {
        let active = &self.transactions.shared.defaults;
        active.store(Arc::new(active.load().with_limits(defaults, clock::now())));
    }

    /// The bounds of what people create.
    pub fn bounds(&self) -> Bounds {
        self.transactions.bounds()
    }

    /// Replaces the bounds of what people create. See [`super::State::set_bounds`].
    pub fn set_bounds(&self, bounds: Bounds) {
        self.transactions.shared.bounds.store(Arc::new(Some(bounds)));
    }

    /// Gateways that are registered, by the last heartbeat; 1 before the first.
    pub(super) fn registered_gateways(&self) -> usize {
        self.slots.membership().map_or(1, Membership::gateways) as usize
    }

    /// The budgets that decisions of all threads have found nearly spent.
    pub(super) fn near_budgets(&self) -> &NearBudgets {
        self.decider.near_budgets()
    }

    /// Requests in flight through this process.
    pub fn in_flight(&self) -> u64 {
        self.slots.in_flight()
    }

    /// Reports all releases and uses, and deregisters this gateway.
    pub async fn close(&self) {
        // All threads close their state, and one of them does it.
        if self.maintenance.stop() && self.is_gateway {
            maintenance::deregister(&self.slots, &self.decider, &self.client_shared).await;
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("client", &self.client).finish_non_exhaustive()
    }
}
