//! Leaked keys and management tokens: the reports of GitHub, and keys that revoke themselves.
//!
//! - Two paths, of listeners for the API. Without the block `leaks` of the configuration they are the upstream's.
//! - Nothing is looked up for a report without a valid signature. It has no time, so that it may be sent again: what it
//!   did is not done twice.
//! - What one client address may try is bounded, as sign-ins are.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::api::{Mount, build, problem};
use crate::management::{self, Actor, ClientInfo, Leak, LeakAction, Management, ManagementError};
use crate::oidc::Error;
use crate::request::read_body;
use crate::served_calls::ServedCalls;
use domain::address_limiter::AddressLimiter;
use domain::clock::{self, Micros};
use domain::identity::Peer;
use domain::key::{self, KeyDigest};
use domain::management_token;
use domain::secret::Secret;
use edge::forward::{Client, TrustedProxies};
use platform::metrics::Metrics;
use platform::tls::ClientSettings;

mod github;

use github::{Feedback, Match};
pub use github::{GitHub, KEYS};

/// Path at which a request revokes the key that it presents.
pub const SELF_REVOKE_PATH: &str = "/v1/self-revoke";
/// Value of the metrics' label `route` for all these requests.
const ROUTE: &str = "leaks";
/// Bytes of a report at most: some thousands of findings.
const MAX_REPORT: usize = 1 << 20;

/// Settings of leaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The path of GitHub's reports.
    pub path: String,
    /// The address of GitHub's keys; none where its reports are not accepted.
    pub github: Option<String>,
    /// The action on keys and tokens that have leaked.
    pub action: LeakAction,
    /// The authorities that GitHub's certificate must come from.
    pub tls: ClientSettings,
}

/// The part that all workers share, so that GitHub's keys are read once.
#[derive(Clone)]
pub struct LeakReports {
    path: Arc<str>,
    github: Option<Arc<GitHub>>,
    management: Arc<Management>,
}

/// One worker's endpoint.
pub struct LeakEndpoint {
    shared: LeakReports,
    /// Proxies whose `X-Forwarded-For` is trusted.
    trusted: TrustedProxies,
    /// Limits, by client address, reports that are not signed, and keys that are not known.
    attempts: AddressLimiter,
    served: ServedCalls,
}

impl LeakReports {
    /// Reports by these settings. Sends nothing to GitHub yet.
    ///
    /// # Errors
    /// A file of certificates is unusable.
    pub fn new(settings: &Settings, management: &Arc<Management>) -> Result<Self, Error> {
        let github = settings.github.as_ref().map(|address| GitHub::new(address, &settings.tls)).transpose()?;
        let path = settings.path.as_str().into();
        Ok(Self { path, github: github.map(Arc::new), management: Arc::clone(management) })
    }
}

impl LeakEndpoint {
    /// A worker's endpoint. Client addresses come from `trusted` proxies; `attempts` limits by them.
    pub fn new(shared: LeakReports, trusted: TrustedProxies, attempts: AddressLimiter, metrics: Metrics) -> Self {
        Self { shared, trusted, attempts, served: ServedCalls::new(metrics, ROUTE) }
    }

    /// Returns whether a path is the endpoint's.
    pub fn is_path(&self, path: &str) -> bool {
        path == SELF_REVOKE_PATH || self.shared.github.is_some() && path == &*self.shared.path
    }

    /// Handles one request. `presented` is the digest of the key that it presents. Never fails: errors and panics
    /// become responses. A change runs to its end even when the client disconnects.
    pub async fn handle(
        self: &Rc<Self>,
        peer: &Rc<Peer>,
        presented: Option<KeyDigest>,
        request: Request<Incoming>,
    ) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let (method, arrived) = (request.method().clone(), clock::now());
        let (this, peer) = (Rc::clone(self), Rc::clone(peer));
        let answer = async move {
            let answered = this.respond(&peer, presented, request, arrived).await;
            answered.unwrap_or_else(|error| this.problem(id, &error))
        };
        self.served.serve(id, &method, answer, || self.problem(id, &ManagementError::Internal)).await
    }

    fn problem(&self, id: Uuid, error: &ManagementError) -> Response<Bytes> {
        problem(self.shared.management.problem_types(), id, Mount::Network, error)
    }

    async fn respond(
        &self,
        peer: &Peer,
        presented: Option<KeyDigest>,
        request: Request<Incoming>,
        now: Micros,
    ) -> Result<Response<Bytes>, ManagementError> {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Err(ManagementError::MethodNotAllowed(Method::POST.to_string()));
        }
        let ip = Client::find(peer, &head.headers, &self.trusted).ip;
        // Counted before any work, and taken back after a success: those at the same time are bounded, too.
        if let Err(seconds) = self.attempts.count(ip, now) {
            self.served.metrics.attempts_refused.inc();
            return Err(ManagementError::TooManyRequests(seconds));
        }
        let client = ClientInfo::new(Some(ip), &head.headers);
        let now = self.shared.management.now();
        if head.uri.path() == SELF_REVOKE_PATH {
            read_body(body, 0).await?;
            let digest = presented.ok_or(ManagementError::KeyMissing)?;
            if management::revoke_own_key(&self.shared.management, &digest, client, now).await? {
                tracing::warn!(client = %ip, "a key has revoked itself");
                self.attempts.uncount(ip);
            }
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        let github = self.shared.github.as_deref().ok_or(ManagementError::NotFound)?;
        let matches = read_report(github, &head, body, now).await?;
        self.attempts.uncount(ip);
        let feedback = self.report(matches, &Actor::gateway(client), now).await?;
        let body = serde_json::to_vec(&feedback).expect("texts are JSON");
        Ok(build(StatusCode::OK, "application/json", body))
    }

    /// Reports findings one by one: of several in one report, most are no credentials of this installation.
    async fn report(&self, matches: Vec<Match>, actor: &Actor, now: Micros) -> Result<Vec<Feedback>, ManagementError> {
        let mut feedback = Vec::new();
        for found in matches {
            // Of another form, or mistyped: no credential of this installation.
            let text = found.token.as_bytes();
            if key::parse(text).is_none() && management_token::parse(text).is_none() {
                continue;
            }
            let secret = Secret::new(found.token.clone());
            let (source, url) = (found.source.as_deref(), found.url.as_deref());
            let leak = Leak { secret: &secret, source: source.unwrap_or_default(), url: url.unwrap_or_default() };
            let leaked = management::report_leak(&self.shared.management, actor, &leak, now).await?;
            feedback.push(Feedback::new(&found, leaked.is_some()));
        }
        Ok(feedback)
    }
}

/// Reads a report that GitHub has signed.
async fn read_report(
    github: &GitHub,
    head: &Parts,
    body: Incoming,
    now: Micros,
) -> Result<Vec<Match>, ManagementError> {
    let body = read_body(body, MAX_REPORT).await?;
    github.check(&head.headers, &body, now).await?;
    // Without the text of the error, which may repeat a value: a value is a key, as a rule.
    serde_json::from_slice(&body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        ManagementError::InvalidBody(format!("it is no list of findings (line {line}, column {column})"))
    })
}
