//! Health checks: `grpc.health.v1` (<https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto>).
//!
//! [`CHECK`] has one answer. [`WATCH`] has one at once, one for each change, and stays open.

/// Path of the method that is asked once.
pub const CHECK: &str = "/grpc.health.v1.Health/Check";
/// Path of the method that goes on telling.
pub const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Question about the health of a service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HealthCheckRequest {
    /// Name of the service; empty: of the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// Health of a service.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HealthCheckResponse {
    /// The health.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Health of a service, as a number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Never sent.
    Unknown = 0,
    /// Requests are answered.
    Serving = 1,
    /// Requests go elsewhere, for example while the gateway drains.
    NotServing = 2,
    /// No such service; only as an answer to [`WATCH`].
    ServiceUnknown = 3,
}

impl From<ServingStatus> for HealthCheckResponse {
    fn from(status: ServingStatus) -> Self {
        Self { status: status.into() }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn answers_have_the_numbers_of_the_protocol() {
        for (status, encoded) in [
            (ServingStatus::Unknown, &b""[..]),
            (ServingStatus::Serving, b"\x08\x01"),
            (ServingStatus::NotServing, b"\x08\x02"),
            (ServingStatus::ServiceUnknown, b"\x08\x03"),
        ] {
            assert_eq!(HealthCheckResponse::from(status).encode_to_vec(), encoded);
            assert_eq!(HealthCheckResponse::decode(encoded).unwrap().status(), status);
        }
    }
}
