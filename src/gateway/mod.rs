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
mod rpc_protocol;
mod head;
mod admit;
mod denial;
mod audit_facts;
mod public;
mod cors;
mod preflight;
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
mod no_dashboard;
mod caller_usage;
mod usage;
mod metered_body;
mod metering;
mod rate_limit;
mod decisions;
mod catch_panic;

use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tracing::field::display;
use uuid::ContextV7;

use crate::admission::{Admission, websocket_key};
use domain::address_limiter::AddressLimiter;
use domain::head_fields::FieldSet;
use domain::head_memory::HeadMemory;
use domain::refusal::Refusal;
use edge::forward::{HostPolicy, PassedFields, ResponseOrigin, TrustedProxies, ValidatedHead};
use edge::transport::Settings;
use journal::audit::Journal;
use platform::metrics::Metrics;
use platform::request_body::BodyLimits;
use platform::telemetry::Observer;
use upstream::Pool;

use admit::ForwardedRequest;
use catch_panic::catch_panic;
use rejection::HeadRefusal;
use request::Arrival;

pub use connection::Connection;
pub use decisions::{CallBody, DecisionProtocol, DecisionSettings, DecisionSlots, Decisions, ProcessEnd};
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
    /// Memory of what is made for the head of one request.
    pub memory: HeadMemory,
    /// Observes requests for the access log, traces and metrics by convention; none when all of them are off.
    pub observer: Option<Rc<Observer>>,
    /// Turns to read the usage of callers, shared by all workers.
    pub usage_reads: UsageReads,
    /// Path of a dashboard by default, where browsers are told that there is none; none where there is one.
    pub dashboard_path: Option<&'static str>,
}

/// One worker's access to an upstream.
pub struct Upstream {
    /// Connections.
    pub pool: Pool,
    /// Spoofable fields of clients that reach the upstream.
    pub passed_fields: PassedFields,
    /// `Host` that it gets.
    pub host: HostPolicy,
}

/// Future of a response. Boxed: the HTTP library has room for it on each connection, and moves it before it polls it.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response<GuardedBody>>>>;

/// Request that has not left for the upstream.
struct Unsent {
    head: ValidatedHead,
    body: Incoming,
}

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
        let (mut head, body) = request.into_parts();
        let marker = self.settings.credentials.websocket_protocol();
        // First: nothing that notes fields or passes them on meets the key.
        let offers_key = marker.is_some_and(|marker| websocket_key::take(&mut head, marker));
        let arrival = Arrival::new(self, connection, origin, &head, offers_key);
        match self.check(head, arrival.fields, &body) {
            Ok(head) => Box::pin(Rc::clone(self).answer(arrival, Unsent { head, body })),
            Err(refusal) => {
                let response = self.early_rejection.refuse(refusal, &arrival);
                Box::pin(own_response::finish(response, arrival, Some(body)))
            }
        }
    }

    /// Checks what can be refused by the head alone. `fields` are those of a head that transport has scanned strictly.
    fn check(&self, head: Parts, fields: Option<FieldSet>, body: &Incoming) -> Result<ValidatedHead, HeadRefusal> {
        let head = head::validate(head, fields, &self.settings)?;
        if body.size_hint().lower() > self.settings.max_body {
            return Err(Refusal::BodyTooLarge.into());
        }
        Ok(head)
    }

    /// Answers a request whose head was checked. This is the future that every request has: what is rare is boxed
    /// behind it. `serve` takes the request out of the place that it is in, and does not return what it leaves there:
    /// as an argument and a result, head and body would stand in it twice.
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
                GuardedBody::Upstream(_) => own_response::mark(arrival, response),
                GuardedBody::Own(_) | GuardedBody::Call(_) => {
                    let response = self.explain(response, &arrival, unsent.as_ref());
                    let unread = unsent.map(|request| request.body);
                    Box::pin(own_response::finish(response, arrival, unread)).await
                }
            }
        }
    }

    /// Tells a browser that looks for the dashboard that there is none, where it lacks a credential.
    fn explain(
        &self,
        response: Response<GuardedBody>,
        arrival: &Arrival,
        unsent: Option<&Unsent>,
    ) -> Response<GuardedBody> {
        match (self.dashboard_path, unsent) {
            (Some(path), Some(unsent)) if arrival.lacks_credential() => {
                no_dashboard::explain(path, &unsent.head, response)
            }
            _ => response,
        }
    }

    /// Admits a request, sends it to the upstream, and answers with its response.
    async fn serve(&self, arrival: &Arrival, unsent: &mut Option<Unsent>) -> Response<GuardedBody> {
        let (route, mut exchange, ForwardedRequest { request, added }) = match self.admit(arrival, unsent).await {
            Ok(admitted) => admitted,
            Err(refused) => return refused,
        };
        let now = Instant::now();
        self.metrics.overhead.observe(arrival.seconds_until(now));
        if let Some(caller) = exchange.take_usage() {
            return Box::pin(self.serve_usage(arrival, route, exchange, caller)).await;
        }
        let terms = exchange.send_terms(route, self.tunnel_idle);
        let received = self.upstreams[route.upstream].pool.send(request, added, terms, now).await;
        let response = match self.rewrite_response(received, &exchange, arrival) {
            Ok(response) => response,
            Err(refusal) => return own_response::own(exchange.fail(arrival, route, refusal)),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Box::pin(self.switch_protocols(arrival, route, response, exchange)).await;
        }
        self.respond(arrival, route, response, exchange)
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
