//! The gateway: the life of a request, from its head to the last frame of its response.
//!
//! [`Gateway::handle`] takes each request through these steps:
//!
//! 1. **check** the head: what is malformed or too large is refused before the credential is read;
//! 2. **admission** authenticates the caller, finds the route and takes a token and a slot, or denies the request;
//! 3. **audit**: the entry is in the journal before the request leaves for the upstream;
//! 4. **forward** rewrites the head for the upstream;
//! 5. **upstream** sends the request and waits for the head of the response;
//! 6. **forward** checks and rewrites that head for the client;
//! 7. **respond**: the response's body, or the tunnel behind a 101, holds the permit and the audit entry to its end.
//!
//! Guarantees:
//!
//! - Exactly one audit record per use of a key, also when the client vanishes: the entry is closed by the `Exchange`,
//!   wherever that is dropped.
//! - The permit lives in the `Exchange`, too: it is given back after the last frame of the response body, or when the
//!   future is dropped at any of its awaits. At that time the connection has taken the last frame, and may still be
//!   sending it.
//! - A denied request costs no token and holds no slot. An admitted one has paid its token, whatever becomes of it; also
//!   when its audit entry could not be written.
//! - An exchange whose key, secret, user, organization or session is revoked while it is open is reset, within a second
//!   of the acknowledgement of the change (`open_exchanges`).
//! - A panic within a request is answered with 500 and harms no other request.

mod connection;
mod request;
mod head;
mod denial;
mod exchange;
mod open_exchanges;
mod exchange_slots;
mod credential_checks;
mod response;
mod guarded_body;
mod tunnel;
mod rejection;
mod early_rejection;
mod own_response;
mod rate_limit;
mod catch_panic;

use std::rc::Rc;
use std::time::Duration;

use http::header::EXPECT;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use uuid::ContextV7;

use crate::admission::{Admission, Authorization, Route};
use crate::audit::{AuditEntry, Journal, Unavailable, Use};
use crate::failed_auth::FailedAuthLimiter;
use crate::forward::{
    self, AllowedFeatures, ForwardContext, PassedFields, RequestFeatures, ResponseOrigin, TrustedProxies,
    UpstreamRequest, ValidatedHead,
};
use crate::identity::{Principal, X_REQUEST_ID};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::request_body::{BodyLimits, RequestBody};
use crate::state::Admitted;
use crate::transport::{ExchangeHandle, Settings};
use crate::upstream::{Pool, ResponseBody, UpstreamResponse};

use catch_panic::catch_panic;
use exchange::Exchange;
use rate_limit::RateLimitFields;
use rejection::Rejection;
use request::Arrival;

pub use connection::Connection;
pub use early_rejection::EarlyRejection;
pub use guarded_body::GuardedBody;
pub use open_exchanges::OpenExchanges;

/// One worker's gateway.
pub struct Gateway {
    /// Authenticates and authorizes requests.
    pub admission: Admission,
    /// Upstream pool.
    pub upstream: Pool,
    /// Limits attempts with invalid keys by address.
    pub failed_auth: FailedAuthLimiter,
    /// Audit journal.
    pub journal: Journal,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
    /// Claims of clients that reach the upstream.
    pub passed_fields: PassedFields,
    /// Sizes of heads and bodies.
    pub settings: Settings,
    /// Limits of request bodies.
    pub body_limits: Rc<BodyLimits>,
    /// Limits of request bodies of long-lived exchanges.
    pub long_lived_limits: Rc<BodyLimits>,
    /// Metrics.
    pub metrics: Metrics,
    /// Answers requests that are refused before their route is known.
    pub early_rejection: EarlyRejection,
    /// Time without a byte after which a tunnel, or a long-lived exchange, ends.
    pub tunnel_idle: Duration,
    /// Open exchanges of this worker, which end when their credential is revoked.
    pub open: OpenExchanges,
    /// Keeps the request ids of this worker unique and in order.
    pub ids: ContextV7,
}

impl Gateway {
    /// Answers one request. Never fails: every refusal is a response, and so is a panic.
    ///
    /// A response that switches protocols hands its tunnel to `downstream`. `origin` is the one on which browsers see the
    /// response.
    pub async fn handle(
        &self,
        connection: &Connection,
        downstream: &ExchangeHandle,
        origin: ResponseOrigin,
        request: Request<Incoming>,
    ) -> Response<GuardedBody> {
        let (head, body) = request.into_parts();
        let arrival = Arrival { origin, ..Arrival::new(self, connection, downstream, &head) };
        let expects_continue = head.headers.contains_key(EXPECT);
        // Taken when the request goes to the upstream; a body that is left here is still unread.
        let mut body = Some(body);
        let mut response = match self.check(head, &body) {
            Ok(head) => match catch_panic(self.admit(&arrival, head, &mut body)).await {
                Some(response) => response,
                None => {
                    tracing::error!(request_id = %arrival.id, "the gateway panicked while handling a request");
                    self.metrics.panics.inc();
                    self.early_rejection.refuse(Refusal::InternalError, arrival.id)
                }
            },
            Err(refusal) => self.early_rejection.refuse(refusal, arrival.id),
        };
        response.headers_mut().insert(X_REQUEST_ID, arrival.id_header);
        // A client that expects 100-continue has not sent its body, and will not after a refusal.
        let is_unread = match body {
            Some(body) => expects_continue || !own_response::drain(body).await,
            None => false,
        };
        own_response::finish(response, arrival.is_head, is_unread)
    }

    /// Checks what can be refused by the head alone.
    fn check(&self, head: Parts, body: &Option<Incoming>) -> Result<ValidatedHead, Refusal> {
        head::check_size(&head, &self.settings)?;
        let head = ValidatedHead::validate(head)?;
        if body.as_ref().is_some_and(|body| body.size_hint().lower() > self.settings.max_body) {
            return Err(Refusal::BodyTooLarge);
        }
        // Before the decision: a request that cannot be recorded must not cost a token.
        if !self.journal.accepts_requests() {
            self.metrics.audit.refused.inc();
            return Err(Refusal::AuditUnavailable);
        }
        Ok(head)
    }

    /// Authorizes a request, opens its audit entry, rewrites it and sends it to the upstream; or records and answers its
    /// denial.
    async fn admit(
        &self,
        arrival: &Arrival<'_>,
        head: ValidatedHead,
        body: &mut Option<Incoming>,
    ) -> Response<GuardedBody> {
        let Authorization { route, result } = self.admission.authorize(&head, arrival.time).await;
        let admitted = match result {
            Ok(admitted) => admitted,
            Err(denial) => return self.refuse(arrival, &head, route, &denial).await,
        };
        arrival.connection.count_admission();
        let rate_limit = RateLimitFields::new(admitted.rate_limit, admitted.principal.method);
        let Ok(entry) = self.open_entry(arrival, &head, route, &admitted).await else {
            let rejection = Rejection::with_rate_limit(Refusal::AuditUnavailable, rate_limit);
            return own_response::reject(arrival, &rejection, &route.metrics);
        };
        let body = body.take().expect("a request is admitted once");
        let (request, features) = self.rewrite_request(arrival, head, body, &admitted.principal, route);
        let mut exchange = self.begin_exchange(arrival, admitted, entry, request.body(), route);
        exchange.trailers = features.trailers.then(|| self.metrics.fields_dropped.response.clone());
        self.send(arrival, route, request, &features, exchange, rate_limit).await
    }

    /// Writes the beginning of the audit record.
    async fn open_entry(
        &self,
        arrival: &Arrival<'_>,
        head: &Parts,
        route: &Route,
        admitted: &Admitted,
    ) -> Result<AuditEntry, Unavailable> {
        let action = arrival.action(head, route);
        let opening = Use {
            number: Some(admitted.number),
            provisional: admitted.provisional,
            ..arrival.opening(head, route, &action, Some(&admitted.principal))
        };
        self.journal.begin(&opening).await
    }

    /// Takes the request through `forward` on its way to the upstream.
    fn rewrite_request(
        &self,
        arrival: &Arrival<'_>,
        head: ValidatedHead,
        body: Incoming,
        principal: &Principal,
        route: &Route,
    ) -> (Request<RequestBody>, RequestFeatures) {
        let context = ForwardContext {
            peer: arrival.peer,
            client: &arrival.client,
            principal,
            request_id: &arrival.id_header,
            allowed: AllowedFeatures { upgrade: &route.upgrade, trailers: route.trailers },
            passed: &self.passed_fields,
        };
        let UpstreamRequest { request, features, dropped_fields } =
            forward::rewrite_request(head, body.size_hint().exact(), context);
        self.metrics.fields_dropped.request.inc_by(dropped_fields as u64);
        let limits = if features.long_lived { &self.long_lived_limits } else { &self.body_limits };
        (request.map(|()| RequestBody::new(body, Rc::clone(limits))), features)
    }

    /// Sends the request to the upstream, and answers with its response, whose body holds the exchange.
    async fn send(
        &self,
        arrival: &Arrival<'_>,
        route: &Route,
        request: Request<RequestBody>,
        features: &RequestFeatures,
        exchange: Exchange,
        rate_limit: RateLimitFields,
    ) -> Response<GuardedBody> {
        self.metrics.overhead.observe(arrival.seconds());
        let long_lived = features.long_lived.then_some(self.tunnel_idle);
        let received = match self.upstream.send(request, long_lived).await {
            Ok(response) => self.rewrite_response(response, features, arrival.origin),
            Err(error) => {
                tracing::debug!(%error, "no response from the upstream");
                Err(Refusal::from(&error))
            }
        };
        match received {
            Ok(response) => {
                route.metrics.count_response(response.status());
                self.respond(arrival, response, exchange, &rate_limit).await
            }
            Err(refusal) => own_response::own(exchange.fail(arrival, route, refusal, rate_limit)),
        }
    }

    /// Takes the response through `forward` on its way to the client. An invalid response closes its connection.
    fn rewrite_response(
        &self,
        mut response: UpstreamResponse,
        features: &RequestFeatures,
        origin: ResponseOrigin,
    ) -> Result<Response<ResponseBody>, Refusal> {
        match forward::rewrite_response(&mut response.head, features, origin) {
            Ok(dropped_fields) => {
                self.metrics.fields_dropped.response.inc_by(dropped_fields);
                Ok(response.accept())
            }
            Err(error) => {
                tracing::debug!(%error, "the upstream's response is invalid and is not forwarded");
                response.reject();
                Err(Refusal::UpstreamFailed)
            }
        }
    }
}
