//! The page that shows a new key, once.

use askama::Template;

use super::layout::Layout;
use super::timestamp::Timestamp;
use domain::secret::Secret;

/// A new key in the clear. Besides the page of a new management token the only page with a secret on it.
#[derive(Clone, Debug, Template)]
#[template(path = "new_key.html")]
pub struct NewKeyPage {
    /// Page frame.
    pub layout: Layout,
    /// The operation that issued the secret.
    pub issuance: Issuance,
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address.
    pub owner: String,
    /// The whole key.
    pub api_key: Secret,
    /// A curl command that works, with the whole key in it. May have several lines.
    pub curl_command: Secret,
    /// Programs that make the same request, with the key of `exports`.
    pub programs: [ExampleProgram; 3],
    /// Lines for a shell that put the key and the API's origin into environment variables.
    pub exports: Secret,
    /// The command that revokes the key of `exports`; none where keys do not revoke themselves.
    pub revocation: Option<String>,
    /// True when the operator is told before keys expire.
    pub has_events: bool,
    /// Good practice: a sentence each.
    pub practice: [&'static str; 4],
}

/// A program that makes a request.
#[derive(Clone, Debug)]
pub struct ExampleProgram {
    /// Id of the text on the page.
    pub id: &'static str,
    /// Name of its language.
    pub language: &'static str,
    /// Its text, without the key.
    pub text: String,
}

/// The operation that issued a secret.
#[derive(Clone, Debug)]
pub enum Issuance {
    /// The key was created.
    Created,
    /// The key was rotated. The old secret is valid until this time; `None`: it is not valid any more.
    Rotated(Option<Timestamp>),
}
