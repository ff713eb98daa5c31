//! Signing in by an identity provider (OpenID Connect).
//!
//! A pending sign-in is stored as a ticket under the SHA-256 of its `state`, and taken when the browser comes back.
//!
//! - It is valid once: a replayed callback finds no ticket.
//! - It is valid in the browser that began it, which holds a cookie for it (login CSRF, stolen `state`), and for the
//!   provider that it began with (mix-up attacks).
//! - It starts a new session with a new token, whatever cookie the browser has (session fixation).

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
use crate::dashboard::error::{DashboardError, SignInError};
use crate::dashboard::pages::{Layout, LeavingPage};
use crate::dashboard::response::{self, DashboardResponse};
use crate::management::ProviderSignIn;
use crate::oidc::{self, AuthorizationResponse, Prompt};
use crate::request::ControlRequest;
use domain::identity::{PersonId, Voucher};
use domain::session::{self, SIGN_IN_COOKIE_NAME, Token, TokenDigest};

/// Time that a user may take to sign in at the provider.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(10 * 60);

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
        self.providers.find(name).ok_or(DashboardError::NotFound)?;
        self.count_attempt(request)?;
        let return_to = self.resolve_return_to(request.form().field("return_to"));
        let leaving = self.lead_to_provider(request, name, &return_to, Prompt::AsNeeded).await;
        leaving.map_err(|error| match error {
            DashboardError::Provider(_) => log_refusal(request, name, error),
            error => error,
        })
    }

    /// Stores a pending sign-in, binds it to the browser by a cookie, and leads to the provider.
    pub(super) async fn lead_to_provider(
        &self,
        request: &ControlRequest,
        name: &str,
        return_to: &str,
        prompt: Prompt,
    ) -> HandlerResult {
        let (provider, _) = self.providers.find(name).ok_or(DashboardError::NotFound)?;
        let redirect_uri = self.redirect_uri(name);
        let authorization = provider.begin_sign_in(&redirect_uri, prompt, request.now).await.map_err(of_provider)?;
        let browser = Token::generate()?;
        let pending = PendingSignIn {
            provider: name.to_owned(),
            browser: encode(&browser.digest()),
            return_to: return_to.to_owned(),
            silent: prompt == Prompt::Never,
            oidc: authorization.pending,
        };
        let content = serde_json::to_vec(&pending).expect("texts are JSON");
        let expires = request.now.after(SIGN_IN_TIMEOUT);
        let digest = authorization.state.digest();
        self.management.store_pending_sign_in(digest, content, expires, &request.client).await?;
        // A page, not a redirect: browsers apply `form-action 'self'` to redirects of forms as well.
        let page = LeavingPage {
            layout: Layout::without_viewer(&self.settings.path),
            label: provider.settings().label.clone(),
            url: authorization.url,
            signing_out: false,
        };
        let page = response::page(StatusCode::OK, page.render()?);
        Ok(response::with_sign_in_cookie(page, &browser, SIGN_IN_TIMEOUT.as_secs()))
    }

    /// Handles the callback from the provider. The browser's cookie for the sign-in is deleted in any case: the ticket
    /// is used up.
    pub(super) async fn finish_sign_in(&self, request: &ControlRequest, name: &str) -> DashboardResponse {
        let redirect = self.start_session(request, name).await;
        let response = redirect.unwrap_or_else(|error| self.error_response(request, &error));
        response::without_sign_in_cookie(response)
    }

    /// Verifies the provider's response, and starts a session for the user that it names.
    async fn start_session(&self, request: &ControlRequest, name: &str) -> HandlerResult {
        let (provider, mapping) = self.providers.find(name).ok_or(DashboardError::NotFound)?;
        let pending = self.take_pending(request, name).await;
        let pending = pending.map_err(|error| self.count_failure(request, name, error))?;
        match self.finish_pending(request, (provider, mapping), &pending).await {
            Ok(redirect) => Ok(redirect),
            // Mostly the user has no session there. Who then presses the button sees what else is wrong.
            Err(error) if pending.silent => {
                tracing::debug!(request_id = %request.id, provider = name, reason = error.reason(),
                    "no silent sign-in");
                self.redirect_after_try(&pending.return_to)
            }
            Err(error) => Err(log_refusal(request, name, error)),
        }
    }

    /// Verifies the response to a pending sign-in, and starts the session.
    async fn finish_pending(
        &self,
        request: &ControlRequest,
        (provider, mapping): (&oidc::Provider, &ClaimMapping),
        pending: &PendingSignIn,
    ) -> HandlerResult {
        let name = &pending.provider;
        let response = AuthorizationResponse::parse(&request.query_text).map_err(of_provider)?;
        let verified = provider.finish_sign_in(&pending.oidc, &self.redirect_uri(name), &response, request.now).await;
        let verified = verified.map_err(of_provider)?;
        let person = PersonId::from_subject(&provider.settings().issuer, &verified.subject);
        let vouched_by = Voucher { provider: name.clone(), person };
        let email = mapping.email(&verified.claims);
        let entitlements = mapping.entitlements(&verified.claims);
        // Before anything can refuse the sign-in: what the provider no longer vouches for ends all the same.
        let address = email.as_deref().ok();
        self.management.withdraw_unclaimed(&vouched_by, address, &entitlements, &request.client, request.now).await?;
        let email = email.map_err(SignInError::Claims).map_err(DashboardError::SignIn)?;
        let sign_in = ProviderSignIn {
            vouched_by,
            email,
            entitlements,
            id_token: Some(verified.id_token),
            previous: request.session.unwrap_or_default(),
        };
        let signed_in = self.management.sign_in_with_provider(sign_in, request.client.clone(), request.now).await;
        let (token, session) = signed_in?;
        tracing::info!(provider = name, session = %session.id, org = %session.chosen, "user signed in");
        let redirect = response::see_other(&pending.return_to);
        Ok(response::with_session(redirect, &token, self.settings.lifetime.as_secs()))
    }

    /// Takes the pending sign-in of a callback: once, for its browser and its provider.
    async fn take_pending(&self, request: &ControlRequest, name: &str) -> Result<PendingSignIn, DashboardError> {
        let state = request.parameter("state").ok_or(DashboardError::SignIn(SignInError::NoState))?;
        let ticket = self.management.take_pending_sign_in(&TokenDigest::of(state.as_bytes()), request.now).await?;
        // A ticket that cannot be parsed is one of another kind, such as a sign-in link.
        let pending: Option<PendingSignIn> = ticket.and_then(|content| serde_json::from_slice(&content).ok());
        let pending = pending.ok_or(DashboardError::SignIn(SignInError::UnknownState))?;
        let browser = session::read_cookie(&request.headers, SIGN_IN_COOKIE_NAME).ok().flatten();
        if browser.map(|digest| encode(&digest)).as_ref() != Some(&pending.browser) {
            return Err(DashboardError::SignIn(SignInError::OtherBrowser));
        }
        if pending.provider != name {
            return Err(DashboardError::SignIn(SignInError::OtherProvider));
        }
        Ok(pending)
    }
}

fn of_provider(error: oidc::Error) -> DashboardError {
    DashboardError::Provider(Box::new(error))
}

fn encode(digest: &TokenDigest) -> String {
    URL_SAFE_NO_PAD.encode(digest.as_bytes())
}
