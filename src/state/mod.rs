//! The shared state and the contract that both its variants keep.
//!
//! - One call, [`State::decide`], answers who a key is, whether they may, whether there is a token and whether there is
//!   a slot. It checks everything, then takes; a refusal leaves everything as it was.
//! - When [`State::change`] has returned, the change is durable and holds in every decision that begins afterwards.
//! - A [`Permit`] gives its slot back when it is dropped, wherever that happens.
//! - A web session ([`State::session`]) is found while it is live, and by nobody who asks after its end was acknowledged.
//!   The requests of a user's sessions are decided by the user's session quota key
//!   ([`session_quota_digest`]): a key record with a bucket of its own, which lists of keys leave out.
//! - A ticket ([`State::take_ticket`]) is handed out once, whoever asks, wherever, and never after its time.
//! - Time comes in as a value; nothing here reads a clock to decide.

use std::sync::Arc;

use crate::clock::Micros;
use crate::identity::{OrgId, Permission, Principal};
use crate::key::{KeyDigest, KeyId};
use crate::quota::{Quota, RateLimitStatus};
use crate::refusal::Refusal;

pub mod bucket;
pub mod embedded;
pub mod redis;
mod export;
mod lookup;
mod records;
mod sessions;
mod settings;

pub use embedded::Embedded;
pub use export::{KeyExport, OrgExport, StateExport};
pub use records::{Change, ChangeError, Failure, Key, Org, User};
pub use redis::Redis;
pub use sessions::{Membership, Session, is_session_quota_digest, session_quota_digest};
pub use settings::{Defaults, Settings};

/// The state of a gateway.
#[derive(Debug)]
pub enum State {
    /// In memory, durable in SQLite, for one gateway process.
    Embedded(Embedded),
    /// On Redis, for any number of gateways.
    Redis(Redis),
}

/// What admission asks.
#[derive(Clone, Copy, Debug)]
pub struct DecideRequest<'a> {
    /// The digest of the presented key.
    pub digest: &'a KeyDigest,
    /// The key id that the presented key names, when it is of our own format: where to look first.
    pub id: Option<KeyId>,
    /// Access that the requested route grants.
    pub access: RouteAccess<'a>,
    /// When.
    pub now: Micros,
}

/// Access that a route grants to authenticated callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess<'a> {
    /// Every caller may use the route.
    Everyone,
    /// Callers whose user has this permission may use the route.
    Permission(&'a Permission),
    /// There is no such route: every authenticated caller is refused.
    NoRoute,
}

impl RouteAccess<'_> {
    /// Refusal of an authenticated caller with these permissions, if there is a reason.
    pub(crate) fn refusal(self, permissions: &[Permission]) -> Option<Refusal> {
        match self {
            Self::Everyone => None,
            Self::Permission(required) => (!permissions.contains(required)).then_some(Refusal::Forbidden),
            Self::NoRoute => Some(Refusal::NotFound),
        }
    }
}

/// What the state answers.
#[derive(Debug)]
pub enum Decision {
    /// A token and a slot were taken.
    Admitted(Admitted),
    /// Nothing was taken.
    Denied {
        /// Why.
        refusal: Refusal,
        /// Whose key it is, when it is known.
        principal: Option<Arc<Principal>>,
        /// Where they stand, when they are authenticated (that is, for the refusals from [`Refusal::OrgSuspended`] on).
        rate_limit: Option<RateLimitStatus>,
    },
}

/// An admitted request.
#[derive(Debug)]
pub struct Admitted {
    /// Who.
    pub principal: Arc<Principal>,
    /// Where they stand now.
    pub rate_limit: RateLimitStatus,
    /// The number of this use of the key, counted from 1, durable: what the journal needs to replay it.
    pub number: u64,
    /// Admitted without the shared state, which was away: against this gateway's own share of the limits.
    pub provisional: bool,
    /// The slot.
    pub permit: Permit,
}

/// A slot of an organization, given back on drop.
#[derive(Debug)]
pub enum Permit {
    /// Of the embedded state.
    Embedded(embedded::Permit),
    /// Of the Redis state.
    Redis(redis::Permit),
}

/// Why the state does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The time that a decision may take was over.
    #[error("the shared state did not answer in time")]
    TimedOut,
    /// There is no connection, or it broke.
    #[error("the shared state cannot be reached")]
    Unreachable,
    /// It answered, with an error.
    #[error("the shared state refused the command")]
    ErrorReply,
    /// It was not even asked: too many wait for it already.
    #[error("too many decisions wait for the shared state")]
    Overloaded,
}

impl State {
    /// The same state for the thread that this is called on, which has a runtime of its own: with connections of its
    /// own, where there are any, so that no decision hops between threads.
    pub async fn for_thread(this: &Arc<Self>) -> Arc<Self> {
        match &**this {
            Self::Embedded(_) => Arc::clone(this),
            Self::Redis(state) => Arc::new(Self::Redis(state.for_thread().await)),
        }
    }

    /// Whether requests can be decided now.
    pub fn available(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Redis(state) => state.available(),
        }
    }

    /// Decides one request: all or nothing.
    ///
    /// # Errors
    /// [`Unavailable`] when the state does not answer. The embedded state always answers.
    pub async fn decide(&self, ask: DecideRequest<'_>) -> Result<Decision, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.decide(ask)),
            Self::Redis(state) => state.decide(ask).await,
        }
    }

    /// Makes one change durable and effective.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then, with two exceptions: after [`ChangeError::NotReplicated`] it was, and
    /// after [`ChangeError::Unavailable`] of a Redis state it may have been.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        if let Some(objection) = change.objection() {
            return Err(objection);
        }
        match self {
            Self::Embedded(state) => state.change(change).await,
            Self::Redis(state) => state.change(change).await,
        }
    }

    /// All organizations, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn orgs(&self) -> Result<Vec<Org>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.orgs()),
            Self::Redis(state) => state.orgs().await,
        }
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn users(&self, org: OrgId) -> Result<Vec<User>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.users(org)),
            Self::Redis(state) => state.users(org).await,
        }
    }

    /// All keys of an organization, revoked ones too, in the order of their creation. Session quota keys are left out.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn keys(&self, org: OrgId) -> Result<Vec<Key>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.keys(org)),
            Self::Redis(state) => state.keys(org).await,
        }
    }

    /// The key that has, or had, this digest.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn key_of(&self, digest: &KeyDigest) -> Result<Option<KeyId>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.key_of(digest)),
            Self::Redis(state) => state.key_of(digest).await,
        }
    }

    /// One key.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn key(&self, id: KeyId) -> Result<Option<Key>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.key(id)),
            Self::Redis(state) => state.key(id).await,
        }
    }

    /// Where a key stands, taking nothing.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn rate_limit_status(&self, id: KeyId, now: Micros) -> Result<Option<RateLimitStatus>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.rate_limit_status(id, now)),
            Self::Redis(state) => state.rate_limit_status(id, now).await,
        }
    }

    /// The quota of a key without one of its own.
    pub fn quota(&self) -> Quota {
        match self {
            Self::Embedded(state) => state.quota(),
            Self::Redis(state) => state.quota(),
        }
    }

    /// Requests that an organization without a limit of its own may have in flight.
    pub fn concurrent(&self) -> u32 {
        match self {
            Self::Embedded(state) => state.concurrent(),
            Self::Redis(state) => state.concurrent(),
        }
    }

    /// Puts other limits in force for those who have none of their own, for every decision that begins afterwards.
    /// Buckets keep the tokens that they have now, up to the new burst; slots that are held stay held.
    pub fn set_defaults(&self, defaults: Defaults) {
        match self {
            Self::Embedded(state) => state.set_defaults(defaults),
            Self::Redis(state) => state.set_defaults(defaults),
        }
    }

    /// Requests in flight through this process, of all organizations together.
    pub fn in_flight(&self) -> u64 {
        match self {
            Self::Embedded(state) => state.in_flight(),
            Self::Redis(state) => state.in_flight(),
        }
    }

    /// Writes back what is not yet durable and closes the durable copy. Later changes answer [`ChangeError::Closed`].
    pub async fn close(&self) {
        match self {
            Self::Embedded(state) => state.close().await,
            Self::Redis(state) => state.close().await,
        }
    }
}

impl Unavailable {
    /// Its name in metrics.
    pub fn kind(self) -> &'static str {
        match self {
            Self::TimedOut => "late",
            Self::Unreachable => "unreachable",
            Self::ErrorReply => "refused",
            Self::Overloaded => "overloaded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::TokenDigest;

    /// Compiles only while nothing that is not `Send` is held over an await.
    #[test]
    fn what_the_state_does_can_move_between_threads() {
        fn send<T: Send>(_: impl FnOnce(&'static State) -> T) {}
        static DIGEST: std::sync::OnceLock<KeyDigest> = std::sync::OnceLock::new();
        static TOKEN: std::sync::LazyLock<TokenDigest> = std::sync::LazyLock::new(|| TokenDigest::of(b"any"));
        let digest = DIGEST.get_or_init(|| KeyDigest::of(b"any"));
        let (org, key, now) = (OrgId::generate(), "abcDEF123".parse().unwrap(), Micros(0));
        send(|state| state.decide(DecideRequest { digest, id: None, access: RouteAccess::Everyone, now }));
        send(|state| state.change(Change::SuspendOrg { org, suspended: true }));
        send(|state| state.orgs());
        send(|state| state.users(org));
        send(|state| state.keys(org));
        send(|state| state.key_of(digest));
        send(|state| state.key(key));
        send(|state| state.rate_limit_status(key, now));
        send(|state| state.session(&TOKEN, now));
        send(|state| state.sessions(now));
        send(|state| state.take_ticket(&TOKEN, now));
        send(|state| state.close());
    }
}
