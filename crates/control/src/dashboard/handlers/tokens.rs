//! The table of management tokens, and the form that revokes one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{NavEntry, Paging, RevokeTokenPage, TokenFacts, TokensPage, link};
use crate::dashboard::response;
use crate::management::Token;
use domain::key::policy::Network;
use domain::management_token::TokenId;
use domain::page::PageLimit;

/// Tokens on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

impl PageContext<'_> {
    pub(super) async fn list_tokens(&self) -> HandlerResult {
        let page = self.page_query(PAGE_SIZE);
        let listed = self.management.list_tokens(&self.actor, Some(&self.org()), &page, self.request.now).await?;
        let path = format!("{}/tokens", self.base);
        let paging = Paging::new(page.cursor.as_deref(), listed.next.as_deref(), |cursor: &str| {
            link(&path, &[("cursor", cursor)])
        });
        let rows = listed.items.iter().map(|token| self.token_facts(token)).collect();
        let layout = self.layout(NavEntry::Tokens).await?;
        render(&TokensPage { layout, rows, paging })
    }

    /// A token as pages show it.
    pub(super) fn token_facts(&self, token: &Token) -> TokenFacts {
        TokenFacts {
            id: token.id.to_string(),
            name: token.name.clone(),
            status: token.status,
            scopes: token.allow.iter().map(|scope| scope.as_str()).collect(),
            networks: token.networks.iter().map(Network::to_string).collect(),
            client_san: token.client_san.clone(),
            created: self.timestamp(token.created),
            created_by: token.created_by.label(),
            expires: self.timestamp(token.expires),
        }
    }

    /// Asks before a token is revoked. One that is refused for good leads to the list.
    pub(super) async fn show_revoke_token(&self, id: &str) -> HandlerResult {
        let token = self.management.show_token(&self.actor, Self::token_id(id)?, self.request.now).await?;
        if !token.status.is_revocable() {
            return Ok(response::see_other(&format!("{}/tokens", self.base)));
        }
        render(&RevokeTokenPage { layout: self.layout(NavEntry::Tokens).await?, facts: self.token_facts(&token) })
    }

    pub(super) async fn revoke_token(&self, id: &str) -> HandlerResult {
        let with_descendants = !self.request.form().field("descendants").is_empty();
        self.management.revoke_token(&self.actor, Self::token_id(id)?, with_descendants, self.request.now).await?;
        Ok(response::see_other(&format!("{}/tokens?done=revoked-token", self.base)))
    }

    /// The token id in a path.
    pub(super) fn token_id(segment: &str) -> Result<TokenId, DashboardError> {
        segment.parse().map_err(|_| DashboardError::NotFound)
    }
}
