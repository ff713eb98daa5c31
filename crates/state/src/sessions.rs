//! Web sessions and tickets, in both variants of the state.
//!
//! - A session is found by the SHA-256 of the token in its browser's cookie. The token itself is not stored.
//! - Every look-up reads the shared state: a session that was ended, or has expired, is found by no look-up that begins
//!   afterwards, on any gateway.
//! - A ticket is taken once, even when several try at the same time.
//! - A web session has no key. All sessions of a user share one key record with a bucket of its own, which meters their
//!   requests: the session quota key, found by a digest that is made from the user's id instead of a secret.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, SessionId, UserId};
use domain::key::KeyDigest;

/// Prefix of every session quota key's digest. No text with such a SHA-256 is known.
const SESSION_QUOTA_PREFIX: &[u8; 16] = b"keygate.session.";

/// A web session.
///
/// - It is valid while the time is before `expires`, and within `idle` of `seen`.
/// - `chosen` is the organization of one of `memberships`.
/// - `Debug` does not show the `id_token`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its public id.
    pub id: SessionId,
    /// The person.
    pub person: PersonId,
    /// Email address of the person, for display.
    pub email: String,
    /// The person's user in each organization; at least one.
    pub memberships: Vec<Membership>,
    /// The organization in which the session acts.
    pub chosen: OrgId,
    /// Identity provider of the sign-in; none for a sign-in by link.
    pub provider: Option<String>,
    /// ID token of the sign-in, sent as `id_token_hint` when the person signs out at the provider.
    pub id_token: Option<String>,
    /// Time of the sign-in.
    pub created: Micros,
    /// Time at which it ends, even when it is in use.
    pub expires: Micros,
    /// Time that it may go unused.
    pub idle: Duration,
    /// Time of the last use, to about a minute.
    pub seen: Micros,
    /// Client address of the sign-in.
    pub ip: Option<IpAddr>,
    /// `User-Agent` of the sign-in; capped.
    pub user_agent: Option<String>,
}

/// The cause of a ticket. Where tickets are bounded, those of one source never remove those of another of fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketSource {
    /// The operator, who created a sign-in link.
    Operator,
    /// A visitor who began to sign in, and is not authenticated; with their address, if it is known.
    Visitor(Option<IpAddr>),
    /// A gateway, which claims something that one of all gateways does: a ticket with this digest and other content
    /// stays, and is [`super::ChangeError::Taken`].
    Gateway,
}

/// Membership of a person in one organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The organization.
    pub org: OrgId,
    /// The person's user in it.
    pub user: UserId,
}

impl Session {
    /// Ends the membership in an organization. The session then acts in the first of the others, if it acted there.
    pub(crate) fn end_membership(&mut self, org: OrgId) {
        self.memberships.retain(|membership| membership.org != org);
        if self.user().is_none()
            && let Some(first) = self.memberships.first()
        {
            self.chosen = first.org;
        }
    }

    /// The person's user in the chosen organization.
    pub fn user(&self) -> Option<UserId> {
        self.memberships.iter().find(|membership| membership.org == self.chosen).map(|membership| membership.user)
    }

    /// Returns true when it is valid at this time.
    pub fn is_live(&self, now: Micros) -> bool {
        now < self.valid_until()
    }

    /// The time at which it ends, unless it is used before.
    pub fn valid_until(&self) -> Micros {
        self.expires.min(self.seen.after(self.idle))
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

/// Returns the digest of a user's session quota key. No API key can have it.
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
