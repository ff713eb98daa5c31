//! Signing in by a link, choosing an organization, signing out, and the pages without a session.

use askama::Template as _;
use http::StatusCode;

use super::HandlerResult;
use crate::dashboard::Dashboard;
use crate::dashboard::counting::Counting;
use crate::dashboard::pages::{Layout, LeavingPage, LinkPage, ProviderChoice, SignInPage, SignedOutPage, Timestamp};
use crate::dashboard::response;
use crate::dashboard::return_path::return_path;
use crate::dashboard::settings::ProviderSettings;
use crate::management;
use crate::management::{LinkPreview, ManagementError, SignedInUser};
use crate::request::ControlRequest;
use domain::secret::Secret;
use domain::session::TokenDigest;

impl Dashboard {
    /// The choice of identity providers. A user who is signed in goes on to the requested page, and one who is signed
    /// in at the only provider is signed in here as well.
    pub(super) async fn show_providers(&self, request: &ControlRequest) -> HandlerResult {
        let return_to = self.resolve_return_to(request.parameter("return_to").unwrap_or_default());
        if self.user(request).await?.is_some() {
            return Ok(response::see_other(&return_to));
        }
        if let Some(leaving) = self.try_silently(request, &return_to).await {
            return Ok(leaving);
        }
        self.sign_in_page(request, return_to, "", None)
    }

    /// The page with the providers that are listed, or with the one that the address names.
    fn sign_in_page(
        &self,
        request: &ControlRequest,
        return_to: String,
        email: &str,
        error: Option<&'static str>,
    ) -> HandlerResult {
        // The browser still has a cookie, so its user expects to be signed in.
        let has_ended = matches!(request.session, Ok(Some(_)));
        let notice = has_ended.then(|| "Your session has ended. Sign in to continue.".to_owned());
        let choice = |provider: &ProviderSettings| ProviderChoice {
            name: provider.oidc.name.clone(),
            label: provider.oidc.label.clone(),
        };
        let all = &self.settings.providers;
        let named = request.parameter("provider").and_then(|name| all.iter().find(|it| it.oidc.name == name));
        let page = SignInPage {
            layout: Layout { notice, ..Layout::without_viewer(&self.settings.path) },
            providers: match named {
                Some(named) => vec![choice(named)],
                None => all.iter().filter(|provider| provider.listed).map(choice).collect(),
            },
            has_providers: !all.is_empty(),
            by_email: named.is_none() && all.iter().any(|provider| !provider.listed && !provider.domains.is_empty()),
            email: email.to_owned(),
            error,
            links: self.settings.links,
            return_to,
        };
        let status = if error.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
        Ok(response::page(status, page.render()?))
    }

    /// Leads to the provider of the domain of an email address. Each try counts as an attempt of the client's address,
    /// so that domains cannot be tried out in numbers.
    pub(super) async fn find_provider(&self, request: &ControlRequest) -> HandlerResult {
        let form = request.form();
        let email = form.field("email");
        let domain = email.rsplit_once('@').map(|(_, domain)| domain.to_lowercase()).unwrap_or_default();
        let mut providers = self.settings.providers.iter();
        match providers.find(|provider| provider.domains.contains(&domain)) {
            Some(provider) => self.begin_sign_in(request, &provider.oidc.name).await,
            None => {
                self.count_attempt(request)?;
                let error = "No sign-in is known for this address. Ask an administrator of your organization for its \
                             sign-in page.";
                self.sign_in_page(request, self.resolve_return_to(form.field("return_to")), email, Some(error))
            }
        }
    }

    /// Validates a `return_to` against open redirects; by default, or for another origin, the table of keys.
    pub(super) fn resolve_return_to(&self, requested: &str) -> String {
        let home = || format!("{}/keys", self.settings.path);
        return_path(&self.settings.origin, requested).filter(|path| path != "/").unwrap_or_else(home)
    }

    /// Asks before a link is redeemed: link previews of mail programs open links, but send no forms.
    pub(super) async fn show_link(&self, request: &ControlRequest, token: &str) -> HandlerResult {
        let preview = management::preview_link(&self.management, &TokenDigest::of(token.as_bytes()), request.now).await;
        let LinkPreview { email, org, expires } = match preview {
            Ok(preview) => preview,
            Err(error) => return self.refuse_link(request, error).await,
        };
        let expires = Timestamp::new(expires, request.now);
        let page = LinkPage { layout: Layout::without_viewer(&self.settings.path), email, org, expires };
        Ok(response::page(StatusCode::OK, page.render()?))
    }

    /// Signs in by a link: starts a session, and ends the one that the browser had.
    pub(super) async fn redeem_link(&self, request: &ControlRequest, token: &str) -> HandlerResult {
        let digest = TokenDigest::of(token.as_bytes());
        let previous = request.session.unwrap_or_default();
        let signed_in =
            management::sign_in_with_link(&self.management, &digest, previous, request.client.clone(), request.now)
                .await;
        let (token, session) = match signed_in {
            Ok(signed_in) => signed_in,
            Err(error) => return self.refuse_link(request, error).await,
        };
        tracing::info!(session = %session.id, org = %session.chosen, "user signed in with a link");
        let redirect = response::see_other(&self.resolve_return_to(""));
        Ok(response::with_session(redirect, &token, self.settings.lifetime.as_secs()))
    }

    /// Refuses a link. A browser with a live session goes on: its user has opened a used link once more.
    async fn refuse_link(&self, request: &ControlRequest, error: ManagementError) -> HandlerResult {
        if matches!(error, ManagementError::InvalidLink) && self.live_user(request).await.is_some() {
            return Ok(response::see_other(&self.resolve_return_to("")));
        }
        Err(self.count_failure(request, "link", error))
    }

    /// Ends the session, then leads to the provider to sign out there (OpenID Connect RP-Initiated Logout 1.0).
    pub(super) async fn sign_out(&self, request: &ControlRequest) -> HandlerResult {
        let mut provider = None;
        if let Some(user) = &self.user(request).await? {
            management::sign_out(&self.management, user, request.now).await?;
            provider = self.provider_sign_out(user, request).await;
        }
        let response = match provider {
            Some((label, url)) => {
                let layout = Layout::without_viewer(&self.settings.path);
                let page = LeavingPage { layout, label, url, signing_out: true };
                response::page(StatusCode::OK, page.render()?)
            }
            None => response::see_other(&format!("{}/signed-out", self.settings.path)),
        };
        Ok(response::without_session(response))
    }

    /// Label and sign-out address of the provider that the user signed in by; `None` when it offers none.
    async fn provider_sign_out(&self, user: &SignedInUser, request: &ControlRequest) -> Option<(String, String)> {
        let (provider, _) = self.providers.find(user.session.provider.as_deref()?)?;
        let id_token = user.session.id_token.clone().map(Secret::new);
        let return_to = format!("{}/signed-out", self.settings.url());
        let url = provider.sign_out_url(id_token.as_ref(), &return_to, request.now).await?;
        Some((provider.settings().label.clone(), url))
    }

    pub(super) fn show_signed_out(&self) -> HandlerResult {
        let page = SignedOutPage { layout: Layout::without_viewer(&self.settings.path) };
        Ok(response::page(StatusCode::OK, page.render()?))
    }

    /// Switches the session to another organization of the user.
    pub(super) async fn choose_org(&self, request: &ControlRequest) -> HandlerResult {
        let user = self.require_user(request).await?;
        self.count_request(&user, Counting::Request, request.now)?;
        management::choose_org(&self.management, &user, request.form().field("org"), request.now).await?;
        Ok(response::see_other(&self.resolve_return_to("")))
    }

    /// Counts a failed sign-in against the client's address. Logs and returns the error, or returns
    /// [`ManagementError::TooManyAttempts`], which is not logged: otherwise an attacker could fill the log.
    pub(super) fn count_failure(
        &self,
        request: &ControlRequest,
        provider: &str,
        error: ManagementError,
    ) -> ManagementError {
        self.count_attempt(request).err().unwrap_or_else(|| log_refusal(request, provider, error))
    }

    /// Counts an attempt to sign in against the client's address. Attempts need no credential, and each costs work of
    /// the state, the log and the provider.
    pub(super) fn count_attempt(&self, request: &ControlRequest) -> Result<(), ManagementError> {
        let Some(ip) = request.client.ip else { return Ok(()) };
        self.sign_ins.count(ip, request.now).map_err(|seconds| {
            self.metrics.attempts_refused.inc();
            ManagementError::TooManyAttempts(seconds)
        })
    }
}

/// Logs a refused sign-in once, with its reason and cause; returns the error.
pub(super) fn log_refusal(request: &ControlRequest, provider: &str, error: ManagementError) -> ManagementError {
    let cause = error.in_full();
    tracing::warn!(request_id = %request.id, provider, reason = error.reason(), cause, "sign-in refused");
    error
}
