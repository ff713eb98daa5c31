//! What went wrong, or is in the way: the page that says so, and what to do.

use askama::Template;

use super::layout::Layout;

/// A page that says why there is no other.
#[derive(Clone, Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    /// What is around it.
    pub layout: Layout,
    /// The status that it goes with.
    pub status: u16,
    /// In a few words.
    pub title: String,
    /// What happened.
    pub happened: String,
    /// What to do.
    pub advice: String,
    /// Where to go on.
    pub back: NextStep,
    /// The request's id, to be named to whoever can look it up.
    pub request_id: String,
}

/// Where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The table of keys.
    Keys,
    /// Where to sign in.
    SignIn,
}

impl NextStep {
    /// Whether it is where to sign in.
    pub fn is_sign_in(self) -> bool {
        self == Self::SignIn
    }
}
