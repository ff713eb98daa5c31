//! Failure of an attempt, as far as it says something about the endpoint.

use http::StatusCode;

/// Failure of one attempt at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A response with 5xx, other than the three below.
    ServerError,
    /// 502, 503 or 504; or the connection broke, or the response was invalid.
    GatewayError,
    /// No connection could be made.
    Connect,
    /// A time-out passed while the endpoint was waited for.
    Timeout,
}

impl Failure {
    /// Failure that a status means; none when the response counts as a success once it has come whole.
    pub(super) fn of_status(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Some(Self::GatewayError)
            }
            status if status.is_server_error() => Some(Self::ServerError),
            _ => None,
        }
    }
}
