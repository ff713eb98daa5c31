//! Responses that the gateway writes itself, and what becomes of the bodies of requests that it refuses.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderValue, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use uuid::Uuid;

use super::Gateway;
use super::connection::Connection;
use super::guarded_body::{GuardedBody, OwnBody};
use super::rate_limit::RateLimitFields;
use super::rejection::Rejection;
use super::request::Arrival;
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

/// Wraps a response of the gateway itself.
pub(super) fn own(response: Response<Bytes>) -> Response<GuardedBody> {
    response.map(|body| GuardedBody::Own(OwnBody { body: Full::new(body), observed: None }))
}

/// Builds and counts the response to a refused request.
pub(super) fn reject(arrival: &Arrival, rejection: &Rejection<'_>, metrics: &RouteMetrics) -> Response<GuardedBody> {
    let response = arrival.reject(rejection);
    metrics.count_response(response.status());
    own(response)
}

/// Builds and counts the response to an admitted request whose audit record cannot be written.
pub(super) fn reject_unrecorded(arrival: &Arrival, admitted: &Admitted, route: &Route) -> Response<GuardedBody> {
    let rate_limit = RateLimitFields::new(admitted.rate_limit, admitted.principal.method);
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
    let is_unread = match unread {
        Some(body) => arrival.expects_continue || !drain(body).await,
        None => false,
    };
    if is_unread {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let GuardedBody::Own(own) = response.body_mut() {
        arrival.note(|facts| facts.response_body_bytes = own.body.size_hint().lower());
        own.observed.clone_from(&arrival.observed);
    }
    arrival.mark(response)
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

/// Reads and drops a small body. Returns whether its end was seen.
async fn drain(mut body: Incoming) -> bool {
    if body.size_hint().exact().is_none_or(|length| length > MAX_DRAINED) {
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
    tokio::time::timeout(DRAIN_TIMEOUT, read).await.unwrap_or(false)
}
