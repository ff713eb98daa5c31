//! The story of a request, from its head to the last frame of its response.
//!
//! [`Gateway::handle`] reads like the list in the crate's documentation. What holds throughout:
//!
//! - Exactly one audit record per use of a key, also when the client vanishes: the entry is opened before the request
//!   leaves for the upstream, and closed by what the response body holds, wherever that is dropped.
//! - The permit lives in the same place: it is given back after the last frame of the response body, or when the future
//!   is dropped at any of its awaits. The connection has then taken the last frame, and may still be sending it.
//! - A request that is refused admission costs no token and holds no slot. An admitted one has paid its token, whatever
//!   becomes of it; so has one whose record cannot be written just then.
//! - Removal of hop-by-hop fields and of the client's identity fields comes before our identity fields are set.

mod catch_panic;
mod guarded_body;
mod head;
mod rate_limit;
mod denial;
mod early_rejection;
mod rejection;
mod request;
mod response;
mod tunnel;

use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use uuid::ContextV7;

use crate::admission::{Admission, Route};
use crate::audit::{AuditEntry, Journal, Outcome, Use};
use crate::failed_auth::FailedAuthLimiter;
use crate::forward::{
    self, AllowedFeatures, ForwardContext, RequestFeatures, TrustedProxies, UpstreamRequest, ValidatedHead,
};
use crate::identity::{Peer, X_REQUEST_ID};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::request_body::{BodyLimits, RequestBody};
use crate::state::Admitted;
use crate::transport::{Settings, UpgradeSlot};
use crate::upstream::{Pool, SendError, SendOptions};

use catch_panic::catch_panic;
use guarded_body::Exchange;
use rate_limit::RateLimitFields;
use rejection::Rejection;
use request::{Arrival, own};

pub use early_rejection::EarlyRejection;
pub use guarded_body::GuardedBody;

/// One worker's gateway.
pub struct Gateway {
    /// Who may enter.
    pub admission: Admission,
    /// The way on.
    pub upstream: Pool,
    /// How often bad keys may be tried.
    pub failed_auth: FailedAuthLimiter,
    /// What is remembered.
    pub journal: Journal,
    /// Whose word on addresses is taken.
    pub trusted_proxies: TrustedProxies,
    /// Sizes and time-outs.
    pub settings: Settings,
    /// What request bodies may be like.
    pub body_limits: Rc<BodyLimits>,
    /// What the bodies of requests may be like that go on for as long as both sides like.
    pub long_lived_limits: Rc<BodyLimits>,
    /// What is counted.
    pub metrics: Metrics,
    /// What is counted of requests that never got a route.
    pub early_rejection: EarlyRejection,
    /// How long nothing may go through a tunnel.
    pub tunnel_idle: Duration,
    /// What keeps this worker's request ids unique and in order.
    pub ids: ContextV7,
}

impl Gateway {
    /// Answers one request. Never fails: every "no" is a response, and so is a panic.
    ///
    /// By `upgrade_slot` a response that switches protocols takes over the connection.
    pub async fn handle(
        &self,
        peer: &Peer,
        upgrade_slot: &UpgradeSlot,
        request: Request<Incoming>,
    ) -> Response<GuardedBody> {
        let (head, body) = request.into_parts();
        let arrival = Arrival::new(peer, upgrade_slot, &head, &self.trusted_proxies, &self.ids);
        let expects = head.headers.contains_key(EXPECT);
        let id = arrival.id_header();
        // Taken when it goes to the upstream.
        let mut body = Some(body);
        let mut response = match self.check(head, &body) {
            Ok(head) => match catch_panic(self.admit(&arrival, &id, head, &mut body)).await {
                Some(response) => response,
                None => {
                    tracing::error!(request_id = %arrival.id, "the gateway failed in the middle of a request");
                    self.metrics.panics.inc();
                    self.early_rejection.refuse(Refusal::InternalError, arrival.id)
                }
            },
            Err(refusal) => self.early_rejection.refuse(refusal, arrival.id),
        };
        response.headers_mut().insert(X_REQUEST_ID, id);
        let unread = match body {
            Some(body) => expects || !read_along(body).await,
            None => false,
        };
        finish(response, arrival.is_head, unread)
    }

    /// What can be refused by its head alone.
    fn check(&self, head: Parts, body: &Option<Incoming>) -> Result<ValidatedHead, Refusal> {
        head::check(&head, &self.settings)?;
        let head = ValidatedHead::validate(head)?;
        if body.as_ref().is_some_and(|body| body.size_hint().lower() > self.settings.max_body) {
            return Err(Refusal::BodyTooLarge);
        }
        if !self.journal.accepts_requests() {
            self.metrics.audit.refused.inc();
            return Err(Refusal::AuditUnavailable);
        }
        Ok(head)
    }

    /// Asks admission, records the use, and has the request rewritten and sent on; or records the refusal.
    async fn admit(
        &self,
        arrival: &Arrival<'_>,
        id: &HeaderValue,
        head: ValidatedHead,
        body: &mut Option<Incoming>,
    ) -> Response<GuardedBody> {
        let authorization = self.admission.authorize(&head, arrival.time).await;
        let admitted = match authorization.result {
            Ok(admitted) => admitted,
            Err(denial) => return self.refuse(arrival, &head, authorization.route, &denial).await,
        };
        let action = arrival.action(&head, authorization.route);
        let fields = RateLimitFields::new(admitted.rate_limit, admitted.principal.method);
        let opening = Use {
            number: Some(admitted.number),
            provisional: admitted.provisional,
            ..arrival.opening(&head, authorization.route, &action, Some(&admitted.principal))
        };
        let Ok(entry) = self.journal.begin(&opening).await else {
            let rejection = Rejection::with_rate_limit(Refusal::AuditUnavailable, fields);
            return arrival.reject(&rejection, &authorization.route.metrics);
        };
        let facts = ForwardContext {
            peer: arrival.peer,
            client: &arrival.client,
            principal: &admitted.principal,
            request_id: id,
        };
        let body = body.take().expect("a request is admitted once");
        let (request, asked) = self.rewritten(head, body, facts, authorization.route);
        let mut exchange = self.exchange(arrival, admitted, entry, request.body(), authorization.route);
        exchange.trailers = asked.trailers.then(|| self.metrics.fields_dropped.response.clone());
        self.send(arrival, authorization.route, request, &asked, exchange, fields).await
    }

    /// The request as it goes to the upstream, and what it asks for beyond a plain exchange.
    fn rewritten(
        &self,
        head: ValidatedHead,
        body: Incoming,
        facts: ForwardContext<'_>,
        route: &Route,
    ) -> (Request<RequestBody>, RequestFeatures) {
        let passes = AllowedFeatures { upgrade: &route.upgrade, trailers: route.trailers };
        let asked = RequestFeatures::from_head(&head, body.is_end_stream(), passes);
        let UpstreamRequest { mut request, dropped_fields } = forward::rewrite_request(head, facts);
        self.metrics.fields_dropped.request.inc_by(dropped_fields as u64);
        forward::frame(&mut request, body.size_hint().exact());
        asked.write_headers(request.headers_mut());
        let limits = if asked.long_lived { &self.long_lived_limits } else { &self.body_limits };
        (request.map(|()| RequestBody::new(body, Rc::clone(limits))), asked)
    }

    /// Sends the request through the upstream, and returns its response with what the request holds.
    async fn send(
        &self,
        arrival: &Arrival<'_>,
        route: &Route,
        request: Request<RequestBody>,
        asked: &RequestFeatures,
        mut exchange: Exchange,
        fields: RateLimitFields,
    ) -> Response<GuardedBody> {
        self.metrics.overhead.observe(arrival.seconds());
        let upload = exchange.upload.clone();
        let options = SendOptions {
            uploaded: &|| upload.received_bytes(),
            inspect: &|head| {
                self.metrics.fields_dropped.response.inc_by(forward::rewrite_response(head, asked)?);
                Ok(())
            },
            long_lived: asked.long_lived.then_some(self.tunnel_idle),
        };
        match self.upstream.send(request, &options).await {
            Ok(response) => {
                route.metrics.count_response(response.status());
                self.respond(arrival, response, exchange, &fields).await
            }
            Err(failure) => {
                let refusal = end_failed(&failure, &mut exchange);
                let response = Rejection::with_rate_limit(refusal, fields).response(arrival.id);
                exchange.status = Some(response.status());
                exchange.sent = arrival.sent(&response);
                route.metrics.count_response(response.status());
                own(response)
            }
        }
    }

    /// What the request holds from now on.
    fn exchange(
        &self,
        arrival: &Arrival<'_>,
        admitted: Admitted,
        entry: AuditEntry,
        body: &RequestBody,
        route: &Route,
    ) -> Exchange {
        self.metrics.in_flight.inc();
        Exchange {
            _permit: admitted.permit,
            entry: Some(entry),
            arrived: arrival.time,
            upload: body.upload(),
            status: None,
            sent: 0,
            tunnelled: 0,
            trailers: None,
            outcome: None,
            in_flight: self.metrics.in_flight.clone(),
            duration: route.metrics.duration.clone(),
        }
    }
}

/// Bytes of a refused request's body that are read, so that its connection can be used again.
const READ_ALONG: u64 = 8 * 1024;
/// How long they are waited for: they usually come along with the head.
const READ_PATIENCE: Duration = Duration::from_millis(500);

/// Reads past a body that nobody wants; says whether its end was seen.
async fn read_along(mut body: Incoming) -> bool {
    if body.size_hint().exact().is_none_or(|length| length > READ_ALONG) {
        return false;
    }
    let read = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(READ_PATIENCE, read).await.unwrap_or(false)
}

/// The last touch on the gateway's own answers: no body in answer to `HEAD` (RFC 9110, section 9.3.2), and no next
/// request on a connection on which much of this one may still come.
fn finish(mut response: Response<GuardedBody>, is_head: bool, unread: bool) -> Response<GuardedBody> {
    let GuardedBody::Own(body) = response.body() else { return response };
    let length = body.size_hint().lower();
    if unread {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if is_head {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        *response.body_mut() = GuardedBody::Own(Full::default());
    }
    response
}

/// Ends an exchange without a response from the upstream. When the request's body failed, that is the cause.
fn end_failed(failure: &SendError, exchange: &mut Exchange) -> Refusal {
    let refusal = exchange.upload.error().map_or_else(|| Refusal::from(failure), Refusal::from);
    exchange.end(Outcome::of_refusal(refusal).unwrap_or(Outcome::UpstreamError));
    tracing::debug!(%failure, "no response from the upstream");
    refusal
}
