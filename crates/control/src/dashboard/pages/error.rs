//! The error page.

use askama::Template;

use super::layout::Layout;

/// An error page.
#[derive(Clone, Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    /// Page frame.
    pub layout: Layout,
    /// Status of the response.
    pub status: u16,
    /// A few words, as a heading.
    pub title: String,
    /// Description of the error.
    pub description: String,
    /// Advice.
    pub advice: String,
    /// The page that the button leads to.
    pub next: NextStep,
    /// Request id, which the operator finds in the log.
    pub request_id: String,
}

/// The page that the button of an error page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The table of keys.
    Keys,
    /// The sign-in page.
    SignIn,
}

impl NextStep {
    /// Returns `true` if it is the sign-in page.
    pub fn is_sign_in(self) -> bool {
        self == Self::SignIn
    }
}
