//! The shared state and the contract that both of its variants keep.
//!
//! - One call, [`State::decide`], authenticates the key, checks the permission, and takes a token and a slot. It checks
//!   everything, then takes; a denied request leaves everything as it was.
//! - When [`State::change`] has returned, the change is durable and holds in every decision that begins afterwards.
//! - A [`Permit`] releases its slot when it is dropped.
//! - A web session ([`State::session`]) is found while it is live. Once its end was acknowledged, no later look-up
//!   finds it. The requests of a user's sessions are decided by the user's session quota key
//!   ([`session_quota_digest`]): a key record with a bucket of its own, which lists of keys leave out.
//! - A ticket ([`State::take_ticket`]) is handed out once, by one gateway, and never after its time.
//! - Decisions take the time as a value; the state reads no clock for them.

use std::path::Path;
use std::sync::Arc;

use domain::budget::{Budget, BudgetSubject};
use domain::clock::Micros;
use domain::key::OrgTag;
use domain::quota::Quota;

use dispatch::either;
use spending::{Spending, SpendingChange};

pub mod bucket;
pub mod spending;
mod decide_request;
mod decision;
mod records;
mod org_policy;
mod policy_scope;
pub mod federation;
pub mod duration_text;
mod dispatch;
mod validity;
mod revocation_log;
mod change;
mod patches;
mod plan;
mod etag;
mod idempotency;
mod last_rotation;
mod key_actors;
mod error;
mod sessions;
mod lookup;
mod listing;
mod management_tokens;
mod cursor_secret;
pub mod identity;
mod export;
mod exporter;
pub mod import;
mod limit_plans;
mod near_budgets;
mod reservation;
mod bounds;
pub mod embedded;
pub mod redis;
pub mod migration;
mod trial;

pub use bounds::Bounds;
pub use change::Change;
pub use cursor_secret::CursorSecret;
pub use decide_request::{DecideRequest, RouteAccess};
pub use decision::{Admitted, Decision, Permit};
pub use embedded::Embedded;
pub use error::{ChangeError, LOOK_TAKEN, StorageError, Unavailable};
pub use etag::{ETag, InvalidETag};
pub use export::{CreationBucket, KeyExport, SpentExport, UserExport};
pub use exporter::{Exporter, StateRecord};
pub use federation::{ClaimPattern, FederationExchange, FederationRule, InvalidFederationRule, RuleChange};
pub use idempotency::{IdempotencyPlace, IdempotencyRecord, IdempotentRequest};
pub use identity::{Discontinuity, StateId, StateIdentity};
pub use key_actors::{ActorName, KeyActors, KeyEvent};
pub use last_rotation::LastRotation;
pub use limit_plans::{Defaults, GivenPlan, GivenPlans, LimitLevel, LimitPlan, LimitPlans, LimitsInForce};
pub use listing::{InvalidPosition, KeyList, KeyPosition, Position, SessionList, SessionPosition};
pub use management_tokens::{MAX_TOKENS, TokenPosition, descendants};
pub use near_budgets::NearBudget;
pub use org_policy::{InvalidPolicy, OrgPolicy, OrgPolicyPatch, TooLate, UnusedKeys};
pub use patches::{KeyPatch, OrgPatch, Permitted, PolicyChange, UserPatch};
pub use plan::ADMIN;
pub use policy_scope::PolicyScope;
pub use records::{Key, Org, User};
pub use redis::Redis;
pub use reservation::Reservation;
pub use revocation_log::{RevocationEntry, RevocationLog};
pub use sessions::{Membership, Session, TicketSource, is_session_quota_digest, session_quota_digest};
pub use trial::{Excerpt, TrialError};
pub use validity::{CredentialId, CredentialStatus, EntryEffect, RevokedBy, Validity};

/// Settings of one variant of the state.
#[derive(Clone, Debug)]
pub enum Settings {
    /// State in memory and SQLite.
    Embedded(embedded::Settings),
    /// State on Redis.
    Redis(Box<redis::Settings>),
}

impl Settings {
    /// The limits of keys and organizations without limits of their own.
    pub fn defaults(&self) -> Defaults {
        match self {
            Self::Embedded(settings) => settings.defaults(),
            Self::Redis(settings) => settings.defaults(),
        }
    }
}

/// The state of a gateway.
#[derive(Debug)]
pub enum State {
    /// In memory, durable in SQLite, for one gateway process.
    Embedded(Embedded),
    /// On Redis, for any number of gateways.
    Redis(Redis),
}

impl State {
    /// Returns the same state for the calling thread, which has a runtime of its own. A Redis state gets connections of
    /// its own there, so that no decision hops between threads.
    pub async fn for_thread(this: &Arc<Self>) -> Arc<Self> {
        match &**this {
            Self::Embedded(_) => Arc::clone(this),
            Self::Redis(state) => Arc::new(Self::Redis(state.for_thread().await)),
        }
    }

    /// Returns whether the state decides now. The embedded state always does; a Redis may decide nothing while requests
    /// with known keys go on.
    pub fn is_connected(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Redis(state) => state.decider.fault().is_none(),
        }
    }

    /// Replicas of the shared state's primaries; none with embedded state, and while no primary answers.
    pub fn replication(&self) -> Option<redis::ReplicationStatus> {
        match self {
            Self::Embedded(_) => None,
            Self::Redis(state) => state.client_shared.replication(),
        }
    }

    /// A time of this process by the clock of the state: that of the Redis servers, where it differs from the clock of
    /// this process, which is the clock of an embedded state. What ends, accepts or remembers something of others goes
    /// by it.
    pub fn time(&self, time: Micros) -> Micros {
        match self {
            Self::Embedded(_) => time,
            Self::Redis(state) => state.client_shared.server_time(time),
        }
    }

    /// Returns whether the clock of the state is known: only then [`State::time`] goes by it.
    pub fn knows_time(&self) -> bool {
        matches!(self, Self::Embedded(_)) || self.replication().is_some()
    }

    /// Returns whether the clock of the state is known, and agrees with that of this process to a minute.
    pub fn clocks_agree(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Redis(_) => self.replication().is_some_and(|status| status.clocks_agree()),
        }
    }

    /// Returns true while requests can be decided.
    pub fn is_available(&self) -> bool {
        self.fault().is_none()
    }

    /// The fault for which no request can be decided now.
    pub fn fault(&self) -> Option<redis::Fault> {
        match self {
            Self::Embedded(_) => None,
            Self::Redis(state) => state.decider.fault().filter(|_| !state.admits_known_keys()),
        }
    }

    /// The faults that decisions meet now, also those of some servers of a Cluster only, and those for which known keys
    /// are admitted without Redis.
    pub fn faults(&self) -> Vec<redis::Fault> {
        match self {
            Self::Embedded(_) => Vec::new(),
            Self::Redis(state) => state.decider.faults(),
        }
    }

    /// Gateways that are registered on Redis, by the last heartbeat; 1 with the embedded state, and before the first.
    pub fn registered_gateways(&self) -> usize {
        match self {
            Self::Embedded(_) => 1,
            Self::Redis(state) => state.registered_gateways(),
        }
    }

    /// Remembers the state in `directory`, beside the journal, from now on, and compares it with what is remembered
    /// there. Call before the first decision.
    ///
    /// # Errors
    /// [`Discontinuity`]: this is not the state that was served. A Redis that does not answer is compared later.
    pub async fn remember_in(&self, directory: &Path) -> Result<(), Discontinuity> {
        self.identity().remember_in(directory);
        if let Self::Redis(state) = self {
            redis::IdentityRecord(&state.transactions).verify_at_start().await;
        }
        self.identity().save();
        self.identity().discontinuity().map_or(Ok(()), Err)
    }

    /// Accepts the state as it is, in place of the one that gateways remember: gives it a new identity, which names
    /// those that it replaces.
    ///
    /// # Errors
    /// [`ChangeError`]; the identity is the one before.
    pub async fn accept(&self) -> Result<StateIdentity, ChangeError> {
        match self {
            Self::Embedded(state) => state.accept().await,
            Self::Redis(state) => redis::IdentityRecord(&state.transactions).accept().await,
        }
    }

    /// Decides one request: all or nothing.
    ///
    /// # Errors
    /// [`Unavailable`] when the state does not answer. The embedded state always answers.
    pub async fn decide(&self, request: DecideRequest<'_>) -> Result<Decision, Unavailable> {
        match self {
            Self::Embedded(state) if state.is_frozen() => Box::pin(state.decide_after_handover(request)).await,
            Self::Embedded(state) if state.identity().is_broken() => Err(Unavailable::Lost),
            Self::Embedded(state) => Ok(state.decide(request)),
            // Boxed, so that a request at an embedded state has no room for it.
            Self::Redis(state) => Box::pin(state.decide(request)).await,
        }
    }

    /// Makes one change. When this returns, the change is durable and effective.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then, with two exceptions: after [`ChangeError::NotReplicated`] it was, and
    /// after [`ChangeError::Unavailable`] of a Redis state it may have been.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        change.validate()?;
        either!(self, state => state.change(change).await)
    }

    /// Corrects what a subject of the organization with this tag has spent of a budget. Returns the spending of before
    /// and of after, or none when the correction does not apply: another stretch has begun, or the period ends.
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`]; the correction may hold then.
    pub async fn change_spending(
        &self,
        tag: OrgTag,
        subject: BudgetSubject,
        budget: Budget,
        change: SpendingChange,
        now: Micros,
    ) -> Result<Option<[Spending; 2]>, ChangeError> {
        match self {
            state if state.identity().is_broken() => Err(ChangeError::lost()),
            Self::Embedded(state) => state.change_spending(subject, budget, change, now).await,
            Self::Redis(state) => {
                redis::Spendings(&state.transactions).change((tag, subject), budget, change, now).await
            }
        }
    }

    /// The limits of keys and organizations without limits of their own.
    pub fn defaults(&self) -> Defaults {
        either!(self, state => state.defaults())
    }

    /// The quota of a key without one of its own and without a plan.
    pub fn quota(&self) -> Quota {
        self.defaults().quota
    }

    /// Requests that an organization without a limit of its own may have in flight.
    pub fn concurrent(&self) -> u32 {
        self.defaults().concurrent
    }

    /// Decisions about keys of plans that the configuration does not have, since the start of this process.
    pub fn missing_plan_decisions(&self) -> u64 {
        either!(self, state => state.missing_plan_decisions())
    }

    /// Replaces the limits of keys and organizations without limits of their own, for every decision that begins
    /// afterwards. Buckets keep their tokens, capped by the new burst; slots that are held stay held.
    pub fn set_defaults(&self, defaults: Defaults) {
        either!(self, state => state.set_defaults(defaults))
    }

    /// Replaces the credentials by which a Redis state connects; its open connections stay.
    pub fn replace_logins(&self, settings: &Settings) {
        if let (Self::Redis(state), Settings::Redis(settings)) = (self, settings) {
            state.client_shared.replace_logins(settings.login.clone(), settings.sentinel_login.clone());
        }
    }

    /// Replaces the bounds of what people create, for every change that begins afterwards. Before the first call they
    /// are [`Bounds::DEFAULT`], and no revoked key leaves the lists.
    pub fn set_bounds(&self, bounds: Bounds) {
        either!(self, state => state.set_bounds(bounds))
    }

    /// The bounds of what people create.
    pub fn bounds(&self) -> Bounds {
        either!(self, state => state.bounds())
    }

    /// Waits for the next budget that decisions of this process have found nearly spent.
    pub async fn next_near_budget(&self) -> NearBudget {
        either!(self, state => state.near_budgets()).next().await
    }

    /// Requests in flight through this process, of all organizations together.
    pub fn in_flight(&self) -> u64 {
        either!(self, state => state.in_flight())
    }

    /// Writes back what is not yet durable and closes the durable copy. Later changes answer [`ChangeError::Closed`].
    pub async fn close(&self) {
        either!(self, state => state.close().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::budget::Cost;
    use domain::identity::OrgId;
    use domain::key::KeyDigest;
    use domain::session::TokenDigest;

    /// Compiles only while nothing that is not `Send` is held over an await.
    #[test]
    fn futures_of_the_state_can_move_between_threads() {
        fn send<T: Send>(_: impl FnOnce(&'static State) -> T) {}
        static DIGEST: std::sync::OnceLock<KeyDigest> = std::sync::OnceLock::new();
        static TOKEN: std::sync::LazyLock<TokenDigest> = std::sync::LazyLock::new(|| TokenDigest::of(b"any"));
        let digest = DIGEST.get_or_init(|| KeyDigest::of(b"any"));
        let org = OrgId::generate();
        let key = "abcDEF123".parse().unwrap();
        let now = Micros(0);
        send(|state| {
            state.decide(DecideRequest {
                digest,
                id: None,
                access: RouteAccess::Everyone,
                cost: Cost::ONE,
                client: None,
                now,
            })
        });
        send(|state| state.change(Change::suspend_org(org, true)));
        send(|state| state.orgs());
        send(|state| state.users(org));
        send(|state| state.keys(org));
        send(|state| state.key_of(digest));
        send(|state| state.key(key));
        send(|state| state.key_actors(&[]));
        send(|state| state.rate_limit_status(key, now));
        send(|state| state.session(&TOKEN, now));
        send(|state| state.sessions(now));
        send(|state| state.take_ticket(&TOKEN, now));
        send(|state| state.federation_rule(org, "deploy"));
        send(|state| state.close());
    }
}

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
