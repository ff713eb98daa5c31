//! Signing in by an identity provider (OpenID Connect).
//!
//! A pending sign-in is stored as a ticket under the SHA-256 of its `state`, and taken when the browser comes back.
//!
//! - It is valid once: a replayed callback finds no ticket.
//! - It is valid in the browser that began it, which holds a cookie (login CSRF, stolen `state`), and for the provider
//!   that it began with (mix-up attacks).
//! - The cookie is the browser's, and the ticket is the sign-in's: each tab signs in by itself, and one that fails
//!   leaves the others.
//! - It starts a new session with a new token, whatever cookie the browser had when it began (session fixation). Only
//!   a session that the same person has got since, by another tab, stays.
//! - A callback that cannot sign in, such as one that is reloaded, leads a browser with a live session on.

use std::time::Duration;

use askama::Template as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::HandlerResult;
use super::sign_in::log_refusal;
use crate::dashboard::Dashboard;
use crate::dashboard::claim_mapping::ClaimMapping;
use crate::dashboard::pages::{Layout, LeavingPage};
use crate::dashboard::response;
use crate::management;
use crate::management::{ManagementError, ProviderSignIn, SignedInUser};
use crate::oidc::{self, AuthorizationResponse, Prompt};
use crate::request::ControlRequest;
use domain::clock::Micros;
use domain::identity::{PersonId, Voucher};
use domain::session::{self, Token, TokenDigest};

/// Time that a user may take to sign in at the provider.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Cookies of sign-ins that a browser keeps; a tab that has none adds one. 16 of 75 bytes leave room in its requests.
const MAX_SIGN_IN_COOKIES: usize = 16;

/// A pending sign-in, as its ticket stores it.
#[derive(Serialize, Deserialize)]
struct PendingSignIn {
    /// Name of the provider.
    provider: String,
    /// Base64url of the SHA-256 of the cookie of the browser that began it.
    browser: String,
    /// Path to go to after signing in.
    return_to: String,
    /// True if the provider was not to ask the user for anything.
    #[serde(default)]
    silent: bool,
    /// Time at which it began. A ticket of an older version has none: no session is newer than it.
    #[serde(default = "latest")]
    begun: Micros,
    oidc: oidc::PendingAuthorization,
}

impl Dashboard {
    /// The redirect URI of a provider. Each has its own, so that no provider can respond for another (RFC 9700, section
    /// 2.1).
    fn redirect_uri(&self, provider: &str) -> String {
        format!("{}/callback/{provider}", self.settings.url())
    }

    /// Begins a sign-in by the button of a provider.
    pub(super) async fn begin_sign_in(&self, request: &ControlRequest, name: &str) -> HandlerResult {
        self.providers.find(name).ok_or(ManagementError::NotFound)?;
        self.count_attempt(request)?;
        let return_to = self.resolve_return_to(request.form().field("return_to"));
        let leaving = self.lead_to_provider(request, name, &return_to, Prompt::AsNeeded).await;
        leaving.map_err(|error| match error {
            error if error.provider_error().is_some() => log_refusal(request, name, error),
            error => error,
        })
    }

    /// Stores a pending sign-in, binds it to the browser by its cookie, and leads to the provider.
    pub(super) async fn lead_to_provider(
        &self,
        request: &ControlRequest,
        name: &str,
        return_to: &str,
        prompt: Prompt,
    ) -> HandlerResult {
        let (provider, _) = self.providers.find(name).ok_or(ManagementError::NotFound)?;
        let redirect_uri = self.redirect_uri(name);
        let authorization = provider.begin_sign_in(&redirect_uri, prompt, request.now).await?;
        let mut cookies: Vec<(&str, Token)> = session::sign_in_cookies(&request.headers).collect();
        let browser = cookies.pop().map_or_else(Token::generate, |(_, token)| Ok(token));
        let browser = browser.map_err(ManagementError::PageRandomness)?;
        let pending = PendingSignIn {
            provider: name.to_owned(),
            browser: encode(&browser.digest()),
            return_to: return_to.to_owned(),
            silent: prompt == Prompt::Never,
            begun: request.now,
            oidc: authorization.pending,
        };
        let content = serde_json::to_vec(&pending).expect("texts are JSON");
        let expires = request.now.after(SIGN_IN_TIMEOUT);
        let digest = authorization.state.digest();
        management::store_pending_sign_in(&self.management, digest, content, expires, &request.client).await?;
        // A page, not a redirect: browsers apply `form-action 'self'` to redirects of forms as well.
        let page = LeavingPage {
            layout: Layout::without_viewer(&self.settings.path),
            label: provider.settings().label.clone(),
            url: authorization.url,
            signing_out: false,
        };
        let page = response::page(StatusCode::OK, page.render()?);
        let page = response::with_sign_in_cookie(page, &browser, SIGN_IN_TIMEOUT.as_secs());
        // Tabs that began at once have left several. The oldest go first.
        let surplus = cookies.len().saturating_sub(MAX_SIGN_IN_COOKIES - 1);
        Ok(cookies.iter().take(surplus).fold(page, |page, (name, _)| response::without_sign_in_cookie(page, name)))
    }

    /// Handles the callback from the provider: verifies its response, and starts a session for the user that it names.
    /// The browser's cookie stays: other tabs may be signing in.
    pub(super) async fn finish_sign_in(&self, request: &ControlRequest, name: &str) -> HandlerResult {
        let (provider, mapping) = self.providers.find(name).ok_or(ManagementError::NotFound)?;
        let pending = match self.take_pending(request, name).await {
            Ok(pending) => pending,
            Err(error) => return self.refuse_callback(request, name, error).await,
        };
        match self.finish_pending(request, (provider, mapping), &pending).await {
            Ok(redirect) => Ok(redirect),
            // Mostly the user has no session there. Who then presses the button sees what else is wrong.
            Err(error) if pending.silent => {
                tracing::debug!(request_id = %request.id, provider = name, reason = error.reason(),
                    "no silent sign-in");
                self.redirect_after_try(&pending.return_to)
            }
            Err(error) => {
                // An error about the person who signed in at the provider is shown also in a browser with a session.
                let may_lead_on = error.provider_error().is_some();
                let error = log_refusal(request, name, error);
                if may_lead_on && self.live_user(request).await.is_some() {
                    return Ok(response::see_other(&self.resolve_return_to(&pending.return_to)));
                }
                Err(error)
            }
        }
    }

    /// Refuses a callback without a pending sign-in of this browser. A browser with a live session goes on: the
    /// callback was reloaded, or another tab was first.
    async fn refuse_callback(&self, request: &ControlRequest, provider: &str, error: ManagementError) -> HandlerResult {
        if error.is_of_callback() && self.live_user(request).await.is_some() {
            tracing::debug!(request_id = %request.id, provider, reason = error.reason(), "callback, already signed in");
            return Ok(response::see_other(&self.resolve_return_to("")));
        }
        Err(self.count_failure(request, provider, error))
    }

    /// The user of the request's session, where it has a live one.
    pub(super) async fn live_user(&self, request: &ControlRequest) -> Option<SignedInUser> {
        self.user(request).await.ok().flatten()
    }

    /// Verifies the response to a pending sign-in, and starts the session.
    async fn finish_pending(
        &self,
        request: &ControlRequest,
        (provider, mapping): (&oidc::Provider, &ClaimMapping),
        pending: &PendingSignIn,
    ) -> HandlerResult {
        let name = &pending.provider;
        let response = AuthorizationResponse::parse(&request.query_text)?;
        let verified = provider.finish_sign_in(&pending.oidc, &self.redirect_uri(name), &response, request.now).await;
        let verified = verified?;
        let person = PersonId::from_subject(&provider.settings().issuer, &verified.subject);
        let vouched_by = Voucher { provider: name.clone(), person };
        let email = mapping.email(&verified.claims);
        let entitlements = mapping.entitlements(&verified.claims);
        // Before anything can refuse the sign-in: what the provider no longer vouches for ends all the same.
        let address = email.as_deref().ok();
        management::withdraw_unclaimed(
            &self.management,
            &vouched_by,
            address,
            &entitlements,
            &request.client,
            request.now,
        )
        .await?;
        let email = email?;
        let has_got_session =
            |user: SignedInUser| user.session.created >= pending.begun && user.is_vouched_by(&vouched_by);
        if self.live_user(request).await.is_some_and(has_got_session) {
            return Ok(response::see_other(&pending.return_to));
        }
        let sign_in = ProviderSignIn {
            vouched_by,
            email,
            entitlements,
            id_token: Some(verified.id_token),
            previous: request.session.unwrap_or_default(),
        };
        let signed_in =
            management::sign_in_with_provider(&self.management, sign_in, request.client.clone(), request.now).await;
        let (token, session) = signed_in?;
        tracing::info!(provider = name, session = %session.id, org = %session.chosen, "user signed in");
        let redirect = response::see_other(&pending.return_to);
        Ok(response::with_session(redirect, &token, self.settings.lifetime.as_secs()))
    }

    /// Takes the pending sign-in of a callback: once, for its browser and its provider.
    async fn take_pending(&self, request: &ControlRequest, name: &str) -> Result<PendingSignIn, ManagementError> {
        let state = request.parameter("state").ok_or(ManagementError::NoState)?;
        let ticket =
            management::take_pending_sign_in(&self.management, &TokenDigest::of(state.as_bytes()), request.now).await?;
        // A ticket that cannot be parsed is one of another kind, such as a sign-in link.
        let pending: Option<PendingSignIn> = ticket.and_then(|content| serde_json::from_slice(&content).ok());
        let pending = pending.ok_or(ManagementError::UnknownState)?;
        let mut cookies = session::sign_in_cookies(&request.headers);
        if !cookies.any(|(_, token)| encode(&token.digest()) == pending.browser) {
            return Err(ManagementError::OtherBrowser);
        }
        if pending.provider != name {
            return Err(ManagementError::OtherProvider);
        }
        Ok(pending)
    }
}

fn latest() -> Micros {
    Micros(u64::MAX)
}

fn encode(digest: &TokenDigest) -> String {
    URL_SAFE_NO_PAD.encode(digest.as_bytes())
}
