//! A new key, shown once.

use askama::Template;

use super::layout::Layout;
use super::timestamp::Timestamp;
use crate::secret::Secret;

/// A new key in the clear. The only page with a secret on it.
#[derive(Clone, Debug, Template)]
#[template(path = "new_key.html")]
pub struct NewKeyPage {
    /// What is around it.
    pub layout: Layout,
    /// How it came to be.
    pub made: Issuance,
    /// The key id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The owner's email.
    pub owner: String,
    /// The whole key.
    pub api_key: Secret,
    /// A command that works, with the whole key in it; it may have several lines.
    pub curl: Secret,
}

/// How a secret came to be.
#[derive(Clone, Debug)]
pub enum Issuance {
    /// With the key.
    Created,
    /// In place of another, which works until then; none: it works no longer.
    Rotated(Option<Timestamp>),
}
