//! Status of a response: `envoy/type/v3/http_status.proto`.

use http::StatusCode;

/// Status of a response that Envoy sends in place of the upstream's.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HttpStatus {
    /// Status code of HTTP. (An enumeration in the `.proto` file, and on the wire the same.)
    #[prost(int32, tag = "1")]
    pub code: i32,
}

impl From<StatusCode> for HttpStatus {
    fn from(status: StatusCode) -> Self {
        Self { code: i32::from(status.as_u16()) }
    }
}
