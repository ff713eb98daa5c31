//! Management tokens in both variants of the state: their lists, their bounds, and the tokens that a token has made.
//!
//! - A token that is revoked takes with it the tokens that it made, and those that these made. The creation of a token
//!   requires that its creator is not revoked, in one transaction, so that none is missed.
//! - Live tokens count in the bounds. The records of revoked ones give way to new ones, the earliest revoked first.

use std::collections::BTreeSet;

use super::{ActorName, Position, State, Unavailable};
use domain::identity::OrgId;
use domain::management_token::{ManagementToken, TokenId};
use domain::page::Page;

/// Tokens at most: far more than programs that manage one installation, and few enough to be read at once. Of revoked
/// ones as many records are kept as there is room for.
pub const MAX_TOKENS: u32 = 2000;
/// Live tokens of one organization at most.
pub(crate) const MAX_TOKENS_OF_ORG: u32 = 100;

/// Position in a list of tokens.
pub type TokenPosition = Position<TokenId>;

impl From<&ManagementToken> for TokenPosition {
    fn from(token: &ManagementToken) -> Self {
        Self { created: token.created, id: token.id }
    }
}

/// The tokens that a token has made, and those that these have made, live or not.
pub fn descendants<'a>(tokens: impl IntoIterator<Item = &'a ManagementToken>, root: TokenId) -> BTreeSet<TokenId> {
    let made_by = |token: &ManagementToken| ActorName::new(token.created_by.as_str()).token();
    let edges: Vec<_> = tokens.into_iter().filter_map(|token| Some((made_by(token)?, token.id))).collect();
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        let children = edges.iter().filter(|(by, _)| *by == parent).map(|(_, child)| *child);
        next.extend(children.filter(|child| *child != root && found.insert(*child)).collect::<Vec<_>>());
    }
    found
}

/// The token that was revoked first; none when none is revoked.
pub(crate) fn earliest_revoked<'a>(
    tokens: impl IntoIterator<Item = &'a ManagementToken>,
) -> Option<&'a ManagementToken> {
    tokens.into_iter().filter(|token| token.revoked.is_some()).min_by_key(|token| (token.revoked, token.id))
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

#[cfg(test)]
mod tests {
    use super::*;
    use domain::clock::Micros;
    use domain::management_token::{PlainToken, TokenScope};

    fn token(by: Option<&ManagementToken>, revoked: Option<u64>) -> ManagementToken {
        let plain = PlainToken::generate().unwrap();
        ManagementToken {
            id: plain.id(),
            digest: plain.digest(),
            name: "pipeline".into(),
            org: None,
            admin: None,
            scopes: [TokenScope::TokensManage].into(),
            networks: Vec::new(),
            client_san: None,
            created: Micros(1),
            created_by: by.map_or("unix:root(0)".into(), |by| ActorName::of_token(by.id).to_string()),
            expires: Micros(9),
            revoked: revoked.map(Micros),
        }
    }

    #[test]
    fn descendants_are_transitive_and_of_one_token() {
        let root = token(None, None);
        let child = token(Some(&root), Some(3));
        let (grandchild, other) = (token(Some(&child), None), token(None, None));
        let tokens = [token(Some(&other), None), grandchild.clone(), child.clone(), root.clone(), other];
        assert_eq!(descendants(&tokens, root.id), [child.id, grandchild.id].into());
        assert_eq!(descendants(&tokens, grandchild.id), [].into());
    }

    #[test]
    fn token_that_was_revoked_first_gives_way() {
        let tokens = [token(None, Some(5)), token(None, None), token(None, Some(3))];
        assert_eq!(earliest_revoked(&tokens).map(|token| token.id), Some(tokens[2].id));
        assert_eq!(earliest_revoked(&tokens[1..2]), None);
    }
}
