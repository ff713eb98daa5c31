//! The pages that show a new key or a new management token, once, and the redirect to them (POST/redirect/GET): a
//! reload repeats neither the creation nor the rotation.
//!
//! The secret comes in a cookie, sealed for this session and this key or token ([`KeySealer`]). The response that shows
//! it deletes the cookie: when it is lost on its way, the browser still has the cookie, and a reload shows the secret.

use std::fmt::Display;

use super::{HandlerResult, PageContext, UNCONFIRMED, render};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{Issuance, NavEntry, NewKeyPage, NewTokenPage, link};
use crate::dashboard::response::{self, DashboardResponse};
use crate::management::{ApiKey, Explanation, GoodPractice, KeySealer, NewKey, NewToken, SEALED_KEY_LIFETIME};
use domain::secret::Secret;
use domain::session::{self, NEW_KEY_COOKIE_PREFIX};

impl PageContext<'_> {
    /// Redirects to the page that shows a new key, and has the browser carry the key there.
    pub(super) fn lead_to_new_key(&self, sealer: &KeySealer, new: &NewKey) -> HandlerResult {
        let sealed = sealer.seal(new, self.request.now)?;
        let done = if new.warning.is_some() { UNCONFIRMED } else { "" };
        let page = link(&format!("{}/keys/{}/new", self.base, new.key.id), &[("done", done)]);
        Ok(lead_to_secret(&page, new.key.id, &sealed))
    }

    /// Redirects to the page that shows a new management token, and has the browser carry the token there.
    pub(super) fn lead_to_new_token(&self, sealer: &KeySealer, new: &NewToken) -> HandlerResult {
        let sealed = sealer.seal_token(new, self.request.now)?;
        Ok(lead_to_secret(&format!("{}/tokens/{}/new", self.base, new.token.id), new.token.id, &sealed))
    }

    /// The only page that shows a key in the clear. When there is no key to show, redirects to the page of the key.
    pub(super) async fn show_new_key(&self, id: &str) -> HandlerResult {
        let explanation = self.management.explain_key(&self.actor, Self::key_id(id)?, self.request.now).await?;
        let id = explanation.key.id;
        let sealer = self.management.key_sealer(self.user).await?;
        let opened = self.carried(id).and_then(|sealed| sealer.open(&explanation.key, sealed, self.request.now));
        let Some(api_key) = opened else {
            return Ok(response::see_other(&format!("{}/keys/{id}?done=shown", self.base)));
        };
        let page = render(&self.new_key_page(explanation, &api_key).await?)?;
        Ok(self.without_carried(page, id))
    }

    /// The only page that shows a management token in the clear. When there is none to show, redirects to the list.
    pub(super) async fn show_new_token(&self, id: &str) -> HandlerResult {
        let token = self.management.show_token(&self.actor, Self::token_id(id)?, self.request.now).await?;
        let id = token.id;
        let sealer = self.management.key_sealer(self.user).await?;
        let Some(secret) = self.carried(id).and_then(|sealed| sealer.open_token(id, sealed, self.request.now)) else {
            return Ok(response::see_other(&format!("{}/tokens?done=shown-token", self.base)));
        };
        let page = render(&NewTokenPage {
            layout: self.layout(NavEntry::Tokens).await?,
            facts: self.token_facts(&token),
            token: Secret::new(secret.expose().to_owned()),
        })?;
        Ok(self.without_carried(page, id))
    }

    async fn new_key_page(&self, explanation: Explanation, api_key: &ApiKey) -> Result<NewKeyPage, DashboardError> {
        let Explanation { key, user: owner, .. } = explanation;
        // The example is a request that the key is permitted to make.
        let permissions = key.policy.effective_permissions(&owner.permissions);
        let curl_command = self.curl_examples.command_for(&permissions, api_key.expose());
        let issuance = match key.rotated {
            None => Issuance::Created,
            Some(_) => Issuance::Rotated(self.overlap_end(&key)),
        };
        Ok(NewKeyPage {
            layout: self.layout(NavEntry::Keys).await?,
            issuance,
            id: key.id.to_string(),
            name: key.name,
            owner: key.email,
            api_key: Secret::new(api_key.expose().to_owned()),
            curl_command: Secret::new(curl_command),
            exports: Secret::new(GoodPractice::exports(api_key.expose(), &self.curl_examples.origin)),
            practice: GoodPractice::LINES,
        })
    }

    /// The sealed secret of a key or token that the browser carries.
    fn carried(&self, id: impl Display) -> Option<&str> {
        let value = session::cookie_value(&self.request.headers, &cookie_name(id))?;
        str::from_utf8(value).ok()
    }

    /// Deletes the cookie with the page that shows the secret. The response to HEAD shows nothing.
    fn without_carried(&self, page: DashboardResponse, id: impl Display) -> DashboardResponse {
        if self.request.is_head() { page } else { response::without_sealed_key(page, &cookie_name(id)) }
    }
}

fn lead_to_secret(page: &str, id: impl Display, sealed: &str) -> DashboardResponse {
    response::with_sealed_key(response::see_other(page), &cookie_name(id), sealed, SEALED_KEY_LIFETIME.as_secs())
}

/// Name of the cookie. Ids of keys and of tokens differ in their length.
fn cookie_name(id: impl Display) -> String {
    format!("{NEW_KEY_COOKIE_PREFIX}{id}")
}
