//! The table of web sessions.

use askama::Template;

use super::layout::Layout;
use super::paging::Paging;
use super::timestamp::Timestamp;

/// The sessions of the organization, or the user's own.
#[derive(Clone, Debug, Template)]
#[template(path = "sessions.html")]
pub struct SessionsPage {
    /// Page frame.
    pub layout: Layout,
    /// True if the sessions of all users are shown, as admins see them.
    pub all_users: bool,
    /// Sessions of this page.
    pub rows: Vec<SessionRow>,
    /// Links to the other pages.
    pub paging: Paging,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Id.
    pub id: String,
    /// The user's email address.
    pub email: String,
    /// True if it is the session that shows the page.
    pub current: bool,
    /// Time of the sign-in.
    pub signed_in: Timestamp,
    /// Time of the last use, to about a minute.
    pub last_seen: Timestamp,
    /// IP address that the user signed in from.
    pub ip: Option<String>,
    /// User agent that the user signed in with.
    pub user_agent: Option<String>,
    /// Sign-in method: the provider's name, or `Sign-in link`.
    pub provider: String,
}
