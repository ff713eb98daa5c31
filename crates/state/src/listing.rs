//! Lists of the directory, a page at a time, in both variants of the state.
//!
//! - Organizations and users are listed in the order of their creation. None is ever taken from its list, so a position
//!   is the number of entries before it.
//! - Keys are listed by creation time, and keys of one time by id. A position is the time and the id of a key, whether
//!   or not that key is still listed.
//! - A walk over all pages returns each entry that is listed all the while exactly once, whatever is added or removed
//!   meanwhile. A page costs reading its own entries, however long the list is.

use std::fmt;
use std::str::FromStr;

use super::{Key, Membership, Session, State, Unavailable};
use domain::clock::Micros;
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::KeyId;
use domain::page::Page;

/// Position in a list of keys or sessions: behind the one with this creation time and id. Text form `CREATED-ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position<I> {
    /// Time of creation.
    pub created: Micros,
    /// Id of the key or session.
    pub id: I,
}

/// Position in a list of keys.
pub type KeyPosition = Position<KeyId>;
/// Position in a list of sessions.
pub type SessionPosition = Position<SessionId>;

/// Error: the text is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a position of the form CREATED-ID")]
pub struct InvalidPosition;

/// The list of keys to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyList {
    /// Organization of the keys.
    pub org: OrgId,
    /// The only user whose keys are listed; none for those of all users.
    pub owner: Option<UserId>,
    /// True to begin with the newest key, false to begin with the oldest.
    pub newest_first: bool,
}

/// The list of sessions to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionList {
    /// Organization whose members' sessions are listed; none for all sessions.
    pub org: Option<OrgId>,
    /// The only user whose sessions are listed; none for those of all users.
    pub owner: Option<UserId>,
    /// True to begin with the newest session, false to begin with the oldest.
    pub newest_first: bool,
}

impl<I: fmt::Display> fmt::Display for Position<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.created.0, self.id)
    }
}

impl<I: FromStr> FromStr for Position<I> {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (created, id) = text.split_once('-').ok_or(InvalidPosition)?;
        let created = created.parse().map(Micros).map_err(|_| InvalidPosition)?;
        Ok(Self { created, id: id.parse().map_err(|_| InvalidPosition)? })
    }
}

impl From<&Key> for KeyPosition {
    fn from(key: &Key) -> Self {
        Self { created: key.created, id: key.id }
    }
}

impl From<&Session> for SessionPosition {
    fn from(session: &Session) -> Self {
        Self { created: session.created, id: session.id }
    }
}

impl SessionList {
    /// The page of all live sessions, oldest first, that begins behind a position.
    fn select(
        self,
        mut live: Vec<Session>,
        after: Option<SessionPosition>,
        limit: usize,
    ) -> Page<Session, SessionPosition> {
        if self.newest_first {
            live.reverse();
        }
        let is_behind = |position: SessionPosition| {
            after.is_none_or(|after| if self.newest_first { position < after } else { position > after })
        };
        let is_listed = |membership: &Membership| {
            self.org.is_none_or(|org| org == membership.org) && self.owner.is_none_or(|owner| owner == membership.user)
        };
        live.retain(|session| is_behind(session.into()) && session.memberships.iter().any(is_listed));
        Page::cut(live, limit, |session| session.into())
    }
}

impl State {
    /// Some live sessions of a list behind a position, none for its beginning; at most `limit`, at least 1. The look-up
    /// does not count as a use.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn page_of_sessions(
        &self,
        list: SessionList,
        after: Option<SessionPosition>,
        limit: usize,
        now: Micros,
    ) -> Result<Page<Session, SessionPosition>, Unavailable> {
        let sessions = match list.org {
            Some(org) => self.sessions_of_org(org, now).await?,
            None => self.sessions(now).await?,
        };
        Ok(list.select(sessions, after, limit))
    }
}
