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
    /// Whether the sessions of all users are shown, as admins see them.
    pub all_users: bool,
    /// Sessions of this page.
    pub rows: Vec<SessionRow>,
    /// Position of this page among all.
    pub paging: Paging,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Id.
    pub id: String,
    /// The user's email address.
    pub email: String,
    /// Whether it is the session that shows the page.
    pub current: bool,
    /// When the user signed in.
    pub signed_in: Timestamp,
    /// When it was last used.
    pub last_seen: Timestamp,
    /// IP address that the user signed in from.
    pub ip: Option<String>,
    /// User agent that the user signed in with.
    pub user_agent: Option<String>,
    /// How the user signed in: the provider's name, or `Sign-in link`.
    pub provider: String,
}
