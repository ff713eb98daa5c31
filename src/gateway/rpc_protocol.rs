//! Refusals as clients of gRPC, gRPC-Web and Connect read them.
//!
//! A refusal is made, counted and recorded as every other one. On its way out its problem document becomes the status
//! of the client's protocol:
//!
//! | protocol | refusal |
//! |---|---|
//! | gRPC, gRPC-Web | 200 with `grpc-status`, `grpc-message` and, where it may be repeated later, `grpc-retry-pushback-ms` |
//! | Connect, unary | the status of HTTP, and an error document |
//! | Connect, stream | 200, and the message that ends the stream |
//!
//! Sources: the gRPC protocol over HTTP/2, gRFC A6 (push-back), the gRPC-Web protocol, and the Connect protocol.

use bytes::Bytes;
use envoy_wire::grpc::{self, Code};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use serde_json::json;

use domain::problem::{self, Problem};

const CONNECT_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Flag of the message that ends a stream of Connect.
const END_OF_STREAM: u8 = 2;

/// Protocol of remote procedure calls that a request speaks. A byte: it is kept for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RpcProtocol {
    Grpc,
    GrpcWeb,
    GrpcWebText,
    /// Connect, with one message each way.
    ConnectUnary,
    /// Connect, with a stream of messages in JSON.
    ConnectJson,
    /// Connect, with a stream of messages of Protocol Buffers.
    ConnectProto,
}

/// Beginnings of media types of requests; one that begins another one comes behind it.
const MEDIA_TYPES: [RpcProtocol; 5] = [
    RpcProtocol::GrpcWebText,
    RpcProtocol::GrpcWeb,
    RpcProtocol::Grpc,
    RpcProtocol::ConnectJson,
    RpcProtocol::ConnectProto,
];

impl RpcProtocol {
    /// The protocol of a request; none of a plain one. Calls are `POST`.
    pub(super) fn of(head: &Parts) -> Option<Self> {
        if head.method != Method::POST {
            return None;
        }
        let given = head.headers.get(CONTENT_TYPE)?.as_bytes();
        let begins = |protocol: &Self| {
            let media_type = protocol.media_type();
            given.get(..media_type.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(media_type.as_bytes()))
        };
        let unary = || head.headers.contains_key(CONNECT_VERSION).then_some(Self::ConnectUnary);
        MEDIA_TYPES.into_iter().find(begins).or_else(unary)
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Grpc => "application/grpc",
            Self::GrpcWeb => "application/grpc-web",
            Self::GrpcWebText => "application/grpc-web-text",
            Self::ConnectUnary => "application/json",
            Self::ConnectJson => "application/connect+json",
            Self::ConnectProto => "application/connect+proto",
        }
    }

    /// Translates a refusal with this body into the protocol. Returns the body of the answer; none where it stays as it
    /// is, because it is no problem document.
    pub(super) fn translate<B>(self, response: &mut Response<B>, body: &[u8]) -> Option<Bytes> {
        let is_problem = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == problem::MEDIA_TYPE);
        let code = code(response.status());
        let problem = serde_json::from_slice::<Problem<'_>>(body).ok().filter(|_| is_problem)?;
        let error = json!({ "code": code.name(), "message": problem.detail });
        let body = match self {
            Self::Grpc | Self::GrpcWeb | Self::GrpcWebText => Bytes::new(),
            Self::ConnectUnary => error.to_string().into(),
            Self::ConnectJson | Self::ConnectProto => end_of_stream(&json!({ "error": error }).to_string()),
        };
        if self != Self::ConnectUnary {
            *response.status_mut() = StatusCode::OK;
        }
        let headers = response.headers_mut();
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type()));
        if matches!(self, Self::Grpc | Self::GrpcWeb | Self::GrpcWebText) {
            headers.extend(grpc::trailers(code, &problem.detail));
            if let Some(pushback) = headers.get(RETRY_AFTER).and_then(milliseconds) {
                headers.insert(PUSHBACK, pushback);
            }
        }
        Some(body)
    }
}

/// The status of gRPC for one of HTTP: of a limit `RESOURCE_EXHAUSTED`, which is not repeated at once; else that of
/// `http-grpc-status-mapping.md`.
fn code(status: StatusCode) -> Code {
    match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// Seconds of `Retry-After` in milliseconds.
fn milliseconds(seconds: &HeaderValue) -> Option<HeaderValue> {
    Some(seconds.to_str().ok()?.parse::<u32>().ok()?.saturating_mul(1000).into())
}

fn end_of_stream(message: &str) -> Bytes {
    let length = u32::try_from(message.len()).expect("a detail is a sentence");
    [&[END_OF_STREAM][..], &length.to_be_bytes(), message.as_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(method: Method, fields: &[(&str, &str)]) -> Option<RpcProtocol> {
        let request = fields
            .iter()
            .fold(Request::builder().method(method), |request, (name, value)| request.header(*name, *value));
        RpcProtocol::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn protocol_is_known_by_the_media_type_of_a_post() {
        for (media_type, found) in [
            ("application/grpc", Some(RpcProtocol::Grpc)),
            ("Application/GRPC+proto", Some(RpcProtocol::Grpc)),
            ("application/grpc-web+proto", Some(RpcProtocol::GrpcWeb)),
            ("application/grpc-web-text", Some(RpcProtocol::GrpcWebText)),
            ("application/connect+json", Some(RpcProtocol::ConnectJson)),
            ("application/json", None),
        ] {
            assert_eq!(of(Method::POST, &[("content-type", media_type)]), found, "{media_type}");
            assert_eq!(of(Method::GET, &[("content-type", media_type)]), None, "{media_type}");
        }
        let unary = [("content-type", "application/json"), ("connect-protocol-version", "1")];
        assert_eq!(of(Method::POST, &unary), Some(RpcProtocol::ConnectUnary));
        assert_eq!(of(Method::POST, &[]), None);
    }
}
