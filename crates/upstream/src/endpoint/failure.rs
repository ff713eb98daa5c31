//! Failure of an attempt, as far as it says something about the endpoint.

use http::{HeaderMap, Response, StatusCode, Version};

/// Failure of one attempt at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
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
    /// Failure that the head of a response means; none when the response counts as a success once it has come whole.
    pub(crate) fn of_head<B>(response: &Response<B>) -> Option<Self> {
        // gRPC responds with 200, and with its own status in the head when there is no message (trailers-only). It
        // needs HTTP/2: elsewhere nothing is looked for.
        let is_grpc = response.version() == Version::HTTP_2;
        let of_grpc = || is_grpc.then(|| Self::of_grpc(response.headers())).flatten();
        Self::of_status(response.status()).or_else(of_grpc)
    }

    /// Failure that the `grpc-status` of these fields means: UNKNOWN, INTERNAL and DATA_LOSS are errors of the server,
    /// UNAVAILABLE is one of what stands before it. DEADLINE_EXCEEDED is none: the client sets the deadline.
    pub(crate) fn of_grpc(fields: &HeaderMap) -> Option<Self> {
        match fields.get("grpc-status")?.as_bytes() {
            b"2" | b"13" | b"15" => Some(Self::ServerError),
            b"14" => Some(Self::GatewayError),
            _ => None,
        }
    }

    /// Failure that a status means; none when the response counts as a success once it has come whole.
    fn of_status(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Some(Self::GatewayError)
            }
            status if status.is_server_error() => Some(Self::ServerError),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_of(version: Version, status: u16, grpc_status: &'static str) -> Option<Failure> {
        let response = Response::builder().version(version).status(status).header("grpc-status", grpc_status);
        Failure::of_head(&response.body(()).unwrap())
    }

    #[test]
    fn statuses_that_are_failures() {
        for (status, expected) in [
            (200, None),
            (301, None),
            (404, None),
            (429, None),
            (500, Some(Failure::ServerError)),
            (501, Some(Failure::ServerError)),
            (502, Some(Failure::GatewayError)),
            (503, Some(Failure::GatewayError)),
            (504, Some(Failure::GatewayError)),
            (507, Some(Failure::ServerError)),
        ] {
            assert_eq!(failure_of(Version::HTTP_11, status, "0"), expected, "{status}");
        }
    }

    #[test]
    fn grpc_statuses_that_are_failures_over_http2_only() {
        for (status, expected) in [
            ("0", None),
            ("2", Some(Failure::ServerError)),
            ("4", None),
            ("5", None),
            ("13", Some(Failure::ServerError)),
            ("14", Some(Failure::GatewayError)),
            ("15", Some(Failure::ServerError)),
            ("16", None),
        ] {
            assert_eq!(failure_of(Version::HTTP_2, 200, status), expected, "{status}");
            assert_eq!(failure_of(Version::HTTP_11, 200, status), None, "{status} is a field like any other");
        }
        assert_eq!(
            failure_of(Version::HTTP_2, 503, "0"),
            Some(Failure::GatewayError),
            "the status of the head decides"
        );
    }
}
