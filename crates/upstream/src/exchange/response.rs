//! Response of the upstream between its head and the decision to forward it.

use http::response::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;

use super::deadlines::BodyDeadlines;
use super::response_body::{ConnectionGuard, ResponseBody};
use crate::endpoint::failure::Failure;
use domain::head_fields::FieldSet;

/// Response whose head the caller has not accepted yet.
///
/// - The connection is not pooled again before the head was accepted, also when the response has no body: an invalid
///   head may mean that upstream and gateway disagree on where the response ends.
/// - Rejected, or dropped, it closes the connection at once.
pub struct UpstreamResponse {
    /// Head, as the upstream sent it.
    pub head: Parts,
    /// Fields of the head that are acted on.
    pub fields: FieldSet,
    body: Incoming,
    guard: ConnectionGuard,
    deadlines: BodyDeadlines,
}

impl UpstreamResponse {
    pub(crate) fn new(response: Response<Incoming>, guard: ConnectionGuard, deadlines: BodyDeadlines) -> Self {
        let (head, body) = response.into_parts();
        let fields = guard.fields().unwrap_or_else(|| FieldSet::of_map(&head.headers));
        if fields.contains(FieldSet::HOP_BY_HOP) {
            guard.note_keep_alive(&head.headers);
        }
        Self { head, fields, body, guard, deadlines }
    }

    /// Label of the endpoint that has answered.
    pub fn endpoint(&self) -> &str {
        &self.guard.endpoint().label
    }

    /// Accepts the head, as it is now, and counts a successful exchange. The body keeps the connection until its end.
    pub fn accept(self) -> Response<ResponseBody> {
        let Self { head, body, guard, deadlines, .. } = self;
        guard.endpoint().metrics.ok.inc();
        let body = match head.status {
            StatusCode::SWITCHING_PROTOCOLS => ResponseBody::switched(body, guard, deadlines),
            _ => ResponseBody::new(body, guard, deadlines),
        };
        Response::from_parts(head, body)
    }

    /// Drops a response in whose place another try answers. It counts as one: the upstream has responded.
    pub(crate) fn discard(self) {
        self.guard.endpoint().metrics.ok.inc();
    }

    /// Rejects the head, counts a bad response, and closes the connection.
    pub fn reject(self) {
        self.guard.endpoint().metrics.bad_response.inc();
        self.guard.fail(Failure::GatewayError);
    }
}
