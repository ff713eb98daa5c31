//! The dashboard: *Organization Settings > API Keys* for people, and the same operations for programs that have a session.
//!
//! - Everything is under one path, which is never forwarded. A path goes to the sign-in, to a page, or to the API.
//! - Only a web session opens it; an API key never does. Who somebody is and what they may do is read from the state for
//!   each request.
//! - What changes something must come from a page of this origin, as the browser says.
//! - Each operation has one implementation, in `management`; pages and API are its faces.
//! - Every failure is a page, or a problem (RFC 9457), with words and the request's id; none is an empty one or a stack.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::clock;
use crate::failed_auth::FailedAuthLimiter;
use crate::forward::TrustedProxies;
use crate::identity::{Peer, X_REQUEST_ID};
use crate::management::{Management, ManagementError, SignedInUser};
use crate::metrics::{Metrics, RouteMetrics};
use crate::oidc;
use crate::session;

mod settings;
mod claim_mapping;
mod request;
mod response;
mod return_path;
mod curl_examples;
mod sign_in;
mod error;
mod public_pages;
mod handlers;
mod api;
pub mod pages;
mod assets;

pub use claim_mapping::{Claim, ClaimError, ClaimMapping};
pub use curl_examples::{CurlExample, CurlExamples};
pub use return_path::return_path;
pub use settings::{ProviderSettings, Settings};

use assets::Asset;
use error::DashboardError;
use request::{DashboardRequest, ReadError};
use response::DashboardResponse;

/// The metrics' name of all of the dashboard's requests.
const ROUTE: &str = "dashboard";

/// The dashboard, for one worker.
#[derive(Debug)]
pub struct Dashboard {
    settings: Arc<Settings>,
    providers: Arc<Providers>,
    management: Arc<Management>,
    trusted: TrustedProxies,
    /// How often somebody may begin to sign in, or fail to.
    failed_auth: FailedAuthLimiter,
    /// The origin of the API, and what may be asked for there.
    curl_examples: CurlExamples,
    metrics: Metrics,
    counts: RouteMetrics,
}

/// What the dashboards of all workers share.
#[derive(Clone, Debug)]
pub struct DashboardServices {
    /// Where it is.
    pub settings: Arc<Settings>,
    /// By whom people sign in.
    pub providers: Arc<Providers>,
    /// What is done for them.
    pub management: Arc<Management>,
}

/// The identity providers, shared by all workers: what is known of them is fetched once.
#[derive(Debug)]
pub struct Providers(Vec<(oidc::Provider, ClaimMapping)>);

impl Providers {
    /// Those of the settings. Nothing is asked of them yet.
    ///
    /// # Errors
    /// [`oidc::Error`] when one cannot be spoken to as configured, such as for its certificates.
    pub fn new(settings: &Settings) -> Result<Self, oidc::Error> {
        let provider = |provider: &ProviderSettings| {
            Ok((oidc::Provider::new(provider.oidc.clone())?, provider.claim_mapping.clone()))
        };
        settings.providers.iter().map(provider).collect::<Result<_, _>>().map(Self)
    }

    fn named(&self, name: &str) -> Option<&(oidc::Provider, ClaimMapping)> {
        self.0.iter().find(|(provider, _)| provider.settings().name == name)
    }
}

impl Dashboard {
    /// A worker's dashboard.
    pub fn new(
        shared: DashboardServices,
        trusted: TrustedProxies,
        failed_auth: FailedAuthLimiter,
        curl_examples: CurlExamples,
        metrics: Metrics,
    ) -> Self {
        let DashboardServices { settings, providers, management } = shared;
        let counts = metrics.route(ROUTE);
        Self { settings, providers, management, trusted, failed_auth, curl_examples, metrics, counts }
    }

    /// Whether a path is the dashboard's.
    pub fn contains_path(&self, path: &str) -> bool {
        self.settings.contains_path(path)
    }

    /// Answers one request. Never fails; and what it has begun it ends, also when whoever asked has gone.
    pub async fn handle(self: &Rc<Self>, peer: &Rc<Peer>, request: Request<Incoming>) -> Response<Bytes> {
        let (id, arrived) = (Uuid::now_v7(), clock::now());
        let is_head = request.method() == http::Method::HEAD;
        let is_api = self.is_api(request.uri().path());
        let (this, peer) = (Rc::clone(self), Rc::clone(peer));
        let answering = tokio::task::spawn_local(async move { this.answer(id, &peer, request).await });
        let mut answer = answering.await.unwrap_or_else(|error| {
            tracing::error!(request_id = %id, %error, "the dashboard failed in the middle of a request");
            self.metrics.panics.inc();
            self.unanswered(id, is_api, DashboardError::Internal)
        });
        answer.headers_mut().insert(X_REQUEST_ID, header(id));
        self.counts.count_response(answer.status());
        #[allow(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        self.counts.duration.observe(clock::now().since(arrived) as f64 / 1e6);
        if is_head {
            let length = answer.body().len();
            answer.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
            *answer.body_mut() = Bytes::new();
        }
        answer
    }

    /// What is under the dashboard's path at a listener that does not serve it.
    pub fn not_found(&self) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let mut answer = self.failed(id, &DashboardError::NotFound);
        answer.headers_mut().insert(X_REQUEST_ID, header(id));
        self.counts.count_response(answer.status());
        answer
    }

    async fn answer(&self, id: Uuid, peer: &Peer, request: Request<Incoming>) -> DashboardResponse {
        let path = request.uri().path();
        if path == "/" {
            return response::see_other(&self.settings.path);
        }
        if !self.contains_path(path) {
            return self.failed(id, &DashboardError::NotFound);
        }
        let is_api = self.is_api(path);
        match DashboardRequest::read(&self.settings.path, id, peer, &self.trusted, request).await {
            Ok(request) => self.answer_request(&request).await,
            Err(ReadError::TimedOut) => self.unanswered(id, is_api, DashboardError::Slow),
            Err(ReadError::Body) => self.unanswered(id, is_api, DashboardError::Body),
        }
    }

    fn is_api(&self, path: &str) -> bool {
        let below = path.strip_prefix(&*self.settings.path).and_then(|path| path.strip_prefix("/api"));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// A failure of a request that could not be read or answered: a page, or for programs a problem.
    fn unanswered(&self, id: Uuid, is_api: bool, failed: DashboardError) -> DashboardResponse {
        if is_api { api::ApiError::DashboardError(failed).answer(id) } else { self.failed(id, &failed) }
    }

    async fn answer_request(&self, request: &DashboardRequest) -> DashboardResponse {
        let segments = request.segments();
        match segments.as_slice() {
            ["assets", name] => match Asset::named(name) {
                Some(asset) => response::asset(&asset, &request.headers),
                None => self.failed(request.id, &DashboardError::NotFound),
            },
            ["api", rest @ ..] => api::answer(self, request, rest).await,
            _ => match self.paged(request, &segments).await {
                Ok(answer) => answer,
                Err(failed) => self.failed_for(request, &failed),
            },
        }
    }

    async fn paged(&self, request: &DashboardRequest, segments: &[&str]) -> Result<DashboardResponse, DashboardError> {
        let is_own = session::is_own_doing(&request.method, &request.headers, &self.settings.origin);
        if !is_own {
            return Err(DashboardError::CrossSite);
        }
        match sign_in::answer(self, request, segments).await {
            Some(answer) => answer,
            None => handlers::answer(self, request, segments).await,
        }
    }

    /// The person whose session a request presents.
    async fn person(&self, request: &DashboardRequest) -> Result<Option<SignedInUser>, DashboardError> {
        let Some(digest) = request.session.map_err(|_| DashboardError::Ambiguous)? else { return Ok(None) };
        Ok(self.management.authenticate_session(&digest, request.origin.clone(), request.now).await?)
    }
}

fn header(id: Uuid) -> HeaderValue {
    HeaderValue::try_from(id.to_string()).expect("hexadecimal digits and dashes are visible ASCII")
}

impl From<ManagementError> for DashboardError {
    fn from(error: ManagementError) -> Self {
        Self::Management(Box::new(error))
    }
}

/// The status of a page that is as it should be.
const OK: StatusCode = StatusCode::OK;
