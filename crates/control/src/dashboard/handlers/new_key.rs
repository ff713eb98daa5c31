//! The pages that show a new key or a new management token, once, and the redirect to them (POST/redirect/GET): a
//! reload repeats neither the creation nor the rotation.
//!
//! The secret comes in a cookie, sealed for this session and this key or token ([`KeySealer`]). The response that shows
//! it deletes the cookie: when it is lost on its way, the browser still has the cookie, and a reload shows the secret.

use std::fmt::Display;

use super::{HandlerResult, PageContext, UNCONFIRMED, key, key_id, render, tokens};
use crate::dashboard::pages::{Issuance, NavEntry, NewKeyPage, NewTokenPage, link};
use crate::dashboard::response::{self, DashboardResponse};
use crate::management;
use crate::management::{
    ApiKey, Explanation, GoodPractice, KeySealer, ManagementError, NewKey, NewToken, SEALED_KEY_LIFETIME,
};
use domain::secret::Secret;
use domain::session::{self, NEW_KEY_COOKIE_PREFIX};

/// Redirects to the page that shows a new key, and has the browser carry the key there.
pub(super) fn lead_to_new_key(context: &PageContext<'_>, sealer: &KeySealer, new: &NewKey) -> HandlerResult {
    let sealed = sealer.seal(new, context.request.now)?;
    let done = if new.warning.is_some() { UNCONFIRMED } else { "" };
    let page = link(&format!("{}/keys/{}/new", context.base, new.key.id), &[("done", done)]);
    Ok(lead_to_secret(&page, new.key.id, &sealed))
}

/// Redirects to the page that shows a new management token, and has the browser carry the token there.
pub(super) fn lead_to_new_token(context: &PageContext<'_>, sealer: &KeySealer, new: &NewToken) -> HandlerResult {
    let sealed = sealer.seal_token(new, context.request.now)?;
    Ok(lead_to_secret(&format!("{}/tokens/{}/new", context.base, new.token.id), new.token.id, &sealed))
}

/// The only page that shows a key in the clear. When there is no key to show, redirects to the page of the key.
pub(super) async fn show_new_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let explanation =
        management::explain_key(context.management, &context.actor, key_id(id)?, context.request.now).await?;
    let id = explanation.key.id;
    let sealer = management::key_sealer(context.management, context.user).await?;
    let opened = carried(context, id).and_then(|sealed| sealer.open(&explanation.key, sealed, context.request.now));
    let Some(api_key) = opened else {
        return Ok(response::see_other(&format!("{}/keys/{id}?done=shown", context.base)));
    };
    let page = render(&new_key_page(context, explanation, &api_key).await?)?;
    Ok(without_carried(context, page, id))
}

/// The only page that shows a management token in the clear. When there is none to show, redirects to the list.
pub(super) async fn show_new_token(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let token =
        management::show_token(context.management, &context.actor, tokens::token_id(id)?, context.request.now).await?;
    let id = token.id;
    let sealer = management::key_sealer(context.management, context.user).await?;
    let Some(secret) = carried(context, id).and_then(|sealed| sealer.open_token(id, sealed, context.request.now))
    else {
        return Ok(response::see_other(&format!("{}/tokens?done=shown-token", context.base)));
    };
    let page = render(&NewTokenPage {
        layout: context.layout(NavEntry::Tokens).await?,
        facts: tokens::token_facts(context, &token),
        token: Secret::new(secret.expose().to_owned()),
    })?;
    Ok(without_carried(context, page, id))
}

async fn new_key_page(
    context: &PageContext<'_>,
    explanation: Explanation,
    api_key: &ApiKey,
) -> Result<NewKeyPage, ManagementError> {
    let Explanation { key, user: owner, .. } = explanation;
    // The example is a request that the key is permitted to make.
    let permissions = key.policy.effective_permissions(&owner.permissions);
    let example = context.request_examples.request_for(&permissions);
    let issuance = match key.rotated {
        None => Issuance::Created,
        Some(_) => Issuance::Rotated(key::overlap_end(context, &key)),
    };
    Ok(NewKeyPage {
        layout: context.layout(NavEntry::Keys).await?,
        issuance,
        id: key.id.to_string(),
        name: key.name,
        owner: key.email,
        api_key: Secret::new(api_key.expose().to_owned()),
        curl_command: Secret::new(example.curl(api_key.expose())),
        programs: example.programs(),
        has_events: context.request_examples.has_events,
        exports: Secret::new(GoodPractice::exports(api_key.expose(), &context.request_examples.origin)),
        revocation: context.request_examples.revocation(GoodPractice::VARIABLE),
        practice: GoodPractice::LINES,
    })
}

/// The sealed secret of a key or token that the browser carries.
fn carried<'a>(context: &'a PageContext<'_>, id: impl Display) -> Option<&'a str> {
    let value = session::cookie_value(&context.request.headers, &cookie_name(id))?;
    str::from_utf8(value).ok()
}

/// Deletes the cookie with the page that shows the secret. The response to HEAD shows nothing.
fn without_carried(context: &PageContext<'_>, page: DashboardResponse, id: impl Display) -> DashboardResponse {
    if context.request.is_head() { page } else { response::without_sealed_key(page, &cookie_name(id)) }
}

fn lead_to_secret(page: &str, id: impl Display, sealed: &str) -> DashboardResponse {
    response::with_sealed_key(response::see_other(page), &cookie_name(id), sealed, SEALED_KEY_LIFETIME.as_secs())
}

/// Name of the cookie. Ids of keys and of tokens differ in their length.
fn cookie_name(id: impl Display) -> String {
    format!("{NEW_KEY_COOKIE_PREFIX}{id}")
}
