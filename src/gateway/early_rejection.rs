//! Responses to requests that are refused before their route is known: unreadable and oversized heads.

use std::rc::Rc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use uuid::Uuid;

use super::guarded_body::GuardedBody;
use super::observer::Observer;
use super::own_response::own;
use super::rejection::{Rejection, of_head_error};
use super::request::Reference;
use domain::identity::Peer;
use domain::refusal::Refusal;
use edge::transport::HeadError;
use platform::metrics::{Metrics, RouteMetrics};

/// Label `route` of such requests in the metrics.
const UNREAD: &str = "unread";

/// Answers and counts requests that are refused before their route is known.
#[derive(Clone, Debug)]
pub struct EarlyRejection {
    metrics: RouteMetrics,
    observer: Option<Rc<Observer>>,
}

impl EarlyRejection {
    /// Responder that counts under a label of its own.
    pub fn new(metrics: &Metrics, observer: Option<Rc<Observer>>) -> Self {
        Self { metrics: metrics.route(UNREAD), observer }
    }

    /// Response to a head that could not be read: a whole HTTP/1.1 response. The connection closes after it.
    pub fn answer(&self, error: HeadError, peer: &Rc<Peer>) -> Bytes {
        let (id, refusal) = (Uuid::now_v7(), of_head_error(error));
        // Without a head there is no trace.
        let response = Rejection::new(refusal).response(Reference { request_id: id, trace: None });
        self.metrics.count_response(response.status());
        if let Some(observer) = &self.observer {
            observer.observe_unread(peer, refusal, &response, id);
        }
        serialize(&response, id)
    }

    /// Response to a head that could be read but is refused.
    pub(super) fn refuse(&self, refusal: Refusal, reference: Reference<'_>) -> Response<GuardedBody> {
        let response = Rejection::new(refusal).response(reference);
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
