//! Parts of an exchange that Envoy sends: `envoy/extensions/filters/http/ext_proc/v3/processing_mode.proto`.

/// Parts of an exchange that Envoy sends, instead of those of its configuration: when that has `allow_mode_override`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProcessingMode {
    /// Head of the request. Ignored in an override: it was sent.
    #[prost(enumeration = "HeaderSendMode", tag = "1")]
    pub request_header_mode: i32,
    /// Head of the response.
    #[prost(enumeration = "HeaderSendMode", tag = "2")]
    pub response_header_mode: i32,
    /// Body of the request.
    #[prost(enumeration = "BodySendMode", tag = "3")]
    pub request_body_mode: i32,
    /// Body of the response.
    #[prost(enumeration = "BodySendMode", tag = "4")]
    pub response_body_mode: i32,
    /// Trailers of the request.
    #[prost(enumeration = "HeaderSendMode", tag = "5")]
    pub request_trailer_mode: i32,
    /// Trailers of the response.
    #[prost(enumeration = "HeaderSendMode", tag = "6")]
    pub response_trailer_mode: i32,
}

impl ProcessingMode {
    /// Head and trailers of the response, no body. The stream lives until the response has ended: Envoy closes it when
    /// no part is left to send, and there might be trailers.
    pub fn until_response_ends() -> Self {
        Self {
            response_header_mode: HeaderSendMode::Send.into(),
            response_trailer_mode: HeaderSendMode::Send.into(),
            ..Self::default()
        }
    }
}

/// Sending of a head or of trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum HeaderSendMode {
    /// Heads are sent, trailers are not.
    Default = 0,
    /// Sent.
    Send = 1,
    /// Not sent.
    Skip = 2,
}

/// Sending of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum BodySendMode {
    /// Not sent.
    None = 0,
    /// In pieces, each answered.
    Streamed = 1,
    /// As a whole.
    Buffered = 2,
    /// As a whole, or its begin.
    BufferedPartial = 3,
    /// In pieces, answered at any time.
    FullDuplexStreamed = 4,
    /// As messages of gRPC.
    Grpc = 5,
}
