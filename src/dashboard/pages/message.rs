//! What went wrong, or is in the way: the page that says so, and what to do.

use askama::Template;

use super::frame::Frame;

/// A page that says why there is no other.
#[derive(Clone, Debug, Template)]
#[template(path = "message.html")]
pub struct MessagePage {
    /// What is around it.
    pub frame: Frame,
    /// The status that it goes with.
    pub status: u16,
    /// In a few words.
    pub title: String,
    /// What happened.
    pub happened: String,
    /// What to do.
    pub advice: String,
    /// Where to go on.
    pub back: Back,
    /// The request's id, to be named to whoever can look it up.
    pub request_id: String,
}

/// Where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// The table of keys.
    Keys,
    /// Where to sign in.
    SignIn,
}

impl Back {
    /// Whether it is where to sign in.
    pub fn is_sign_in(self) -> bool {
        self == Self::SignIn
    }
}
