//! The page that shows a new management token, once.

use askama::Template;

use super::layout::Layout;
use super::tokens::TokenFacts;
use domain::secret::Secret;

/// A new management token in the clear. Besides the page of a new key the only page with a secret on it.
#[derive(Clone, Debug, Template)]
#[template(path = "new_token.html")]
pub struct NewTokenPage {
    /// Page frame.
    pub layout: Layout,
    /// The token without its secret.
    pub facts: TokenFacts,
    /// The whole token.
    pub token: Secret,
}
