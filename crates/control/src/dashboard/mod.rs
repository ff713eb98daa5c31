//! The dashboard: *Organization Settings > API Keys* for people, and the [API](crate::api) for programs that have a web
//! session.
//!
//! - Everything is below one path, which is never forwarded to the upstream. One table, `routes`, maps requests to
//!   sign-in steps, pages and assets; the API has its own.
//! - A web session is the only credential; an API key is refused. The user and their permissions are read from the
//!   state for each request.
//! - A request that changes something must come from a page of this origin (CSRF; `Sec-Fetch-Site`, else `Origin`).
//! - A person may send so many requests, each costing a bounded amount of work; what only reads ends with its client.
//!   Revocations are counted apart, by session, and ending all other sessions is always served.
//! - Operations are implemented once, in `management`; pages and API call the same functions.
//! - Every failure is a page, or in the API a problem (RFC 9457), with an explanation and the request's id.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::STRICT_TRANSPORT_SECURITY;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::api::Api;
use crate::management;
use crate::management::{Management, ManagementError, RouteError, SignedInUser};
use crate::oidc;
use crate::person_limiter::PersonLimiter;
use crate::request::ControlRequest;
use domain::address_limiter::AddressLimiter;
use domain::clock;
use domain::identity::{Peer, X_REQUEST_ID};
use domain::session;
use edge::forward::TrustedProxies;
use platform::abort_on_drop::AbortOnDrop;
use platform::metrics::{Metrics, RouteMetrics};

// Configuration.
mod settings;
mod claim_mapping;
mod request_examples;

mod request_count;
// Requests and responses.
mod endpoints;
mod routes;
mod counting;
mod response;
mod return_path;
mod error_page;
// Handlers and pages.
mod handlers;
mod api;
pub mod pages;
mod assets;

pub use claim_mapping::{Claim, ClaimError, ClaimMapping};
pub use request_examples::{RequestExample, RequestExamples};
pub use return_path::return_path;
pub use settings::{ProviderSettings, Settings};

use assets::Asset;

use response::DashboardResponse;
use routes::{Endpoint, RouteMatch};

/// Value of the metrics' label `route` for all requests to the dashboard.
const ROUTE: &str = "dashboard";

/// One worker's dashboard.
#[derive(Debug)]
pub struct Dashboard {
    settings: Arc<Settings>,
    providers: Arc<Providers>,
    management: Arc<Management>,
    api: Api,
    /// Proxies whose `X-Forwarded-For` is trusted.
    trusted: TrustedProxies,
    /// Limits sign-ins, begun or failed, by client address.
    sign_ins: AddressLimiter,
    /// Limits requests by person.
    person_limiter: PersonLimiter,
    request_examples: RequestExamples,
    metrics: Metrics,
    route_metrics: RouteMetrics,
}

/// Services shared by the dashboards of all workers.
#[derive(Clone, Debug)]
pub struct DashboardServices {
    /// Configuration.
    pub settings: Arc<Settings>,
    /// Identity providers.
    pub providers: Arc<Providers>,
    /// Operations on organizations, users, keys and sessions.
    pub management: Arc<Management>,
    api: Api,
    person_limiter: PersonLimiter,
}

impl DashboardServices {
    /// The services of a configuration.
    ///
    /// # Errors
    /// As of [`Providers::new`].
    pub fn new(settings: &Settings, management: &Arc<Management>) -> Result<Self, oidc::Error> {
        Ok(Self {
            providers: Arc::new(Providers::new(settings)?),
            management: Arc::clone(management),
            api: Api::new(management, &api::base(&settings.path)),
            person_limiter: PersonLimiter::new(settings.limit),
            settings: Arc::new(settings.clone()),
        })
    }
}

/// Identity providers with their claim mappings. Shared by all workers, so that a provider's documents are fetched
/// once.
#[derive(Debug)]
pub struct Providers(Vec<(oidc::Provider, ClaimMapping)>);

impl Providers {
    /// The providers of the settings. Sends nothing to them yet.
    ///
    /// # Errors
    /// [`oidc::Error`] when the client for a provider cannot be built, such as for unreadable certificates.
    pub fn new(settings: &Settings) -> Result<Self, oidc::Error> {
        let provider = |provider: &ProviderSettings| {
            Ok((oidc::Provider::new(provider.oidc.clone())?, provider.claim_mapping.clone()))
        };
        settings.providers.iter().map(provider).collect::<Result<_, _>>().map(Self)
    }

    fn find(&self, name: &str) -> Option<&(oidc::Provider, ClaimMapping)> {
        self.0.iter().find(|(provider, _)| provider.settings().name == name)
    }
}

impl Dashboard {
    /// A worker's dashboard. Client addresses come from `trusted` proxies; `sign_ins` limits sign-ins by them.
    pub fn new(
        services: DashboardServices,
        trusted: TrustedProxies,
        sign_ins: AddressLimiter,
        request_examples: RequestExamples,
        metrics: Metrics,
    ) -> Self {
        let DashboardServices { settings, providers, management, api, person_limiter } = services;
        let route_metrics = metrics.route(ROUTE);
        Self {
            settings,
            providers,
            management,
            api,
            trusted,
            sign_ins,
            person_limiter,
            request_examples,
            metrics,
            route_metrics,
        }
    }

    /// Returns `true` if a path is the dashboard's: its own or one below it.
    pub fn contains_path(&self, path: &str) -> bool {
        self.settings.contains_path(path)
    }

    /// A path of the dashboard as logs may show it: without the token of a sign-in link.
    pub fn public_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        routes::hide_token(&self.settings.path, path)
    }

    /// Handles one request. Never fails: errors and panics become responses. What may change something runs to its end
    /// even when the client disconnects, so that a change is not abandoned halfway; what only reads is abandoned then.
    pub async fn handle(self: &Rc<Self>, peer: &Rc<Peer>, request: Request<Incoming>) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let arrived = clock::now();
        let is_head = request.method() == http::Method::HEAD;
        let is_api = self.is_api(request.uri().path());
        let is_read = routes::is_read(request.method(), &self.settings.path, request.uri().path());
        let this = Rc::clone(self);
        let peer = Rc::clone(peer);
        // A task of its own: dropping this future, as a disconnect does, leaves the task running.
        let task = tokio::task::spawn_local(async move { this.respond(id, &peer, request).await });
        let response = if is_read { AbortOnDrop::new(task).await } else { task.await };
        let mut response = response.unwrap_or_else(|error| {
            tracing::error!(request_id = %id, %error, "panic while the dashboard handled a request");
            self.metrics.panics.inc();
            self.early_error(id, is_api, &ManagementError::Internal)
        });
        #[allow(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        self.route_metrics.duration.observe(clock::now().since(arrived) as f64 / 1e6);
        self.record(id, &mut response);
        if is_head {
            let length = response.body().len();
            response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
            *response.body_mut() = Bytes::new();
        }
        response
    }

    /// 404 for the dashboard's path at a listener that does not serve the dashboard.
    pub fn not_found(&self) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let mut response = self.error_page(id, &ManagementError::NotFound);
        self.record(id, &mut response);
        response
    }

    /// Sets the request's id and `Strict-Transport-Security`, and counts the response.
    fn record(&self, id: Uuid, response: &mut DashboardResponse) {
        if let Some(age) = self.settings.hsts {
            let value = HeaderValue::try_from(format!("max-age={}", age.as_secs())).expect("digits are visible ASCII");
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, value);
        }
        let value = HeaderValue::try_from(id.to_string()).expect("hexadecimal digits and dashes are visible ASCII");
        response.headers_mut().insert(X_REQUEST_ID, value);
        self.route_metrics.count_response(response.status());
    }

    /// Reads the request and dispatches it.
    async fn respond(&self, id: Uuid, peer: &Peer, request: Request<Incoming>) -> DashboardResponse {
        let path = request.uri().path();
        // A listener for the dashboard alone also gets requests for other paths.
        if path == "/" {
            return response::see_other(&self.settings.path);
        }
        if !self.contains_path(path) {
            return self.error_page(id, &ManagementError::NotFound);
        }
        let is_api = self.is_api(path);
        match ControlRequest::read(&self.settings.path, id, peer, &self.trusted, request, &self.management).await {
            Ok(request) => self.dispatch(&request).await,
            Err(error) => self.early_error(id, is_api, &error),
        }
    }

    fn is_api(&self, path: &str) -> bool {
        let below = path.strip_prefix(&*self.settings.path).and_then(|path| path.strip_prefix("/api"));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The response to a request that could not be read, or whose handler panicked.
    fn early_error(&self, id: Uuid, is_api: bool, error: &ManagementError) -> DashboardResponse {
        if is_api { api::problem(self, id, error) } else { self.error_page(id, error) }
    }

    /// Routes a request, and responds with what its endpoint returns or with the page or problem for its error.
    async fn dispatch(&self, request: &ControlRequest) -> DashboardResponse {
        let segments = request.segments();
        if api::is_api(&segments) {
            return api::respond(self, request, &segments).await;
        }
        let page = match routes::find(request.route_method(), &segments) {
            Ok(RouteMatch { route, value }) => match route.endpoint {
                Endpoint::Asset => self.asset(request, value),
                Endpoint::SignIn(endpoint) => handlers::sign_in(self, request, endpoint, value).await,
                Endpoint::Page(endpoint) => handlers::page(self, request, endpoint, value).await,
            },
            Err(error) => Err(self.refuse_path(request, &segments, error).await),
        };
        page.unwrap_or_else(|error| self.error_response(request, &error))
    }

    fn asset(&self, request: &ControlRequest, name: &str) -> Result<DashboardResponse, ManagementError> {
        let asset = Asset::find(name).ok_or(ManagementError::NotFound)?;
        Ok(response::asset(&asset, &request.headers))
    }

    /// The error of a page request without a route. Origin and session are checked first, as for pages that exist.
    async fn refuse_path(&self, request: &ControlRequest, segments: &[&str], error: RouteError) -> ManagementError {
        let checked = match self.check_origin(request) {
            Ok(()) if routes::requires_session(segments) => self.require_user(request).await.map(drop),
            checked => checked,
        };
        checked.err().unwrap_or_else(|| error.into())
    }

    /// Refuses a request from another site that would change something (CSRF).
    fn check_origin(&self, request: &ControlRequest) -> Result<(), ManagementError> {
        let is_same_origin = session::is_same_origin(&request.method, &request.headers, &self.settings.origin);
        if is_same_origin { Ok(()) } else { Err(ManagementError::CrossSite) }
    }

    /// The user whose session the request's cookie names; `None` without a cookie, or when the session has ended.
    async fn user(&self, request: &ControlRequest) -> Result<Option<SignedInUser>, ManagementError> {
        let Some(digest) = request.session? else { return Ok(None) };
        management::authenticate_session(&self.management, &digest, request.client.clone(), request.now).await
    }

    async fn require_user(&self, request: &ControlRequest) -> Result<SignedInUser, ManagementError> {
        self.user(request).await?.ok_or(ManagementError::SignedOut)
    }
}
