//! The last question before a key is revoked.

use askama::Template;

use super::keys::LastUseCell;
use super::layout::Layout;

/// The question: field `name`, which is to be the key's.
#[derive(Clone, Debug, Template)]
#[template(path = "revoke.html")]
pub struct RevokePage {
    /// What is around it.
    pub layout: Layout,
    /// The key id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The owner's email.
    pub owner: String,
    /// Its last use; none when it was never used.
    pub last_use: Option<LastUseCell>,
    /// What is wrong with what was typed.
    pub error: Option<String>,
}
