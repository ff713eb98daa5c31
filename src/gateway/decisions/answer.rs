//! Answers to questions over HTTP, as each proxy understands them.

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::{Admitted, DecisionProtocol};
use crate::gateway::Gateway;
use crate::gateway::guarded_body::GuardedBody;
use crate::gateway::request::Arrival;

/// Status of a refusal, where its response has another one.
const X_KEYGATE_STATUS: HeaderName = HeaderName::from_static("x-keygate-status");
/// Code of a refusal, where its body is lost on the way.
const X_KEYGATE_CODE: HeaderName = HeaderName::from_static("x-keygate-code");

/// Answers in a protocol.
pub(super) struct Answers(pub(super) DecisionProtocol);

impl Answers {
    /// Answer to an admitted request: its identity.
    pub(super) fn admitted(&self, gateway: &Gateway, admitted: &Admitted<'_>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        // nginx keeps the connection of its subrequest only if there is no body.
        *response.status_mut() =
            if self.0 == DecisionProtocol::Nginx { StatusCode::NO_CONTENT } else { StatusCode::OK };
        let headers = response.headers_mut();
        for (name, value) in admitted.identity.fields() {
            match value {
                Some(value) => drop(headers.insert(name, value)),
                // Copied like the others: the client's own is overwritten.
                None if self.0 == DecisionProtocol::ForwardAuth => {
                    headers.insert(name, HeaderValue::from_static(""));
                }
                None => {}
            }
        }
        if let Some(caller) = admitted.exchange.caller() {
            caller.rate_limit.write(headers, &gateway.policies, &gateway.memory);
        }
        response
    }

    /// Answer to a refused request.
    pub(super) fn refused(&self, arrival: &Arrival, mut response: Response<GuardedBody>) -> Response<GuardedBody> {
        // The connection is the proxy's, and carries the requests of its other clients.
        response.headers_mut().remove(CONNECTION);
        self.0.write_refusal(arrival.refusal_code(), &mut response);
        response
    }
}

impl DecisionProtocol {
    /// Writes a refusal of this code as the proxy understands it. nginx passes no status on but 401 and 403, and no
    /// body: status and code are in fields.
    pub(in crate::gateway) fn write_refusal<B>(self, code: Option<&'static str>, response: &mut Response<B>) {
        if self != Self::Nginx {
            return;
        }
        if let Some(code) = code {
            response.headers_mut().insert(X_KEYGATE_CODE, HeaderValue::from_static(code));
        }
        let status = response.status();
        if status != StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(X_KEYGATE_STATUS, HeaderValue::from(status.as_u16()));
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
    }
}
