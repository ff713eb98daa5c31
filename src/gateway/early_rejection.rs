//! Responses to requests that are refused before their route is known: unreadable and oversized heads.

use std::rc::Rc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use uuid::Uuid;

use super::decisions::DecisionProtocol;
use super::guarded_body::GuardedBody;
use super::own_response::own;
use super::rejection::{HeadRefusal, Rejection};
use super::request::Arrival;
use domain::clock;
use domain::identity::Peer;
use domain::problem::ProblemTypes;
use edge::transport::HeadError;
use platform::metrics::{Metrics, RouteMetrics};
use platform::telemetry::{Observer, RequestFacts};

/// Label `route` of such requests in the metrics.
const UNREAD: &str = "unread";

/// Answers and counts requests that are refused before their route is known.
#[derive(Clone, Debug)]
pub struct EarlyRejection {
    metrics: RouteMetrics,
    observer: Option<Rc<Observer>>,
    problem_types: ProblemTypes,
    /// Protocol of the proxy that asks on this listener, if it decides for one.
    decisions: Option<DecisionProtocol>,
}

impl EarlyRejection {
    /// Responder that counts under a label of its own, with problems of these types.
    pub fn new(metrics: &Metrics, observer: Option<Rc<Observer>>, problem_types: ProblemTypes) -> Self {
        Self { metrics: metrics.route(UNREAD), observer, problem_types, decisions: None }
    }

    /// The same for a listener on which a proxy asks for decisions, if there is a protocol.
    #[must_use]
    pub fn on_listener(self, decisions: Option<DecisionProtocol>) -> Self {
        Self { decisions, ..self }
    }

    /// Response to a head that could not be read: a whole HTTP/1.1 response. The connection closes after it.
    pub fn answer(&self, error: HeadError, peer: &Peer) -> Bytes {
        let id = Uuid::now_v7();
        // Without a head there is no trace.
        let observed = self
            .observer
            .as_ref()
            .map(|observer| observer.begin(RequestFacts::new(Some(id), clock::read(), peer, peer.address.ip())));
        let rejection = Rejection::of_head(HeadRefusal::from(error));
        let mut response = rejection.response(id, observed.as_deref(), &self.problem_types);
        self.metrics.count_response(response.status());
        if let Some(protocol) = self.decisions {
            protocol.write_refusal(Some(rejection.code()), &mut response);
        }
        if let Some(observed) = observed {
            observed.note(|facts| {
                facts.status = Some(response.status());
                facts.response_body_bytes = response.body().len() as u64;
            });
        }
        serialize(&response, id)
    }

    /// Response to a head that could be read but is refused.
    pub(super) fn refuse(&self, refusal: impl Into<HeadRefusal>, arrival: &Arrival) -> Response<GuardedBody> {
        let response = Rejection::of_head(refusal.into()).respond_to(arrival);
        self.metrics.count_response(response.status());
        own(response)
    }
}

/// Writes a response as HTTP/1.1 (RFC 9112).
fn serialize(response: &Response<Bytes>, id: Uuid) -> Bytes {
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
