//! The table of web sessions.

use askama::Template;

use super::frame::Frame;
use super::paging::Paging;
use super::when::When;

/// The sessions of the organization, or the person's own.
#[derive(Clone, Debug, Template)]
#[template(path = "sessions.html")]
pub struct SessionsPage {
    /// What is around it.
    pub frame: Frame,
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
    pub signed_in: When,
    /// When it was last used.
    pub seen: When,
    /// The IP address it was made from.
    pub ip: Option<String>,
    /// The browser it was made by.
    pub user_agent: Option<String>,
    /// How the person signed in: the provider's label, or `Sign-in link`.
    pub provider: String,
}
