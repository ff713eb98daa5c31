//! The last question before a key is revoked.

use askama::Template;

use super::frame::Frame;
use super::keys::LastUse;

/// The question: field `name`, which is to be the key's.
#[derive(Clone, Debug, Template)]
#[template(path = "revoke.html")]
pub struct RevokePage {
    /// What is around it.
    pub frame: Frame,
    /// The key id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The owner's email.
    pub owner: String,
    /// Its last use; none when it was never used.
    pub last_use: Option<LastUse>,
    /// What is wrong with what was typed.
    pub error: Option<String>,
}
