//! The shared state and the contract that both its variants keep.
//!
//! - One call, [`State::decide`], answers who a key is, whether they may, whether there is a token and whether there is
//!   a slot. It checks everything, then takes; a refusal leaves everything as it was.
//! - When [`State::change`] has returned, the change is durable and holds in every decision that begins afterwards.
//! - A [`Permit`] gives its slot back when it is dropped, wherever that happens.
//! - Time comes in as a value; nothing here reads a clock to decide.

use std::sync::Arc;

use crate::clock::Micros;
use crate::identity::{OrgId, Permission, Principal};
use crate::key::{KeyDigest, KeyId};
use crate::quota::Standing;

pub mod bucket;
pub mod embedded;
pub mod redis;
mod records;

pub use embedded::{Embedded, Permit};
pub use records::{Change, ChangeError, Key, Org, User};

/// The state of a gateway.
#[derive(Debug)]
pub enum State {
    /// In memory, durable in SQLite, for one gateway process.
    Embedded(Embedded),
}

/// How the state is set up, and which variant of it.
#[derive(Clone, Debug)]
pub enum Settings {
    /// In memory and SQLite.
    Embedded(embedded::Settings),
    /// On Redis.
    Redis(Box<redis::Settings>),
}

/// What admission asks.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The digest of the presented key.
    pub digest: &'a KeyDigest,
    /// The permission that the route requires.
    pub required: Option<&'a Permission>,
    /// When.
    pub now: Micros,
}

/// What the state answers.
#[derive(Debug)]
pub enum Decision {
    /// A token and a slot were taken.
    Admitted(Admitted),
    /// Nothing was taken.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whose key it is, when it is known.
        principal: Option<Arc<Principal>>,
        /// Where they stand, when they are authenticated (that is, for the refusals from [`Refusal::OrgSuspended`] on).
        standing: Option<Standing>,
    },
}

/// An admitted request.
#[derive(Debug)]
pub struct Admitted {
    /// Who.
    pub principal: Arc<Principal>,
    /// Where they stand now.
    pub standing: Standing,
    /// The number of this use of the key, counted from 1, durable: what the journal needs to replay it.
    pub number: u64,
    /// The slot.
    pub permit: Permit,
}

/// Why a request is refused, in the order in which it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No key has this digest.
    Unknown,
    /// The key was revoked.
    Revoked,
    /// The secret was replaced by a rotation and its overlap is over.
    Expired,
    /// The key's user was removed.
    UserRemoved,
    /// The organization is suspended.
    OrgSuspended,
    /// The user lacks the required permission.
    Forbidden,
    /// The bucket is empty.
    RateLimited,
    /// The organization has no slot left.
    TooManyInFlight,
}

/// The state cannot answer.
#[derive(Debug, thiserror::Error)]
#[error("the shared state cannot be reached")]
pub struct Unavailable;

impl State {
    /// Decides one request: all or nothing.
    ///
    /// # Errors
    /// [`Unavailable`] when the state cannot be reached; nothing was taken then. The embedded state always answers.
    pub async fn decide(&self, ask: Ask<'_>) -> Result<Decision, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.decide(ask)),
        }
    }

    /// Makes one change durable and effective.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        match self {
            Self::Embedded(state) => state.change(change).await,
        }
    }

    /// All organizations, in the order of their creation.
    pub fn orgs(&self) -> Vec<Org> {
        match self {
            Self::Embedded(state) => state.orgs(),
        }
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    pub fn users(&self, org: OrgId) -> Vec<User> {
        match self {
            Self::Embedded(state) => state.users(org),
        }
    }

    /// All keys of an organization, revoked ones too, in the order of their creation.
    pub fn keys(&self, org: OrgId) -> Vec<Key> {
        match self {
            Self::Embedded(state) => state.keys(org),
        }
    }

    /// Requests that an organization without a limit of its own may have in flight.
    pub fn concurrent(&self) -> u32 {
        match self {
            Self::Embedded(state) => state.concurrent(),
        }
    }

    /// The key that has, or had, this digest.
    pub fn key_of(&self, digest: &KeyDigest) -> Option<KeyId> {
        match self {
            Self::Embedded(state) => state.key_of(digest),
        }
    }

    /// One key.
    pub fn key(&self, id: KeyId) -> Option<Key> {
        match self {
            Self::Embedded(state) => state.key(id),
        }
    }

    /// Where a key stands, taking nothing.
    pub fn standing(&self, id: KeyId, now: Micros) -> Option<Standing> {
        match self {
            Self::Embedded(state) => state.standing(id, now),
        }
    }

    /// Requests in flight of all organizations together.
    pub fn in_flight(&self) -> u64 {
        match self {
            Self::Embedded(state) => state.in_flight(),
        }
    }

    /// Writes back what is not yet durable and closes the durable copy. Later changes answer [`ChangeError::Closed`].
    pub async fn close(&self) {
        match self {
            Self::Embedded(state) => state.close().await,
        }
    }
}
