//! Web sessions and tickets, as both variants keep them.
//!
//! - A session is found by the SHA-256 of what its browser holds; nothing here can be turned back into that.
//! - Every look-up reads what all gateways share: one that was ended, or has expired, is not found by any request that
//!   begins afterwards.
//! - A ticket is taken once, by one of all who try.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ChangeError, State, Unavailable};
use crate::clock::Micros;
use crate::identity::{OrgId, SessionId, UserId};
use crate::key::KeyDigest;
use crate::session::TokenDigest;

/// Prefix of every session quota key's digest. No text with such a SHA-256 is known.
const SESSION_QUOTA_PREFIX: &[u8; 16] = b"keygate.session.";

/// A web session.
///
/// - It is valid while the time is before `expires`, and within `idle` of `seen`.
/// - `chosen` is the organization of one of `memberships`.
/// - `Debug` does not show the `id_token`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its public name.
    pub id: SessionId,
    /// Who it is, by their email address.
    pub email: String,
    /// Who they are in each organization; at least one.
    pub memberships: Vec<Membership>,
    /// The organization that they act in.
    pub chosen: OrgId,
    /// The identity provider that they signed in by; none for a link.
    pub provider: Option<String>,
    /// What the provider wants to see again when they sign out there.
    pub id_token: Option<String>,
    /// When they signed in.
    pub created: Micros,
    /// When it ends, whatever happens.
    pub expires: Micros,
    /// How long it may go unused.
    pub idle: Duration,
    /// When it was last used, to about a minute.
    pub seen: Micros,
    /// From where they signed in.
    pub ip: Option<IpAddr>,
    /// With what they signed in; capped.
    pub user_agent: Option<String>,
}

/// A person's place in an organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The organization.
    pub org: OrgId,
    /// Who they are there.
    pub user: UserId,
}

impl Session {
    /// Who the person is in the chosen organization.
    pub fn user(&self) -> Option<UserId> {
        self.memberships.iter().find(|membership| membership.org == self.chosen).map(|membership| membership.user)
    }

    /// Whether it is valid at this time.
    pub fn is_live(&self, now: Micros) -> bool {
        now < self.expires && now < self.seen.after(self.idle)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("email", &self.email)
            .field("memberships", &self.memberships)
            .field("chosen", &self.chosen)
            .field("provider", &self.provider)
            .field("created", &self.created)
            .field("expires", &self.expires)
            .field("idle", &self.idle)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// Digest of a user's session quota key: the key record that meters the requests of all of the user's web sessions.
/// No API key can have this digest.
pub fn session_quota_digest(user: UserId) -> KeyDigest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(SESSION_QUOTA_PREFIX);
    digest[16..].copy_from_slice(user.as_bytes());
    KeyDigest::from_bytes(digest)
}

/// Returns true for the digest of a session quota key.
pub fn is_session_quota_digest(digest: &KeyDigest) -> bool {
    digest.as_bytes().starts_with(SESSION_QUOTA_PREFIX)
}

impl State {
    /// The live session with this digest; it counts as used now.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn session(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Session>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.session(digest, now)),
            Self::Redis(state) => state.session(digest, now).await,
        }
    }

    /// The live session with this id. It does not count as used.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn session_by_id(&self, id: SessionId, now: Micros) -> Result<Option<Session>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.session_by_id(id, now)),
            Self::Redis(state) => state.session_by_id(id, now).await,
        }
    }

    /// All sessions that are live at this time, oldest first. None counts as used.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn sessions(&self, now: Micros) -> Result<Vec<Session>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.sessions(now)),
            Self::Redis(state) => state.sessions(now).await,
        }
    }

    /// Takes a ticket: none when there is none, when it has expired, or when it was taken before. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`] and [`ChangeError::Closed`]; the ticket may be gone then.
    pub async fn take_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        match self {
            Self::Embedded(state) => state.take_ticket(digest, now).await,
            Self::Redis(state) => state.take_ticket(digest, now).await,
        }
    }
}
