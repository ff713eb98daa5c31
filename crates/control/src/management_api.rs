//! The API of management over the network, for programs such as pipelines and Terraform: a mount of the
//! [API](crate::api).
//!
//! - A management token ([`domain::management_token`]) is the only credential. The state is asked for it at each call,
//!   so that a revocation holds from the next call on.
//! - Calls are bounded: so many of each token, and so many with wrong tokens from each address.
//! - A call that changes something runs to its end when its client is gone.
//! - Its description (`docs/openapi.json`) is served without a token.

use std::rc::Rc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::api::{Api, Mount, build, document, find, problem};
use crate::management::{self, Actor, ManagementError, Program, RouteError};
use crate::person_limiter::{Bucket, PersonLimiter};
use crate::request::ControlRequest;
use crate::served_calls::ServedCalls;
use domain::address_limiter::AddressLimiter;
use domain::clock::Micros;
use domain::identity::{Peer, PersonId};
use domain::management_token::TokenId;
use domain::quota::Quota;
use edge::forward::TrustedProxies;
use platform::metrics::Metrics;
use platform::tls::CertificateFacts;

/// Path of the API.
pub const BASE: &str = "/v1";
/// Value of the metrics' label `route` for all calls.
const ROUTE: &str = "management";
/// Path of the API's description below that of the API.
const DOCUMENT_PATH: &str = "openapi.json";

/// Limiter of calls by token, shared by all workers.
#[derive(Clone, Debug)]
pub struct CallLimiter(PersonLimiter);

impl CallLimiter {
    /// A limiter that allows each token the calls of this quota.
    pub fn new(calls: Quota) -> Self {
        Self(PersonLimiter::new(calls))
    }

    /// Counts a call of a token.
    fn count(&self, token: TokenId, now: Micros) -> Result<(), ManagementError> {
        let bucket = Bucket::Requests(PersonId::from_token(token));
        self.0.count_request(bucket, now).map_err(ManagementError::TooManyCalls)
    }
}

/// One worker's management API.
pub struct ManagementApi {
    api: Api,
    /// Limits calls by token.
    calls: CallLimiter,
    /// Proxies whose `X-Forwarded-For` is trusted.
    trusted: TrustedProxies,
    /// Limits calls with wrong tokens by client address.
    attempts: AddressLimiter,
    served: ServedCalls,
}

impl ManagementApi {
    /// A worker's API. `calls` limits the calls of each token. Client addresses come from `trusted` proxies; `attempts`
    /// limits wrong tokens by them.
    pub fn new(
        api: Api,
        calls: CallLimiter,
        trusted: TrustedProxies,
        attempts: AddressLimiter,
        metrics: Metrics,
    ) -> Self {
        Self { api, calls, trusted, attempts, served: ServedCalls::new(metrics, ROUTE) }
    }

    /// Handles one call. Never fails: errors and panics become responses.
    pub async fn handle(self: &Rc<Self>, peer: &Rc<Peer>, request: Request<Incoming>) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let method = request.method().clone();
        let (this, peer) = (Rc::clone(self), Rc::clone(peer));
        let answer = async move { this.respond(id, &peer, request).await };
        self.served.serve(id, &method, answer, || self.problem(id, &ManagementError::Internal)).await
    }

    fn problem(&self, id: Uuid, error: &ManagementError) -> Response<Bytes> {
        problem(self.api.management().problem_types(), id, Mount::Network, error)
    }

    async fn respond(&self, id: Uuid, peer: &Peer, request: Request<Incoming>) -> Response<Bytes> {
        let result = async {
            if !request.uri().path().starts_with("/v1/") {
                return Err(ManagementError::NotFound);
            }
            let management = self.api.management();
            let request = ControlRequest::read(BASE, id, peer, &self.trusted, request, management).await?;
            self.perform(peer, &request).await
        };
        result.await.unwrap_or_else(|error| self.problem(id, &error))
    }

    async fn perform(&self, peer: &Peer, request: &ControlRequest) -> Result<Response<Bytes>, ManagementError> {
        let segments = request.segments();
        if segments == [DOCUMENT_PATH] && request.route_method() == "GET" {
            return Ok(build(StatusCode::OK, "application/json", document(Mount::Network)));
        }
        let program = self.authenticate(peer, request).await?;
        management::note_token_use(self.api.management(), &program, request.now);
        self.calls.count(program.token.id, request.now)?;
        // Which paths there are is told to programs with a token alone.
        if segments == [DOCUMENT_PATH] {
            return Err(RouteError::new(["GET"].into_iter()).into());
        }
        let found = find(Mount::Network, request.route_method(), &segments)?;
        let answer = self.api.perform(Actor::Program(Box::new(program)), request, &found).await?;
        Ok(self.api.respond(request, answer))
    }

    /// The program whose token a call presents. Wrong tokens are counted by the address of the client.
    async fn authenticate(&self, peer: &Peer, request: &ControlRequest) -> Result<Program, ManagementError> {
        let presented = bearer(&request.headers).ok_or(ManagementError::TokenMissing)?;
        let certificate = peer.certificate.as_deref().and_then(CertificateFacts::from_der);
        let names = certificate.map(|facts| [facts.names, facts.uris].concat()).unwrap_or_default();
        let client = request.client.clone();
        let authenticated =
            management::authenticate_token(self.api.management(), presented, &names, client, request.now).await;
        authenticated.map_err(|refusal| match (refusal, request.client.ip) {
            (refusal @ ManagementError::TokenUnverified(_), _) | (refusal, None) => refusal,
            (refusal, Some(ip)) => match self.attempts.count(ip, request.now) {
                Ok(()) => refusal,
                Err(seconds) => ManagementError::TooManyAttempts(seconds),
            },
        })
    }
}

/// The credential of the only `Authorization` field, if it is of the scheme `Bearer` (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).into_iter();
    let (Some(only), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, credential) = only.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| credential.trim_ascii())
}
