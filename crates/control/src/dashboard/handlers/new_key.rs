//! The page that shows a new key, once, and the redirect to it (POST/redirect/GET): a reload repeats neither the
//! creation nor the rotation.
//!
//! The key comes in a cookie, sealed for this session and this key ([`KeySealer`]). The response that shows it deletes
//! the cookie: when it is lost on its way, the browser still has the cookie, and a reload shows the key.

use super::{HandlerResult, PageContext, UNCONFIRMED, render};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{Issuance, NavEntry, NewKeyPage, link};
use crate::dashboard::response;
use crate::management::{ApiKey, Explanation, GoodPractice, KeySealer, NewKey, SEALED_KEY_LIFETIME};
use domain::key::KeyId;
use domain::secret::Secret;
use domain::session::{self, NEW_KEY_COOKIE_PREFIX};

impl PageContext<'_> {
    /// Redirects to the page that shows a new key, and has the browser carry the key there.
    pub(super) fn lead_to_new_key(&self, sealer: &KeySealer, new: &NewKey) -> HandlerResult {
        let sealed = sealer.seal(new, self.request.now)?;
        let done = if new.warning.is_some() { UNCONFIRMED } else { "" };
        let redirect = response::see_other(&link(&format!("{}/keys/{}/new", self.base, new.key.id), &[("done", done)]));
        let lifetime = SEALED_KEY_LIFETIME.as_secs();
        Ok(response::with_sealed_key(redirect, &cookie_name(new.key.id), &sealed, lifetime))
    }

    /// The only page that shows a key in the clear. When there is no key to show, redirects to the page of the key.
    pub(super) async fn show_new_key(&self, id: &str) -> HandlerResult {
        let explanation = self.management.explain_key(&self.actor, Self::key_id(id)?, self.request.now).await?;
        let id = explanation.key.id;
        let cookie = cookie_name(id);
        let sealer = self.management.key_sealer(self.user).await?;
        let sealed = session::cookie_value(&self.request.headers, &cookie).and_then(|value| str::from_utf8(value).ok());
        let Some(api_key) = sealed.and_then(|sealed| sealer.open(&explanation.key, sealed, self.request.now)) else {
            return Ok(response::see_other(&format!("{}/keys/{id}?done=shown", self.base)));
        };
        let page = render(&self.new_key_page(explanation, &api_key).await?)?;
        // The response to HEAD shows nothing.
        Ok(if self.request.is_head() { page } else { response::without_sealed_key(page, &cookie) })
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
}

fn cookie_name(id: KeyId) -> String {
    format!("{NEW_KEY_COOKIE_PREFIX}{id}")
}
