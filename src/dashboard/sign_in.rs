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

use super::answer::{self, Answer};
use super::failed::{Failed, Refused};
use super::return_path::return_path;
use super::views;
use super::visit::Visit;
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
pub(super) async fn answer(dashboard: &Dashboard, visit: &Visit, segments: &[&str]) -> Option<Result<Answer, Failed>> {
    let answered = match (visit.verb(), segments) {
        ("GET", ["sign-in"]) => dashboard.offer(visit).await,
        ("POST", ["sign-in", provider]) => dashboard.begin(visit, provider).await,
        // Not by `HEAD`: it is taken.
        ("GET", ["callback", provider]) if !visit.is_head() => Ok(dashboard.call_back(visit, provider).await),
        ("GET", ["link", token]) => dashboard.offer_link(visit, token).await,
        ("POST", ["link", token]) => dashboard.take_link(visit, token).await,
        ("POST", ["sign-out"]) => dashboard.sign_out(visit).await,
        ("GET", ["signed-out"]) => dashboard.signed_out(),
        ("POST", ["org"]) => dashboard.choose_org(visit).await,
        (_, ["sign-in" | "signed-out"] | ["callback", _]) => Err(Failed::Method("GET, HEAD")),
        (_, ["sign-in", _] | ["sign-out" | "org"]) => Err(Failed::Method("POST")),
        (_, ["link", _]) => Err(Failed::Method("GET, HEAD, POST")),
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

    async fn offer(&self, visit: &Visit) -> Result<Answer, Failed> {
        let return_to = self.return_to(visit.parameter("return_to").unwrap_or_default());
        if self.person(visit).await?.is_some() {
            return Ok(answer::see_other(&return_to));
        }
        let ended = matches!(visit.session, Ok(Some(_)));
        Ok(answer::page(OK, views::sign_in(&self.settings, return_to, ended)?))
    }

    async fn begin(&self, visit: &Visit, name: &str) -> Result<Answer, Failed> {
        let (provider, _) = self.providers.named(name).ok_or(Failed::NotFound)?;
        self.attempt(visit)?;
        let begun = provider
            .begin_sign_in(&self.callback(name), visit.now)
            .await
            .map_err(|error| self.absent(visit, name, error))?;
        let browser = Token::generate()?;
        let pending = Pending {
            provider: name.to_owned(),
            browser: URL_SAFE_NO_PAD.encode(browser.digest().as_bytes()),
            return_to: self.return_to(visit.form().field("return_to")),
            oidc: begun.pending,
        };
        let content = serde_json::to_vec(&pending).expect("texts are JSON");
        self.management.store_pending_sign_in(begun.state.digest(), content, visit.now.after(PENDING)).await?;
        let page = views::leaving(&self.settings.path, &provider.settings().label, begun.url, false)?;
        Ok(answer::with_sign_in(answer::page(OK, page), &browser, PENDING.as_secs()))
    }

    /// The browser comes back from the provider.
    async fn call_back(&self, visit: &Visit, name: &str) -> Answer {
        let answered = self.finish(visit, name).await;
        answer::without_sign_in(answered.unwrap_or_else(|failed| self.failed_for(visit, &failed)))
    }

    async fn finish(&self, visit: &Visit, name: &str) -> Result<Answer, Failed> {
        let (provider, people) = self.providers.named(name).ok_or(Failed::NotFound)?;
        let pending = match self.pending(visit, name).await {
            Ok(pending) => pending,
            Err(failed) => return Err(self.wrong(visit, name, failed)),
        };
        let callback =
            AuthorizationResponse::parse(&visit.query_text).map_err(|error| self.absent(visit, name, error))?;
        let verified = provider.finish_sign_in(&pending.oidc, &self.callback(name), &callback, visit.now).await;
        let verified = verified.map_err(|error| self.absent(visit, name, error))?;
        let email = people.email(&verified.claims);
        let email = email.map_err(|error| logged(visit, name, Failed::Refused(Refused::Claims(error))))?;
        let sign_in = ProviderSignIn {
            provider: name.to_owned(),
            email,
            entitlements: people.entitlements(&verified.claims),
            id_token: Some(verified.id_token),
            previous: visit.session.unwrap_or_default(),
        };
        let signed_in = self.management.sign_in_with_provider(sign_in, visit.origin.clone(), visit.now).await;
        let (token, session) = signed_in.map_err(|error| logged(visit, name, error.into()))?;
        tracing::info!(provider = name, session = %session.id, org = %session.chosen, "somebody signed in");
        let answer = answer::see_other(&pending.return_to);
        Ok(answer::with_session(answer, &token, self.settings.lifetime.as_secs()))
    }

    /// The sign-in that a callback belongs to: once, and only in the browser that began it.
    async fn pending(&self, visit: &Visit, name: &str) -> Result<Pending, Failed> {
        let state = visit.parameter("state").ok_or(Failed::Refused(Refused::NoState))?;
        let digest = TokenDigest::of(state.as_bytes());
        let content = self.management.take_pending_sign_in(&digest, visit.now).await?;
        let content = content.ok_or(Failed::Refused(Refused::UnknownState))?;
        let pending: Pending = serde_json::from_slice(&content).map_err(|_| Failed::Refused(Refused::UnknownState))?;
        let browser = session::presented(&visit.headers, SIGN_IN_COOKIE_NAME).ok().flatten();
        let browser = browser.map(|digest| URL_SAFE_NO_PAD.encode(digest.as_bytes()));
        if browser.as_ref() != Some(&pending.browser) {
            return Err(Failed::Refused(Refused::OtherBrowser));
        }
        if pending.provider != name {
            return Err(Failed::Refused(Refused::OtherProvider));
        }
        Ok(pending)
    }

    /// Says why somebody was not signed in, unless they try too often.
    fn wrong(&self, visit: &Visit, provider: &str, failed: Failed) -> Failed {
        self.attempt(visit).err().unwrap_or_else(|| logged(visit, provider, failed))
    }

    /// What anybody can have done who is nobody yet is bounded by address: it costs the state, the log and the provider.
    fn attempt(&self, visit: &Visit) -> Result<(), Failed> {
        let Some(ip) = visit.origin.ip else { return Ok(()) };
        self.attempts.attempt(ip, visit.now).map_err(|seconds| {
            self.metrics.attempts_refused.inc();
            Failed::TooOften(seconds)
        })
    }

    fn absent(&self, visit: &Visit, name: &str, error: oidc::Error) -> Failed {
        logged(visit, name, Failed::Provider(Box::new(error)))
    }

    /// A page before the link is taken: programs that look into links on their way do not send forms.
    async fn offer_link(&self, visit: &Visit, token: &str) -> Result<Answer, Failed> {
        let offer = self.management.preview_link(&TokenDigest::of(token.as_bytes()), visit.now).await;
        let offer = offer.map_err(|error| self.wrong(visit, "link", error.into()))?;
        Ok(answer::page(OK, views::link(&self.settings.path, offer, visit.now)?))
    }

    async fn take_link(&self, visit: &Visit, token: &str) -> Result<Answer, Failed> {
        let (digest, previous) = (TokenDigest::of(token.as_bytes()), visit.session.unwrap_or_default());
        let taken = self.management.sign_in_with_link(&digest, previous, visit.origin.clone(), visit.now).await;
        let (token, session) = taken.map_err(|error| self.wrong(visit, "link", error.into()))?;
        tracing::info!(session = %session.id, org = %session.chosen, "somebody signed in by a link");
        let answer = answer::see_other(&self.return_to(""));
        Ok(answer::with_session(answer, &token, self.settings.lifetime.as_secs()))
    }

    /// Ends the session here, and then at the provider (OpenID Connect RP-Initiated Logout 1.0).
    async fn sign_out(&self, visit: &Visit) -> Result<Answer, Failed> {
        let person = self.person(visit).await?;
        let mut onward = None;
        if let Some(person) = &person {
            self.management.sign_out(person, visit.now).await?;
            onward = self.elsewhere(person, visit).await;
        }
        let answer = match onward {
            Some((label, url)) => answer::page(OK, views::leaving(&self.settings.path, &label, url, true)?),
            None => answer::see_other(&format!("{}/signed-out", self.settings.path)),
        };
        Ok(answer::without_session(answer))
    }

    /// Where a person signs out at their provider.
    async fn elsewhere(&self, person: &SignedInUser, visit: &Visit) -> Option<(String, String)> {
        let (provider, _) = self.providers.named(person.session.provider.as_deref()?)?;
        let id_token = person.session.id_token.clone().map(Secret::new);
        let return_to = format!("{}/signed-out", self.settings.url());
        let url = provider.sign_out_url(id_token.as_ref(), &return_to, visit.now).await?;
        Some((provider.settings().label.clone(), url))
    }

    fn signed_out(&self) -> Result<Answer, Failed> {
        Ok(answer::page(OK, views::signed_out(&self.settings.path)?))
    }

    async fn choose_org(&self, visit: &Visit) -> Result<Answer, Failed> {
        let person = self.person(visit).await?.ok_or(Failed::SignedOut)?;
        self.management.choose_org(&person, visit.form().field("org"), visit.now).await?;
        Ok(answer::see_other(&self.return_to("")))
    }
}

/// Says once, for the operator, why somebody could not sign in.
fn logged(visit: &Visit, provider: &str, failed: Failed) -> Failed {
    let cause = failed.in_full();
    tracing::warn!(request_id = %visit.id, provider, reason = failed.reason(), cause, "a sign-in was refused");
    failed
}
