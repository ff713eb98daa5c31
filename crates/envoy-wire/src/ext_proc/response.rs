//! Answers to parts of an exchange.

use bytes::Bytes;
use http::StatusCode;

use super::ProcessingMode;
use crate::{Duration, HeaderValue, HeaderValueOption, HttpStatus, Struct};

/// Answer to one part of an exchange.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    /// The answer.
    #[prost(oneof = "Response", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub response: Option<Response>,
    /// Metadata for later filters and the access log of Envoy, by name space.
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
    /// Parts that Envoy sends from now on; only with the answer to a head.
    #[prost(message, optional, tag = "9")]
    pub mode_override: Option<ProcessingMode>,
    /// New time-out of this part, from now on. Envoy reads no other field then, and waits for another answer.
    #[prost(message, optional, tag = "10")]
    pub override_message_timeout: Option<Duration>,
}

/// Answer to a part.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Response {
    /// To the head of the request.
    #[prost(message, tag = "1")]
    RequestHeaders(HeadersResponse),
    /// To the head of the response.
    #[prost(message, tag = "2")]
    ResponseHeaders(HeadersResponse),
    /// To the body of the request.
    #[prost(message, tag = "3")]
    RequestBody(BodyResponse),
    /// To the body of the response.
    #[prost(message, tag = "4")]
    ResponseBody(BodyResponse),
    /// To the trailers of the request.
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    /// To the trailers of the response.
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    /// A response to the client in place of the upstream's. When that has begun, the exchange is reset.
    #[prost(message, tag = "7")]
    ImmediateResponse(ImmediateResponse),
}

/// Answer to a head.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeadersResponse {
    /// Changes; none lets it pass as it is.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// Answer to a body.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BodyResponse {
    /// Changes; none lets it pass as it is.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// Answer to trailers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TrailersResponse {
    /// Changes; none lets them pass as they are.
    #[prost(message, optional, tag = "1")]
    pub header_mutation: Option<HeaderMutation>,
}

/// Changes of a head or body.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommonResponse {
    /// Going on.
    #[prost(enumeration = "ResponseStatus", tag = "1")]
    pub status: i32,
    /// Changes of fields.
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    /// Chooses the route again: for changed fields that routes match.
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

/// Going on after changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ResponseStatus {
    /// Goes on.
    Continue = 0,
    /// Replaces the body, and sends no further part.
    ContinueAndReplace = 1,
}

/// Changes of fields.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderMutation {
    /// Fields to set, after others were removed.
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    /// Names to remove.
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

/// A response to the client in place of the upstream's.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ImmediateResponse {
    /// Its status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Its fields.
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    /// Its body.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    /// Status of gRPC, for a client that made a gRPC call; Envoy derives it when it is absent.
    #[prost(message, optional, tag = "4")]
    pub grpc_status: Option<GrpcStatus>,
    /// `%RESPONSE_CODE_DETAILS%` of Envoy's access log.
    #[prost(string, tag = "5")]
    pub details: String,
}

/// Status of a gRPC call.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GrpcStatus {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub status: u32,
}

impl ProcessingResponse {
    /// Admits the request with other fields: those named in `remove` are removed, and those of `set` replace fields of
    /// their names. A name in both is set. With `mode_override`, Envoy sends other parts from now on.
    pub fn admitted<N: Into<String>, V: Into<Bytes>>(
        set: impl IntoIterator<Item = (N, V)>,
        remove: Vec<String>,
        mode_override: Option<ProcessingMode>,
    ) -> Self {
        let header_mutation = Some(HeaderMutation { set_headers: raw_fields(set), remove_headers: remove });
        let changes = CommonResponse { header_mutation, ..CommonResponse::default() };
        let response = Response::RequestHeaders(HeadersResponse { response: Some(changes) });
        Self { mode_override, ..response.into() }
    }

    /// Lets the head of the response pass with further fields, which replace fields of their names.
    pub fn response_fields<N: Into<String>, V: Into<Bytes>>(set: impl IntoIterator<Item = (N, V)>) -> Self {
        let header_mutation = Some(HeaderMutation { set_headers: raw_fields(set), remove_headers: Vec::new() });
        let changes = CommonResponse { header_mutation, ..CommonResponse::default() };
        Response::ResponseHeaders(HeadersResponse { response: Some(changes) }).into()
    }

    /// Refuses the request with a response.
    pub fn immediate<N: Into<String>, V: Into<Bytes>>(
        status: StatusCode,
        fields: impl IntoIterator<Item = (N, V)>,
        body: impl Into<Bytes>,
    ) -> Self {
        let headers = Some(HeaderMutation { set_headers: raw_fields(fields), remove_headers: Vec::new() });
        let response =
            ImmediateResponse { status: Some(status.into()), headers, body: body.into(), ..Default::default() };
        Response::ImmediateResponse(response).into()
    }
}

impl From<Response> for ProcessingResponse {
    fn from(response: Response) -> Self {
        Self { response: Some(response), ..Self::default() }
    }
}

fn raw_fields<N: Into<String>, V: Into<Bytes>>(fields: impl IntoIterator<Item = (N, V)>) -> Vec<HeaderValueOption> {
    let fields = fields.into_iter().map(|(name, value)| HeaderValue::raw(name.into(), value.into()));
    HeaderValueOption::replacing(fields, Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation(answer: &ProcessingResponse) -> &HeaderMutation {
        match answer.response.as_ref().unwrap() {
            Response::RequestHeaders(HeadersResponse { response })
            | Response::ResponseHeaders(HeadersResponse { response }) => {
                response.as_ref().unwrap().header_mutation.as_ref().unwrap()
            }
            Response::ImmediateResponse(response) => response.headers.as_ref().unwrap(),
            other => panic!("no fields: {other:?}"),
        }
    }

    #[test]
    fn constructors_set_raw_values_only() {
        let answers = [
            ProcessingResponse::admitted([("x-user-id", "7")], vec!["authorization".to_owned()], None),
            ProcessingResponse::response_fields([("x-user-id", "7")]),
            ProcessingResponse::immediate(StatusCode::FORBIDDEN, [("x-user-id", "7")], "{}"),
        ];
        for answer in &answers {
            let [option] = &mutation(answer).set_headers[..] else { panic!("{answer:?}") };
            assert_eq!(option.header, Some(HeaderValue::raw("x-user-id".to_owned(), Bytes::from_static(b"7"))));
            assert_eq!(option.append_action, 2);
        }
        assert_eq!(mutation(&answers[0]).remove_headers, ["authorization"]);
    }

    #[test]
    fn mode_until_the_response_ends_sends_its_head_and_trailers() {
        let mode = ProcessingMode::until_response_ends();
        let answer = ProcessingResponse::admitted([("x-user-id", "7")], vec![], Some(mode));
        let sent = answer.mode_override.unwrap();
        assert_eq!((sent.response_header_mode, sent.response_trailer_mode), (1, 1));
        assert_eq!((sent.request_body_mode, sent.response_body_mode, sent.request_trailer_mode), (0, 0, 0));
    }
}
