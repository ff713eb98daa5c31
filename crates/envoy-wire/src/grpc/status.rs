//! The end of a gRPC call: status and message, in trailers or in the head of a response without messages.

use std::borrow::Cow;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const CONTENT_TYPE_OF_RESPONSES: HeaderValue = HeaderValue::from_static("application/grpc");

/// Bytes that `grpc-message` has encoded; those outside of ASCII are encoded always.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Status of a call, as far as the decision service, or a refusal of the gateway, ends calls with it
/// (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The call succeeded; as the status of a check: the request is admitted.
    Ok = 0,
    /// The described request lacks a fact, or has it twice.
    InvalidArgument = 3,
    /// The request did not arrive in time.
    DeadlineExceeded = 4,
    /// The request is refused.
    PermissionDenied = 7,
    /// A limit is exceeded, or a message is too large.
    ResourceExhausted = 8,
    /// The service has no such method, or does not decompress.
    Unimplemented = 12,
    /// The bytes are no message, or the service failed.
    Internal = 13,
    /// The service cannot decide at the moment; a call may be sent again.
    Unavailable = 14,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Code {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        i32::from(self as u8)
    }

    /// The name that the Connect protocol has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }
}

/// The fields of a response's head, before its messages. The status of HTTP is always 200.
pub fn response_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, CONTENT_TYPE_OF_RESPONSES)])
}

/// The trailers that end a response. `message` is for people, may be empty, and is percent-encoded.
pub fn trailers(code: Code, message: &str) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(3);
    fields.insert(GRPC_STATUS, HeaderValue::from(code.number()));
    let encoded = Cow::from(utf8_percent_encode(message, ENCODED));
    // Encoded text has only bytes that a field may have.
    if let Ok(value) = HeaderValue::from_str(&encoded)
        && !message.is_empty()
    {
        fields.insert(GRPC_MESSAGE, value);
    }
    fields
}

/// The head of a response that has no messages: its end is in its head, and its body is empty.
pub fn trailers_only(code: Code, message: &str) -> HeaderMap {
    let mut fields = trailers(code, message);
    fields.insert(CONTENT_TYPE, CONTENT_TYPE_OF_RESPONSES);
    fields
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trailers_have_status_and_encoded_message() {
        let fields = trailers(Code::ResourceExhausted, "100 % of the\nlimit: é");
        assert_eq!(fields["grpc-status"], "8");
        assert_eq!(fields["grpc-message"], "100 %25 of the%0Alimit: %C3%A9");
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn trailers_of_success_have_no_message() {
        assert_eq!(trailers(Code::Ok, ""), HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]));
    }

    #[test]
    fn trailers_only_name_the_media_type() {
        let fields = trailers_only(Code::Unimplemented, "no such method");
        assert_eq!(
            (&fields["content-type"], &fields["grpc-status"]),
            (&CONTENT_TYPE_OF_RESPONSES, &HeaderValue::from(12))
        );
        assert_eq!(fields["grpc-message"], "no such method");
        assert_eq!(response_headers()[CONTENT_TYPE], "application/grpc");
    }

    proptest! {
        #[test]
        fn every_message_arrives(message: String) {
            let fields = trailers(Code::Internal, &message);
            let arrived = fields.get(GRPC_MESSAGE).map(HeaderValue::as_bytes).unwrap_or_default();
            prop_assert!(arrived.iter().all(|byte| (0x20..=0x7E).contains(byte)));
            prop_assert_eq!(percent_decode(arrived).decode_utf8().unwrap(), message);
        }
    }
}
