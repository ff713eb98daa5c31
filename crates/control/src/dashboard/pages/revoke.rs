//! The form that revokes a key.

use askama::Template;

use super::keys::LastUseCell;
use super::layout::Layout;

/// The form. Field: `name`, which must be the key's name, when the key is in use.
#[derive(Clone, Debug, Template)]
#[template(path = "revoke.html")]
pub struct RevokePage {
    /// Page frame.
    pub layout: Layout,
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address.
    pub owner: String,
    /// Last use; `None` when it was never used.
    pub last_use: Option<LastUseCell>,
    /// True if the name is asked for: the key was used in the last 24 hours, so a program probably needs it.
    pub is_in_use: bool,
    /// Error in the name that was typed.
    pub error: Option<String>,
}
