//! Signing in and out: by an identity provider, or by a link.
//!
//! A sign-in under way is kept as a ticket under the SHA-256 of its `state`, and is taken when the browser comes back.
//!
//! - It is good once: a callback that is played again finds nothing.
//! - It is good for the browser that began it, which holds a cookie of its own (login CSRF, stolen `state`), and for the
//!   provider that it was begun with.
//! - The session is a new one, whatever cookie the browser came with (session fixation).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::error::{DashboardError, SignInError};
use super::public_pages;
use super::request::DashboardRequest;
use super::response::{self, DashboardResponse};
use super::return_path::return_path;
use super::{Dashboard, OK};
use crate::management::{ProviderSignIn, SignedInUser};
use crate::oidc::{self, AuthorizationResponse};
use crate::secret::Secret;
use crate::session::{self, SIGN_IN_COOKIE_NAME, Token, TokenDigest};

/// How long somebody may take to sign in at the provider.
const PENDING: Duration = Duration::from_secs(10 * 60);

/// A sign-in under way.
#[derive(Serialize, Deserialize)]
struct Pending {
    provider: String,
    /// The SHA-256 of the cookie of the browser that began it.
    browser: String,
    /// Where to go then.
    return_to: String,
    oidc: oidc::PendingAuthorization,
}

/// The answer to what belongs to signing in and out; none for anything else.
pub(super) async fn answer(
    dashboard: &Dashboard,
    request: &DashboardRequest,
    segments: &[&str],
) -> Option<Result<DashboardResponse, DashboardError>> {
    let answered = match (request.verb(), segments) {
        ("GET", ["sign-in"]) => dashboard.offer(request).await,
        ("POST", ["sign-in", provider]) => dashboard.begin(request, provider).await,
        // Not by `HEAD`: it is taken.
        ("GET", ["callback", provider]) if !request.is_head() => Ok(dashboard.call_back(request, provider).await),
        ("GET", ["link", token]) => dashboard.offer_link(request, token).await,
        ("POST", ["link", token]) => dashboard.take_link(request, token).await,
        ("POST", ["sign-out"]) => dashboard.sign_out(request).await,
        ("GET", ["signed-out"]) => dashboard.signed_out(),
        ("POST", ["org"]) => dashboard.choose_org(request).await,
        (_, ["sign-in" | "signed-out"] | ["callback", _]) => Err(DashboardError::Method("GET, HEAD")),
        (_, ["sign-in", _] | ["sign-out" | "org"]) => Err(DashboardError::Method("POST")),
        (_, ["link", _]) => Err(DashboardError::Method("GET, HEAD, POST")),
        _ => return None,
    };
    Some(answered)
}

impl Dashboard {
    /// Where the provider sends the browser back to. Each has an address of its own, so that none can answer for another
    /// (RFC 9700, section 2.1).
    fn callback(&self, provider: &str) -> String {
        format!("{}/callback/{provider}", self.settings.url())
    }

    /// The page to go to, of those that may be asked for.
    fn return_to(&self, asked: &str) -> String {
        let home = || format!("{}/keys", self.settings.path);
        return_path(&self.settings.origin, asked).filter(|path| path != "/").unwrap_or_else(home)
    }

    async fn offer(&self, request: &DashboardRequest) -> Result<DashboardResponse, DashboardError> {
        let return_to = self.return_to(request.parameter("return_to").unwrap_or_default());
        if self.person(request).await?.is_some() {
            return Ok(response::see_other(&return_to));
        }
        let ended = matches!(request.session, Ok(Some(_)));
        Ok(response::page(OK, public_pages::sign_in(&self.settings, return_to, ended)?))
    }

    async fn begin(&self, request: &DashboardRequest, name: &str) -> Result<DashboardResponse, DashboardError> {
        let (provider, _) = self.providers.named(name).ok_or(DashboardError::NotFound)?;
        self.attempt(request)?;
        let begun = provider
            .begin_sign_in(&self.callback(name), request.now)
            .await
            .map_err(|error| self.absent(request, name, error))?;
        let browser = Token::generate()?;
        let pending = Pending {
            provider: name.to_owned(),
            browser: URL_SAFE_NO_PAD.encode(browser.digest().as_bytes()),
            return_to: self.return_to(request.form().field("return_to")),
            oidc: begun.pending,
        };
        let content = serde_json::to_vec(&pending).expect("texts are JSON");
        self.management.store_pending_sign_in(begun.state.digest(), content, request.now.after(PENDING)).await?;
        let page = public_pages::leaving(&self.settings.path, &provider.settings().label, begun.url, false)?;
        Ok(response::with_sign_in(response::page(OK, page), &browser, PENDING.as_secs()))
    }

    /// The browser comes back from the provider.
    async fn call_back(&self, request: &DashboardRequest, name: &str) -> DashboardResponse {
        let answered = self.finish(request, name).await;
        response::without_sign_in(answered.unwrap_or_else(|failed| self.failed_for(request, &failed)))
    }

    async fn finish(&self, request: &DashboardRequest, name: &str) -> Result<DashboardResponse, DashboardError> {
        let (provider, mapping) = self.providers.named(name).ok_or(DashboardError::NotFound)?;
        let pending = match self.pending(request, name).await {
            Ok(pending) => pending,
            Err(failed) => return Err(self.wrong(request, name, failed)),
        };
        let callback =
            AuthorizationResponse::parse(&request.query_text).map_err(|error| self.absent(request, name, error))?;
        let verified = provider.finish_sign_in(&pending.oidc, &self.callback(name), &callback, request.now).await;
        let verified = verified.map_err(|error| self.absent(request, name, error))?;
        let email = mapping.email(&verified.claims);
        let email = email.map_err(|error| logged(request, name, DashboardError::SignIn(SignInError::Claims(error))))?;
        let sign_in = ProviderSignIn {
            provider: name.to_owned(),
            email,
            entitlements: mapping.entitlements(&verified.claims),
            id_token: Some(verified.id_token),
            previous: request.session.unwrap_or_default(),
        };
        let signed_in = self.management.sign_in_with_provider(sign_in, request.origin.clone(), request.now).await;
        let (token, session) = signed_in.map_err(|error| logged(request, name, error.into()))?;
        tracing::info!(provider = name, session = %session.id, org = %session.chosen, "somebody signed in");
        let answer = response::see_other(&pending.return_to);
        Ok(response::with_session(answer, &token, self.settings.lifetime.as_secs()))
    }

    /// The sign-in that a callback belongs to: once, and only in the browser that began it.
    async fn pending(&self, request: &DashboardRequest, name: &str) -> Result<Pending, DashboardError> {
        let state = request.parameter("state").ok_or(DashboardError::SignIn(SignInError::NoState))?;
        let digest = TokenDigest::of(state.as_bytes());
        let content = self.management.take_pending_sign_in(&digest, request.now).await?;
        let content = content.ok_or(DashboardError::SignIn(SignInError::UnknownState))?;
        let pending: Pending =
            serde_json::from_slice(&content).map_err(|_| DashboardError::SignIn(SignInError::UnknownState))?;
        let browser = session::presented(&request.headers, SIGN_IN_COOKIE_NAME).ok().flatten();
        let browser = browser.map(|digest| URL_SAFE_NO_PAD.encode(digest.as_bytes()));
        if browser.as_ref() != Some(&pending.browser) {
            return Err(DashboardError::SignIn(SignInError::OtherBrowser));
        }
        if pending.provider != name {
            return Err(DashboardError::SignIn(SignInError::OtherProvider));
        }
        Ok(pending)
    }

    /// Says why somebody was not signed in, unless they try too often.
    fn wrong(&self, request: &DashboardRequest, provider: &str, failed: DashboardError) -> DashboardError {
        self.attempt(request).err().unwrap_or_else(|| logged(request, provider, failed))
    }

    /// What anybody can have done who is nobody yet is bounded by address: it costs the state, the log and the provider.
    fn attempt(&self, request: &DashboardRequest) -> Result<(), DashboardError> {
        let Some(ip) = request.origin.ip else { return Ok(()) };
        self.failed_auth.count_attempt(ip, request.now).map_err(|seconds| {
            self.metrics.attempts_refused.inc();
            DashboardError::TooOften(seconds)
        })
    }

    fn absent(&self, request: &DashboardRequest, name: &str, error: oidc::Error) -> DashboardError {
        logged(request, name, DashboardError::Provider(Box::new(error)))
    }

    /// A page before the link is taken: programs that look into links on their way do not send forms.
    async fn offer_link(&self, request: &DashboardRequest, token: &str) -> Result<DashboardResponse, DashboardError> {
        let offer = self.management.preview_link(&TokenDigest::of(token.as_bytes()), request.now).await;
        let offer = offer.map_err(|error| self.wrong(request, "link", error.into()))?;
        Ok(response::page(OK, public_pages::link(&self.settings.path, offer, request.now)?))
    }

    async fn take_link(&self, request: &DashboardRequest, token: &str) -> Result<DashboardResponse, DashboardError> {
        let (digest, previous) = (TokenDigest::of(token.as_bytes()), request.session.unwrap_or_default());
        let taken = self.management.sign_in_with_link(&digest, previous, request.origin.clone(), request.now).await;
        let (token, session) = taken.map_err(|error| self.wrong(request, "link", error.into()))?;
        tracing::info!(session = %session.id, org = %session.chosen, "somebody signed in by a link");
        let answer = response::see_other(&self.return_to(""));
        Ok(response::with_session(answer, &token, self.settings.lifetime.as_secs()))
    }

    /// Ends the session here, and then at the provider (OpenID Connect RP-Initiated Logout 1.0).
    async fn sign_out(&self, request: &DashboardRequest) -> Result<DashboardResponse, DashboardError> {
        let person = self.person(request).await?;
        let mut onward = None;
        if let Some(person) = &person {
            self.management.sign_out(person, request.now).await?;
            onward = self.elsewhere(person, request).await;
        }
        let answer = match onward {
            Some((label, url)) => response::page(OK, public_pages::leaving(&self.settings.path, &label, url, true)?),
            None => response::see_other(&format!("{}/signed-out", self.settings.path)),
        };
        Ok(response::without_session(answer))
    }

    /// Where a person signs out at their provider.
    async fn elsewhere(&self, person: &SignedInUser, request: &DashboardRequest) -> Option<(String, String)> {
        let (provider, _) = self.providers.named(person.session.provider.as_deref()?)?;
        let id_token = person.session.id_token.clone().map(Secret::new);
        let return_to = format!("{}/signed-out", self.settings.url());
        let url = provider.sign_out_url(id_token.as_ref(), &return_to, request.now).await?;
        Some((provider.settings().label.clone(), url))
    }

    fn signed_out(&self) -> Result<DashboardResponse, DashboardError> {
        Ok(response::page(OK, public_pages::signed_out(&self.settings.path)?))
    }

    async fn choose_org(&self, request: &DashboardRequest) -> Result<DashboardResponse, DashboardError> {
        let person = self.person(request).await?.ok_or(DashboardError::SignedOut)?;
        self.management.choose_org(&person, request.form().field("org"), request.now).await?;
        Ok(response::see_other(&self.return_to("")))
    }
}

/// Says once, for the operator, why somebody could not sign in.
fn logged(request: &DashboardRequest, provider: &str, failed: DashboardError) -> DashboardError {
    let cause = failed.in_full();
    tracing::warn!(request_id = %request.id, provider, reason = failed.reason(), cause, "a sign-in was refused");
    failed
}
