//! The table of management tokens, the page that shows a new one, once, and the form that revokes one.

use askama::Template;

use super::keys::LastUseCell;
use super::layout::Layout;
use super::paging::Paging;
use super::timestamp::Timestamp;
use crate::management::TokenStatus;
use domain::secret::Secret;

/// The management tokens of the organization, for admins.
#[derive(Clone, Debug, Template)]
#[template(path = "tokens.html")]
pub struct TokensPage {
    /// Page frame.
    pub layout: Layout,
    /// Tokens of this page.
    pub rows: Vec<TokenFacts>,
    /// Links to the other pages.
    pub paging: Paging,
}

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

/// The form that revokes a token. Its field `descendants` ends the keys and rules that the token made as well.
#[derive(Clone, Debug, Template)]
#[template(path = "revoke_token.html")]
pub struct RevokeTokenPage {
    /// Page frame.
    pub layout: Layout,
    /// The token.
    pub facts: TokenFacts,
}

/// A management token, without its secret.
#[derive(Clone, Debug)]
pub struct TokenFacts {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
    /// Status: calls with it are accepted, or why not.
    pub status: TokenStatus,
    /// Operations that it may perform.
    pub scopes: Vec<&'static str>,
    /// Networks from which it is accepted; empty: any.
    pub networks: Vec<String>,
    /// Name that the client's certificate has to have.
    pub client_san: Option<String>,
    /// Time of creation.
    pub created: Timestamp,
    /// Creator: an email address, a token, or the operator.
    pub created_by: String,
    /// Time from which it is refused.
    pub expires: Timestamp,
    /// Its last use.
    pub last_use: Option<LastUseCell>,
}
