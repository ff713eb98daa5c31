//! Token exchange (RFC 8693): a CI presents a token of its own identity, and gets a key for a while.
//!
//! - One path, of listeners for the API. Without the block `federation` of the configuration it is the upstream's.
//! - The audience of a request names a federation rule; only issuers of rules are asked for their keys.
//! - What one client address may try is bounded, as sign-ins are: an attempt counts until it has succeeded.
//! - Nothing of a token is repeated, but the name of a claim that does not match. The log also names its audiences.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::management;
use crate::management::{ClientInfo, Management, ManagementError};
use crate::oidc::{Error, Issuer, SubjectToken, SubjectTokenError};
use crate::served_calls::ServedCalls;
use domain::address_limiter::AddressLimiter;
use domain::clock::{self, Micros};
use domain::identity::Peer;
use edge::forward::{Client, TrustedProxies};
use platform::metrics::Metrics;
use platform::tls::ClientSettings;

mod request;
mod response;

use request::ExchangeRequest;

/// Value of the metrics' label `route` for all exchanges.
const ROUTE: &str = "token-exchange";
/// Issuers that are kept at a time. Only rules name them, and those of an installation are a few.
const MAX_ISSUERS: usize = 256;

/// Settings of token exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The path of the endpoint.
    pub path: String,
    /// The authorities that the certificates of issuers must come from.
    pub tls: ClientSettings,
}

/// The part of the token exchange that all workers share, so that an issuer's documents are read once.
#[derive(Clone)]
pub struct TokenExchange {
    settings: Arc<Settings>,
    issuers: Arc<Issuers>,
    management: Arc<Management>,
}

/// One worker's endpoint.
pub struct TokenEndpoint {
    shared: TokenExchange,
    /// Proxies whose `X-Forwarded-For` is trusted.
    trusted: TrustedProxies,
    /// Limits exchanges that have not succeeded, by client address.
    attempts: AddressLimiter,
    served: ServedCalls,
}

impl TokenExchange {
    /// Token exchange by these settings. Sends nothing to any issuer yet.
    pub fn new(settings: &Settings, management: &Arc<Management>) -> Self {
        Self {
            settings: Arc::new(settings.clone()),
            issuers: Arc::new(Issuers::new(settings.tls.clone())),
            management: Arc::clone(management),
        }
    }
}

impl TokenEndpoint {
    /// A worker's endpoint. Client addresses come from `trusted` proxies; `attempts` limits exchanges by them.
    pub fn new(shared: TokenExchange, trusted: TrustedProxies, attempts: AddressLimiter, metrics: Metrics) -> Self {
        Self { shared, trusted, attempts, served: ServedCalls::new(metrics, ROUTE) }
    }

    /// Returns whether a path is the endpoint's.
    pub fn is_path(&self, path: &str) -> bool {
        path == self.shared.settings.path
    }

    /// Handles one request. Never fails: errors and panics become responses. It runs to its end even when the client
    /// disconnects, so that no change is abandoned halfway.
    pub async fn handle(self: &Rc<Self>, peer: &Rc<Peer>, request: Request<Incoming>) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let (method, arrived) = (request.method().clone(), clock::now());
        let (this, peer) = (Rc::clone(self), Rc::clone(peer));
        let answer = async move { this.respond(id, &peer, request, arrived).await };
        self.served.serve(id, &method, answer, || response::failure(id, &ManagementError::ExchangeFailed)).await
    }

    async fn respond(&self, id: Uuid, peer: &Peer, request: Request<Incoming>, now: Micros) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        let ip = Client::find(peer, &head.headers, &self.trusted).ip;
        // Counted before any work, and taken back after a success: those at the same time are bounded, too.
        if let Err(seconds) = self.attempts.count(ip, now) {
            self.served.metrics.attempts_refused.inc();
            return response::failure(id, &ManagementError::TooManyExchanges(seconds));
        }
        let client = ClientInfo::new(Some(ip), &head.headers);
        match self.exchange(head, body, &client).await {
            Ok(response) => {
                self.attempts.uncount(ip);
                response
            }
            Err(error) => {
                if response::is_of_gateway(&error) {
                    self.attempts.uncount(ip);
                }
                let cause = error.in_full();
                let code = response::shown(&error).code();
                tracing::warn!(request_id = %id, client = %ip, code, cause, "token exchange refused");
                response::failure(id, &error)
            }
        }
    }

    async fn exchange(
        &self,
        head: Parts,
        body: Incoming,
        client: &ClientInfo,
    ) -> Result<Response<Bytes>, ManagementError> {
        let request = ExchangeRequest::read(&head, body).await?;
        let management = &self.shared.management;
        // First, so that a token of another form is refused as such, whatever the audience names.
        let malformed = || ManagementError::from(SubjectTokenError::from(Error::Malformed));
        let claimed = SubjectToken::claimed_issuer(&request.subject_token).ok_or_else(malformed)?;
        let now = management.now();
        let target = management::find_exchange_target(management, &request.audience).await?;
        // A token of another issuer is told nothing about the rule, not even that there is one.
        if claimed != target.issuer() {
            return Err(ManagementError::UnknownTarget);
        }
        let issuer = self.shared.issuers.find(target.issuer())?;
        let token = issuer.verify(&request.subject_token, target.audiences(), now).await?;
        let key = management::exchange_token(management, &target, &token, request.scope, client, now).await?;
        Ok(response::success(&key, now))
    }
}

/// Issuers that tokens were presented of, shared by all threads.
struct Issuers {
    tls: ClientSettings,
    known: Mutex<HashMap<String, Arc<Issuer>>>,
}

impl Issuers {
    /// None yet; `tls` has the authorities that their certificates must come from.
    fn new(tls: ClientSettings) -> Self {
        Self { tls, known: Mutex::default() }
    }

    /// The issuer of a rule.
    ///
    /// # Errors
    /// It has no address that may be asked for its keys, or a file of certificates is unusable.
    fn find(&self, issuer: &str) -> Result<Arc<Issuer>, SubjectTokenError> {
        if let Some(known) = self.known.lock().get(issuer) {
            return Ok(Arc::clone(known));
        }
        // Without the lock: the files of certificates are read.
        let new = Arc::new(Issuer::new(issuer, &self.tls).map_err(|error: Error| SubjectTokenError::from(error))?);
        let mut known = self.known.lock();
        if known.len() >= MAX_ISSUERS {
            // Those of rules that are gone leave with the others, whose documents are read again.
            known.clear();
        }
        Ok(Arc::clone(known.entry(issuer.to_owned()).or_insert(new)))
    }
}

impl fmt::Debug for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenEndpoint").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}
