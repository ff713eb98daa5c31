//! Lists of management tokens, in both variants of the state.

use super::{Position, State, Unavailable};
use domain::identity::OrgId;
use domain::management_token::{ManagementToken, TokenId};
use domain::page::Page;

/// Tokens at most, revoked ones that have not expired included: far more than programs that manage one installation,
/// and few enough to be read at once.
pub const MAX_TOKENS: u32 = 2000;
/// The same, of one organization.
pub(crate) const MAX_TOKENS_OF_ORG: u32 = 100;

/// Position in a list of tokens.
pub type TokenPosition = Position<TokenId>;

impl From<&ManagementToken> for TokenPosition {
    fn from(token: &ManagementToken) -> Self {
        Self { created: token.created, id: token.id }
    }
}

impl State {
    /// Some tokens behind a position, none for the beginning, oldest first; those of one organization, or all. At most
    /// `limit`, at least 1. Revoked and expired ones are listed until another token is created after their expiry.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn page_of_management_tokens(
        &self,
        org: Option<OrgId>,
        after: Option<TokenPosition>,
        limit: usize,
    ) -> Result<Page<ManagementToken, TokenPosition>, Unavailable> {
        let mut tokens = self.management_tokens().await?;
        tokens.retain(|token| {
            org.is_none_or(|org| token.org == Some(org)) && after.is_none_or(|after| TokenPosition::from(token) > after)
        });
        tokens.sort_unstable_by_key(|token| TokenPosition::from(token));
        Ok(Page::cut(tokens, limit, |token| token.into()))
    }
}
