//! Requests that go no further: how they are answered, recorded and counted.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use http::request::Parts;
use uuid::Uuid;

use super::Gateway;
use super::guarded_body::GuardedBody;
use super::rejection::{Reason, Rejection};
use super::request::{Arrival, own};
use crate::admission::{Denial, Route};
use crate::audit::{Outcome, UseEnd};
use crate::clock;
use crate::metrics::{Metrics, RouteMetrics};
use crate::state::Refusal;
use crate::transport::HeadError;

/// The metrics' name of requests whose heads could not be read, or were refused for their sizes.
const UNREAD: &str = "unread";

/// Answers requests that were refused before anybody asked what they are.
#[derive(Clone, Debug)]
pub struct EarlyRejection(RouteMetrics);

impl EarlyRejection {
    /// Counting under a name of their own.
    pub fn new(metrics: &Metrics) -> Self {
        Self(metrics.route(UNREAD))
    }

    /// The answer to a head that could not be read: a whole HTTP/1.1 response, after which the connection closes.
    pub fn answer(&self, why: HeadError) -> Bytes {
        let id = Uuid::now_v7();
        let response = Rejection { reason: why.into(), fields: None }.response(id);
        self.0.count_response(response.status());
        serialized(&response, id)
    }

    pub(super) fn refuse(&self, reason: Reason, id: Uuid) -> Response<GuardedBody> {
        let response = Rejection { reason, fields: None }.response(id);
        self.0.count_response(response.status());
        own(response)
    }
}

impl Gateway {
    /// Records a denial and answers it. A refused use of a known key is a record like any other; attempts with unknown
    /// keys are recorded at a bounded rate, and a request without a credential is no use of anything.
    pub(super) async fn refuse(
        &self,
        arrival: &Arrival<'_>,
        head: &Parts,
        route: &Route,
        denial: &Denial,
    ) -> Response<GuardedBody> {
        if is_attempt(denial)
            && let Err(seconds) = self.failed_auth.count_attempt(arrival.client.ip, arrival.time)
        {
            self.metrics.attempts_refused.inc();
            let rejection = Rejection { reason: Reason::TooManyAttempts(seconds), fields: None };
            return arrival.reject(&rejection, &route.metrics);
        }
        let rejection = Rejection::of_denial(denial, route);
        let response = rejection.response(arrival.id);
        let (status, sent) = (response.status().as_u16(), arrival.sent(&response));
        let end = |outcome| UseEnd {
            outcome,
            status: Some(status),
            duration_us: clock::now().since(arrival.time),
            request_bytes: 0,
            response_bytes: sent,
        };
        let action = arrival.action(head, route);
        match denial {
            Denial::NoCredential
            | Denial::BadCredential(_)
            | Denial::NoSession
            | Denial::CrossSite
            | Denial::StateUnavailable => {}
            Denial::Malformed | Denial::Refused { principal: None, .. } => {
                self.journal.record_unknown_key(&arrival.opening(head, route, &action, None), end(Outcome::Unknown));
            }
            Denial::Refused { principal: Some(principal), refusal, .. } => {
                let opening = arrival.opening(head, route, &action, Some(principal));
                if self.journal.record(&opening, end(outcome(*refusal, route))).await.is_err() {
                    let reason = Reason::AuditUnavailable;
                    return arrival.reject(&Rejection { reason, fields: rejection.fields }, &route.metrics);
                }
            }
        }
        route.metrics.count_response(response.status());
        own(response)
    }
}

/// Whether it is a key that nobody ever had: of those, too many from one address are not even recorded.
fn is_attempt(denial: &Denial) -> bool {
    matches!(denial, Denial::Malformed | Denial::Refused { principal: None, .. })
}

fn outcome(refusal: Refusal, route: &Route) -> Outcome {
    match refusal {
        Refusal::Unknown => Outcome::Unknown,
        Refusal::Revoked => Outcome::Revoked,
        Refusal::Expired => Outcome::Expired,
        Refusal::UserRemoved => Outcome::UserRemoved,
        Refusal::OrgSuspended => Outcome::OrgSuspended,
        Refusal::Forbidden if !route.exists => Outcome::NotFound,
        Refusal::Forbidden => Outcome::Forbidden,
        Refusal::RateLimited => Outcome::RateLimited,
        Refusal::TooManyInFlight => Outcome::TooManyInFlight,
    }
}

/// A response as HTTP/1.1 has it (RFC 9112).
fn serialized(response: &Response<Bytes>, id: Uuid) -> Bytes {
    let status = response.status();
    let mut text = BytesMut::new();
    let reason = status.canonical_reason().unwrap_or("Error");
    text.put_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).as_bytes());
    for (name, value) in response.headers() {
        text.put_slice(name.as_str().as_bytes());
        text.put_slice(b": ");
        text.put_slice(value.as_bytes());
        text.put_slice(b"\r\n");
    }
    text.put_slice(format!("x-request-id: {id}\r\ncontent-length: {}\r\n\r\n", response.body().len()).as_bytes());
    text.put_slice(response.body());
    text.freeze()
}
