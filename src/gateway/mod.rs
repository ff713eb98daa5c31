//! The gateway: the life of a request, from its head to the last frame of its response.
//!
//! [`Gateway::handle`] takes each request through these steps:
//!
//! 1. **check** the head: what is malformed or too large is refused before the credential is read;
//! 2. **admission** finds the route, authenticates the caller and takes a token and a slot, or denies the request;
//!    on a public route, nothing of this is needed;
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
//! - A denied request costs no token and holds no slot. An admitted one has paid its token, whatever becomes of it;
//!   also when its audit entry could not be written.
//! - An exchange whose key, secret, user, organization or session is revoked while it is open is reset, within a second
//!   of the acknowledgement of the change (`open_exchanges`).
//! - A panic within a request is answered with 500 and harms no other request.

mod connection;
mod request;
mod head;
mod denial;
mod public;
mod cors;
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
mod caller_usage;
mod usage;
mod rate_limit;
mod catch_panic;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tracing::field::display;
use uuid::ContextV7;

use crate::admission::{Admission, Route};
use domain::address_limiter::AddressLimiter;
use domain::head_fields::FieldSet;
use domain::identity::Principal;
use domain::refusal::Refusal;
use edge::forward::{
    self, AllowedFeatures, ForwardContext, PassedFields, RequestFeatures, ResponseOrigin, TrustedProxies,
    UpstreamRequest, ValidatedHead,
};
use edge::transport::Settings;
use journal::audit::{AuditEntry, Journal, Unavailable, Use};
use platform::metrics::Metrics;
use platform::request_body::{BodyLimits, RequestBody};
use platform::telemetry::Observer;
use state::Admitted;
use upstream::Pool;

use catch_panic::catch_panic;
use exchange::{CallerGrant, Exchange, Grant};
use request::{Arrival, AuditTexts};

pub use connection::Connection;
pub use early_rejection::EarlyRejection;
pub use guarded_body::GuardedBody;
pub use open_exchanges::OpenExchanges;
pub use own_response::own_observed;
pub use public::{PublicLimits, PublicSettings};
pub use rate_limit::PolicyCache;
pub use usage::UsageReads;

/// One worker's gateway.
pub struct Gateway {
    /// Authenticates and authorizes requests.
    pub admission: Admission,
    /// Upstreams. A route knows its upstream by the place in this list.
    pub upstreams: Box<[Upstream]>,
    /// Limits attempts with invalid keys by address.
    pub bad_keys: AddressLimiter,
    /// Limits of requests without keys.
    pub public: PublicLimits,
    /// Audit journal.
    pub journal: Journal,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
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
    /// Values of `RateLimit-Policy`.
    pub policies: PolicyCache,
    /// Observes requests for the access log, traces and metrics by convention; none when all of them are off.
    pub observer: Option<Rc<Observer>>,
    /// Turns to read the usage of callers, shared by all workers.
    pub usage_reads: UsageReads,
}

/// One worker's access to an upstream.
pub struct Upstream {
    /// Connections.
    pub pool: Pool,
    /// Spoofable fields of clients that reach the upstream.
    pub passed_fields: PassedFields,
}

/// Future of a response. Boxed: the HTTP library has room for it on each connection, and moves it before it polls it.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response<GuardedBody>>>>;

/// Request that has not left for the upstream.
struct Unsent {
    head: ValidatedHead,
    body: Incoming,
}

/// Admitted request: its route, its exchange, and its head for the upstream.
type AdmittedRequest<'a> = (&'a Route, Box<Exchange>, Request<RequestBody>);

impl Gateway {
    /// Answers one request. Never fails: every refusal is a response, and so is a panic. To be called when the
    /// connection calls its service.
    ///
    /// A response that switches protocols hands its tunnel to the connection. `origin` is the one on which browsers see
    /// the response.
    pub fn handle(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        origin: ResponseOrigin,
        request: Request<Incoming>,
    ) -> ResponseFuture {
        let (head, body) = request.into_parts();
        let arrival = Arrival::new(self, connection, origin, &head);
        match self.check(head, arrival.fields, &body) {
            Ok(head) => Box::pin(Rc::clone(self).answer(arrival, Unsent { head, body })),
            Err(refusal) => {
                let response = self.early_rejection.refuse(refusal, &arrival);
                Box::pin(own_response::finish(response, arrival, Some(body)))
            }
        }
    }

    /// Checks what can be refused by the head alone. `fields` are those of a head that transport has scanned strictly.
    fn check(&self, head: Parts, fields: Option<FieldSet>, body: &Incoming) -> Result<ValidatedHead, Refusal> {
        let head = head::validate(head, fields, &self.settings)?;
        if body.size_hint().lower() > self.settings.max_body {
            return Err(Refusal::BodyTooLarge);
        }
        Ok(head)
    }

    /// Answers a request whose head was checked. This is the future that every request has: what is rare is boxed
    /// behind it.
    fn answer(self: Rc<Self>, arrival: Arrival, request: Unsent) -> impl Future<Output = Response<GuardedBody>> {
        // Taken when the request leaves for the upstream; a body that is left here is still unread.
        let mut unsent = Some(request);
        // A block and not an `async fn`, which has room for its arguments twice.
        async move {
            let response = match catch_panic(self.serve(&arrival, &mut unsent)).await {
                Some(response) => response,
                None => {
                    let trace_id = arrival.trace_id().map(display);
                    let request_id = display(arrival.id);
                    tracing::error!(request_id, trace_id, "the gateway panicked while handling a request");
                    self.metrics.panics.inc();
                    self.early_rejection.refuse(Refusal::InternalError, &arrival)
                }
            };
            match response.body() {
                GuardedBody::Upstream(_) => arrival.mark(response),
                GuardedBody::Own(_) => {
                    let unread = unsent.map(|request| request.body);
                    Box::pin(own_response::finish(response, arrival, unread)).await
                }
            }
        }
    }

    /// Admits a request, sends it to the upstream, and answers with its response.
    async fn serve(&self, arrival: &Arrival, unsent: &mut Option<Unsent>) -> Response<GuardedBody> {
        let (route, mut exchange, request) = match self.admit(arrival, unsent).await {
            Ok(admitted) => admitted,
            Err(refused) => return refused,
        };
        let now = Instant::now();
        self.metrics.overhead.observe(arrival.seconds_until(now));
        if let Some(caller) = exchange.take_usage() {
            return Box::pin(self.serve_usage(arrival, route, exchange, caller)).await;
        }
        let terms = exchange.send_terms(route, self.tunnel_idle);
        let received = self.upstreams[route.upstream].pool.send(request, terms, now).await;
        let response = match self.rewrite_response(received, &exchange, arrival) {
            Ok(response) => response,
            Err(refusal) => return own_response::own(exchange.fail(arrival, route, refusal)),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Box::pin(self.switch_protocols(arrival, route, response, exchange)).await;
        }
        self.respond(arrival, route, response, exchange)
    }

    /// Authorizes a request, opens its audit entry, and takes it through `forward` on its way to the upstream; or
    /// records and answers its denial. Apart from `serve`, whose future would have room for all of this while it waits
    /// for the upstream.
    async fn admit(
        &self,
        arrival: &Arrival,
        unsent: &mut Option<Unsent>,
    ) -> Result<AdmittedRequest<'_>, Response<GuardedBody>> {
        let head = &unsent.as_ref().expect("a request is admitted once").head;
        if let Some(response) = self.answer_preflight(arrival, head) {
            return Err(response);
        }
        let route = self.admission.find_route(head);
        if let Some(public) = &route.public {
            return self.admit_public(arrival, unsent, route, public).map_err(|refused| *refused);
        }
        // Before the decision: a request that cannot be recorded must not cost a token.
        if !self.journal.accepts_requests() {
            self.metrics.audit.refused.inc();
            return Err(self.early_rejection.refuse(Refusal::AuditUnavailable, arrival));
        }
        let result = self.admission.authorize(head, head.fields(), route, arrival.time).await;
        arrival.note_admission(head, route, &self.settings.credentials, || match &result {
            Ok(admitted) => Some(Arc::clone(&admitted.principal)),
            Err(denial) => denial.principal.clone(),
        });
        let admitted = match result {
            Ok(admitted) => admitted,
            Err(denial) => return Err(Box::pin(self.refuse(arrival, head, route, &denial)).await),
        };
        arrival.connection.count_admission();
        let Ok(entry) = self.open_entry(arrival, head, route, &admitted).await else {
            return Err(own_response::reject_unrecorded(arrival, &admitted, route));
        };
        let request = unsent.take().expect("a request is admitted once");
        let has_key_field = request.head.fields().contains(FieldSet::CREDENTIAL);
        let (request, features) = self.rewrite_request(arrival, route, Some(&admitted.principal), request);
        let grant = CallerGrant::new(self, arrival, route, admitted, entry, has_key_field);
        let exchange = Exchange::begin(self, arrival, route, Grant::Caller(grant), request.body().upload(), features);
        Ok((route, Box::new(exchange), request))
    }

    /// Writes the beginning of the audit record.
    fn open_entry(
        &self,
        arrival: &Arrival,
        head: &Parts,
        route: &Route,
        admitted: &Admitted,
    ) -> impl Future<Output = Result<AuditEntry, Unavailable>> + use<'_> {
        let texts = AuditTexts::new(head, route, &self.settings.credentials);
        let opening = Use {
            number: Some(admitted.number),
            provisional: admitted.provisional,
            ..arrival.opening(head, &texts, Some(&admitted.principal))
        };
        self.journal.begin_prepared(&opening, &arrival.connection.audit_fields)
    }

    /// Takes an admitted request through `forward` on its way to the upstream, with the identity of its caller, if any.
    /// Returns it with the features that the client asked for.
    fn rewrite_request(
        &self,
        arrival: &Arrival,
        route: &Route,
        principal: Option<&Principal>,
        request: Unsent,
    ) -> (Request<RequestBody>, RequestFeatures) {
        let context = ForwardContext {
            peer: &arrival.connection.peer,
            client: &arrival.client,
            principal,
            request_id: &arrival.id_header,
            strip_prefix: route.strip_prefix.as_deref(),
            credentials: &self.settings.credentials,
            pass_authorization: route.pass_authorization,
            allowed: AllowedFeatures { upgrade: &route.upgrade, trailers: route.trailers },
            passed: &self.upstreams[route.upstream].passed_fields,
            trace: arrival.observed.as_deref(),
        };
        let Unsent { head, body } = request;
        let UpstreamRequest { request, features, dropped_fields } =
            forward::rewrite_request(head, body.size_hint().exact(), context);
        self.metrics.fields_dropped.request.inc_by(dropped_fields as u64);
        let limits = if features.long_lived { &self.long_lived_limits } else { &self.body_limits };
        (request.map(|()| RequestBody::new(body, Rc::clone(limits))), features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of the future that a function returns.
    fn future_size<A, B, C, F: Future>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// Every request allocates it, and holds it to the head of its response.
    #[test]
    fn future_of_a_request_has_at_most_a_kibibyte() {
        let size = future_size(Gateway::answer);
        assert!(size <= 1024, "{size} bytes");
    }
}
