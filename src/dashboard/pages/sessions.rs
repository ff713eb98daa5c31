//! The table of web sessions.

use askama::Template;

use super::layout::Layout;
use super::paging::Paging;
use super::timestamp::Timestamp;

/// The sessions of the organization, or the person's own.
#[derive(Clone, Debug, Template)]
#[template(path = "sessions.html")]
pub struct SessionsPage {
    /// What is around it.
    pub layout: Layout,
    /// Whether sessions of others are shown too, as admins see them.
    pub all: bool,
    /// The sessions.
    pub rows: Vec<SessionRow>,
    /// Where this page is among all.
    pub paging: Paging,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Its id.
    pub id: String,
    /// The person's email.
    pub email: String,
    /// Whether it is the one that asks.
    pub current: bool,
    /// When the person signed in.
    pub signed_in: Timestamp,
    /// When it was last used.
    pub seen: Timestamp,
    /// The IP address it was made from.
    pub ip: Option<String>,
    /// The browser it was made by.
    pub user_agent: Option<String>,
    /// How the person signed in: the provider's label, or `Sign-in link`.
    pub provider: String,
}
