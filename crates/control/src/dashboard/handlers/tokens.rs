//! The table of management tokens, and the form that revokes one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::pages::{
    LastUseCell, NavEntry, Paging, RevokeTokenPage, TokenFacts, TokensPage, UseSource, link,
};
use crate::dashboard::response;
use crate::management;
use crate::management::{ManagementError, Token};
use domain::key::policy::Network;
use domain::management_token::TokenId;
use domain::page::PageLimit;

/// Tokens on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

pub(super) async fn list_tokens(context: &PageContext<'_>) -> HandlerResult {
    let page = context.page_query(PAGE_SIZE);
    let listed =
        management::list_tokens(context.management, &context.actor, Some(&context.org()), &page, context.request.now)
            .await?;
    let path = format!("{}/tokens", context.base);
    let paging =
        Paging::new(page.cursor.as_deref(), listed.next.as_deref(), |cursor: &str| link(&path, &[("cursor", cursor)]));
    let rows = listed.items.iter().map(|token| token_facts(context, token)).collect();
    let layout = context.layout(NavEntry::Tokens).await?;
    render(&TokensPage { layout, rows, paging })
}

/// A token as pages show it.
pub(super) fn token_facts(context: &PageContext<'_>, token: &Token) -> TokenFacts {
    TokenFacts {
        id: token.id.to_string(),
        name: token.name.clone(),
        status: token.status,
        scopes: token.allow.iter().map(|scope| scope.as_str()).collect(),
        networks: token.networks.iter().map(Network::to_string).collect(),
        client_san: token.client_san.clone(),
        created: context.timestamp(token.created),
        created_by: token.created_by.label(),
        expires: context.timestamp(token.expires),
        last_use: token.last_use.as_ref().map(|last| LastUseCell {
            time: context.timestamp(last.time),
            source: Some(UseSource {
                ip: last.ip.map(|ip| ip.to_string()).unwrap_or_default(),
                user_agent: last.user_agent.clone(),
            }),
            not_recorded: "",
        }),
    }
}

/// Asks before a token is revoked. One that is refused for good leads to the list.
pub(super) async fn show_revoke_token(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let token = management::show_token(context.management, &context.actor, token_id(id)?, context.request.now).await?;
    if !token.status.is_revocable() {
        return Ok(response::see_other(&format!("{}/tokens", context.base)));
    }
    render(&RevokeTokenPage { layout: context.layout(NavEntry::Tokens).await?, facts: token_facts(context, &token) })
}

pub(super) async fn revoke_token(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let with_descendants = !context.request.form().field("descendants").is_empty();
    management::revoke_token(context.management, &context.actor, token_id(id)?, with_descendants, context.request.now)
        .await?;
    Ok(response::see_other(&format!("{}/tokens?done=revoked-token", context.base)))
}

/// The token id in a path.
pub(super) fn token_id(segment: &str) -> Result<TokenId, ManagementError> {
    segment.parse().map_err(|_| ManagementError::NotFound)
}
