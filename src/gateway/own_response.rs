//! Responses that the gateway writes itself, and what becomes of the bodies of requests that it refuses.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderValue, Response, Version};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use tokio::task::spawn_local;
use tokio::time::timeout;
use uuid::Uuid;

use super::Gateway;
use super::connection::Connection;
use super::guarded_body::{GuardedBody, OwnBody};
use super::rate_limit::RateLimitFields;
use super::rejection::Rejection;
use super::request::Arrival;
use super::rpc_protocol::RpcProtocol;
use crate::admission::Route;
use domain::clock;
use domain::identity::X_REQUEST_ID;
use domain::refusal::Refusal;
use platform::metrics::RouteMetrics;
use platform::telemetry::{HeadFacts, ObservedRequest, RequestFacts};
use state::Admitted;

/// Bytes of a refused request's body that are read and dropped, so that its connection can be used again.
const MAX_DRAINED: u64 = 8 * 1024;
/// Time in which they must come. Usually they come along with the head.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes that are still taken from a stream of HTTP/2 whose request was refused, and the time for which they are.
const MAX_LINGERING: u64 = 1024 * 1024;
const LINGER: Duration = Duration::from_millis(500);

/// Wraps a response of the gateway itself.
pub(super) fn own(response: Response<Bytes>) -> Response<GuardedBody> {
    response.map(|body| GuardedBody::Own(OwnBody { body: Full::new(body), observed: None }))
}

/// Sets `X-Request-Id` of any response and what pages of other origins may do with it, and notes its status.
pub(super) fn mark<B>(arrival: Arrival, mut response: Response<B>) -> Response<B> {
    arrival.note(|facts| facts.status = Some(response.status()));
    if let Some(cors) = &arrival.cors {
        cors.write(response.headers_mut());
    }
    response.headers_mut().insert(X_REQUEST_ID, arrival.id_header);
    response
}

/// Builds and counts the response to a refused request.
pub(super) fn reject(arrival: &Arrival, rejection: &Rejection<'_>, metrics: &RouteMetrics) -> Response<GuardedBody> {
    let response = rejection.respond_to(arrival);
    metrics.count_response(response.status());
    own(response)
}

/// Builds and counts the response to an admitted request whose audit record cannot be written.
pub(super) fn reject_unrecorded(arrival: &Arrival, admitted: &Admitted, route: &Route) -> Response<GuardedBody> {
    let rate_limit = RateLimitFields::new(admitted.rate_limit.clone(), admitted.principal.method);
    reject(arrival, &Rejection::with_rate_limit(Refusal::AuditUnavailable, rate_limit), &route.metrics)
}

/// Finishes a response of the gateway itself: it has no body in answer to `HEAD` (RFC 9110, section 9.3.2), and ends
/// the connection when the rest of the request may still come. `unread` is the body of a request that was not
/// forwarded.
pub(super) async fn finish(
    response: Response<GuardedBody>,
    arrival: Arrival,
    unread: Option<Incoming>,
) -> Response<GuardedBody> {
    let mut response = response;
    let length = response.body().size_hint().lower();
    if arrival.is_head {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        *response.body_mut() = GuardedBody::Own(OwnBody::default());
    }
    // A client that expects 100-continue has not sent its body, and will not after a refusal.
    let rest = match unread {
        Some(body) if arrival.expects_continue => Some(body),
        Some(body) => drain(body).await,
        None => None,
    };
    match rest {
        // Dropped, the stream would be reset with the response: some clients lose that.
        Some(body) if arrival.version == Version::HTTP_2 => drop(spawn_local(linger(body))),
        Some(_) => drop(response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
        None => {}
    }
    let (rpc, observed) = (arrival.rpc, arrival.observed.clone());
    // Before the translation: what is counted and shown is the refusal.
    let mut response = mark(arrival, response);
    if let Some(rpc) = rpc {
        translate(rpc, &mut response).await;
    }
    if let (GuardedBody::Own(own), Some(observed)) = (response.body_mut(), observed) {
        observed.note(|facts| facts.response_body_bytes = own.body.size_hint().lower());
        own.observed = Some(observed);
    }
    response
}

/// Translates a refusal into the protocol of the caller.
async fn translate(rpc: RpcProtocol, response: &mut Response<GuardedBody>) {
    let GuardedBody::Own(own) = response.body() else { return };
    let Ok(body) = own.body.clone().collect().await.map(Collected::to_bytes);
    if let (Some(body), GuardedBody::Own(own)) = (rpc.translate(response, &body), response.body_mut()) {
        own.body = Full::new(body);
    }
}

impl Gateway {
    /// Begins to observe a request that the dashboard answers; none without an observer. It is shown with this path.
    pub fn observe(&self, connection: &Connection, head: &Parts, path: &str) -> Option<Rc<ObservedRequest>> {
        let observer = self.observer.as_ref()?;
        let client = connection.clients.find(&connection.peer, &head.headers, &self.trusted_proxies).ip;
        let facts = RequestFacts::new(None, clock::read(), &connection.peer, client);
        Some(observer.begin(RequestFacts { head: Some(HeadFacts::new(head, path)), ..facts }))
    }
}

/// Wraps a response of the dashboard, which carries the request's id, with the request that is observed.
pub fn own_observed(response: Response<Bytes>, observed: Option<Rc<ObservedRequest>>) -> Response<GuardedBody> {
    if let Some(observed) = &observed {
        observed.note(|facts| {
            let id = response.headers().get(X_REQUEST_ID).map(HeaderValue::as_bytes);
            facts.id = id.and_then(|id| Uuid::try_parse_ascii(id).ok());
            facts.status = Some(response.status());
            facts.response_body_bytes = response.body().len() as u64;
        });
    }
    response.map(|body| GuardedBody::Own(OwnBody { body: Full::new(body), observed }))
}

/// Reads and drops a small body. Returns a body whose end was not seen.
async fn drain(mut body: Incoming) -> Option<Incoming> {
    if body.size_hint().exact().is_none_or(|length| length > MAX_DRAINED) {
        return Some(body);
    }
    let has_ended = timeout(DRAIN_TIMEOUT, discard(&mut body, MAX_DRAINED)).await.unwrap_or(false);
    (!has_ended).then_some(body)
}

/// Keeps a stream open for a moment after its response, so that the client reads that before the reset.
async fn linger(mut body: Incoming) {
    let _ended_or_late = timeout(LINGER, async {
        if !discard(&mut body, MAX_LINGERING).await {
            std::future::pending::<()>().await;
        }
    })
    .await;
}

/// Reads and drops at most so many bytes. Returns whether the end was seen.
async fn discard(body: &mut Incoming, most: u64) -> bool {
    let mut left = most;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(rest) = left.checked_sub(length) else { return false };
        left = rest;
    }
    true
}
