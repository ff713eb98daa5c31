//! The bytes that protoc makes of `golden/*/*.txtpb` by Envoy's `.proto` files (`golden/encode.sh`) are read as the
//! messages of this crate, and written by it.

use std::fmt::Debug;

use bytes::Bytes;
use http::StatusCode;
use prost::Message;

use crate::ext_authz::{AttributeContext, CheckRequest, CheckResponse, HttpRequest, Peer};
use crate::ext_proc::{
    BodyResponse, BodySendMode, CommonResponse, GrpcStatus, HeaderMutation, HeaderSendMode, HeadersResponse, HttpBody,
    HttpHeaders, HttpTrailers, ProcessingMode, ProcessingRequest, ProcessingResponse, Request, Response,
    ResponseStatus, TrailersResponse,
};
use crate::{Duration, HeaderAppendAction, HeaderMap, HeaderValue, HeaderValueOption, Kind, Struct, Timestamp, Value};
use crate::{ext_authz, ext_proc};

/// Bytes of a message of the folder `golden`.
macro_rules! golden {
    ($path:literal) => {
        include_bytes!(concat!("../../golden/", $path, ".binpb"))
    };
}

/// Checks both directions.
#[track_caller]
fn assert_same<M: Message + Default + PartialEq + Debug>(message: &M, golden: &[u8]) {
    assert_decoded(message, golden);
    assert_eq!(message.encode_to_vec().escape_ascii().to_string(), golden.escape_ascii().to_string());
}

/// Compares without `Debug`, which hides values.
#[track_caller]
fn assert_decoded<M: Message + Default + PartialEq + Debug>(message: &M, golden: &[u8]) {
    let decoded = M::decode(golden).unwrap();
    assert!(decoded == *message, "{decoded:?}\ninstead of {message:?}");
}

fn raw_headers(fields: &[(&str, &'static [u8])]) -> Option<HeaderMap> {
    let field = |(name, value): &(&str, &'static [u8])| HeaderValue::raw((*name).to_owned(), Bytes::from_static(value));
    Some(HeaderMap { headers: fields.iter().map(field).collect() })
}

fn peer(address: &str) -> Option<Peer> {
    Some(Peer { address: Some(address.parse::<std::net::SocketAddr>().unwrap().into()) })
}

fn check_request() -> CheckRequest {
    let headers = [(":authority", "api.example.org"), ("authorization", "Bearer sk_live_1"), ("x-empty", "")];
    let mut header_map = raw_headers(&[(":method", b"POST"), ("x-raw", b"\xFF\0")]).unwrap();
    header_map.headers.push(HeaderValue::text("x-text".to_owned(), "text".to_owned()));
    let http = HttpRequest {
        id: "1234567890123456789".to_owned(),
        method: "POST".to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        header_map: Some(header_map),
        path: "/v1/query?a=b".to_owned(),
        host: "api.example.org".to_owned(),
        scheme: "https".to_owned(),
        query: "q".to_owned(),
        fragment: "f".to_owned(),
        size: -1,
        protocol: "HTTP/2".to_owned(),
        body: "SELECT 1".to_owned(),
    };
    let time = Some(Timestamp { seconds: 1_764_136_361, nanos: 123_456_789 });
    let attributes = AttributeContext {
        source: peer("203.0.113.9:4711"),
        destination: peer("[2001:db8::9]:0"),
        request: Some(ext_authz::Request { time, http: Some(http) }),
        context_extensions: [("route".to_owned(), "query".to_owned())].into(),
    };
    CheckRequest { attributes: Some(attributes) }
}

#[test]
fn check_requests_are_read_and_written() {
    let mut message = check_request();
    assert_decoded(&message, golden!("auth.CheckRequest/other_fields"));
    assert_eq!(message.source().unwrap().socket_addr(), Some("203.0.113.9:4711".parse().unwrap()));
    assert_eq!(message.http().unwrap().fields().count(), 6);
    // Entries of a map without a value have two forms on the wire.
    let http = message.attributes.as_mut().unwrap().request.as_mut().unwrap().http.as_mut().unwrap();
    http.headers.remove("x-empty");
    assert_same(&message, golden!("auth.CheckRequest/all_fields"));
}

#[test]
fn check_responses_are_read_and_written() {
    let metadata = Struct::from_iter([
        ("key", Value::from("mZvzkepCv")),
        ("limits", vec![Value::from(1.5), Value::from(true), Value { kind: Some(Kind::NullValue(0)) }].into()),
        ("organization", Struct::from_iter([("id", "acme")]).into()),
    ]);
    let remove = ["authorization", "X-User-ID", "x_user_id"].map(str::to_owned).to_vec();
    let admitted = CheckResponse::admitted([("x-user-id", "ada"), ("x-empty", "")], remove, Some(metadata))
        .with_response_fields([("ratelimit", "\"key\";r=1;t=2")]);
    assert_same(&admitted, golden!("auth.CheckResponse/admitted"));
    let fields = [("retry-after", "7"), ("www-authenticate", "Bearer"), ("www-authenticate", "Basic")];
    let denied = CheckResponse::denied(StatusCode::TOO_MANY_REQUESTS, fields, r#"{"status":429}"#);
    assert_same(&denied, golden!("auth.CheckResponse/denied"));
}

#[test]
fn heads_of_requests_are_read_and_written() {
    let headers = raw_headers(&[(":method", b"GET"), ("x-raw", b"\xFF")]);
    let attributes = Struct::from_iter([("source.address", "203.0.113.9:4711")]);
    let message = ProcessingRequest {
        request: Some(Request::RequestHeaders(HttpHeaders { headers, end_of_stream: true })),
        attributes: [("envoy.filters.http.ext_proc".to_owned(), attributes)].into(),
        observability_mode: true,
    };
    assert_same(&message, golden!("ext_proc.ProcessingRequest/request_headers"));
    assert_decoded(&message, golden!("ext_proc.ProcessingRequest/other_fields"));
}

#[test]
fn parts_of_exchanges_are_read_and_written() {
    let body = |body, end_of_stream| HttpBody { body: Bytes::from_static(body), end_of_stream };
    let trailers = |name, value| HttpTrailers { trailers: raw_headers(&[(name, value)]) };
    let headers = HttpHeaders { headers: raw_headers(&[(":status", b"200")]), end_of_stream: false };
    let parts: [(Request, &[u8]); 5] = [
        (Request::ResponseHeaders(headers), golden!("ext_proc.ProcessingRequest/response_headers")),
        (Request::RequestBody(body(b"\0\xFF", true)), golden!("ext_proc.ProcessingRequest/request_body")),
        (Request::ResponseBody(body(b"piece", false)), golden!("ext_proc.ProcessingRequest/response_body")),
        (Request::RequestTrailers(trailers("x-sum", b"1")), golden!("ext_proc.ProcessingRequest/request_trailers")),
        (
            Request::ResponseTrailers(trailers("grpc-status", b"0")),
            golden!("ext_proc.ProcessingRequest/response_trailers"),
        ),
    ];
    for (part, golden) in parts {
        assert_same(&ProcessingRequest::from(part), golden);
    }
}

#[test]
fn answers_to_parts_are_read_and_written() {
    let removal = HeaderMutation { set_headers: vec![], remove_headers: vec!["x-sum".to_owned()] };
    let parts: [(Response, &[u8]); 6] = [
        (Response::RequestHeaders(Default::default()), golden!("ext_proc.ProcessingResponse/request_headers")),
        (Response::ResponseHeaders(Default::default()), golden!("ext_proc.ProcessingResponse/response_headers")),
        (Response::RequestBody(Default::default()), golden!("ext_proc.ProcessingResponse/request_body")),
        (
            Response::ResponseBody(BodyResponse { response: Some(Default::default()) }),
            golden!("ext_proc.ProcessingResponse/response_body"),
        ),
        (Response::RequestTrailers(Default::default()), golden!("ext_proc.ProcessingResponse/request_trailers")),
        (
            Response::ResponseTrailers(TrailersResponse { header_mutation: Some(removal) }),
            golden!("ext_proc.ProcessingResponse/response_trailers"),
        ),
    ];
    for (part, golden) in parts {
        assert_same(&ProcessingResponse::from(part), golden);
    }
}

#[test]
fn admissions_and_refusals_are_read_and_written() {
    let remove = ["authorization", "x_user_id"].map(str::to_owned).to_vec();
    let mode = ProcessingMode::until_response_ends();
    let admitted = ProcessingResponse::admitted([("x-user-id", "ada")], remove, Some(mode));
    assert_same(&admitted, golden!("ext_proc.ProcessingResponse/admitted"));
    let fields = [("www-authenticate", "Bearer"), ("www-authenticate", "Basic")];
    let mut refused = ProcessingResponse::immediate(StatusCode::UNAUTHORIZED, fields, r#"{"status":401}"#);
    let Some(Response::ImmediateResponse(response)) = &mut refused.response else { panic!("{refused:?}") };
    response.grpc_status = Some(GrpcStatus { status: 16 });
    response.details = "unknown_key".to_owned();
    assert_same(&refused, golden!("ext_proc.ProcessingResponse/immediate"));
}

#[test]
fn every_field_of_an_answer_is_read_and_written() {
    let header = Some(HeaderValue::raw("a".to_owned(), Bytes::from_static(b"\xFF")));
    let append_action = HeaderAppendAction::AddIfAbsent.into();
    let option = HeaderValueOption { header, append_action, ..Default::default() };
    let changes = CommonResponse {
        status: ResponseStatus::ContinueAndReplace.into(),
        header_mutation: Some(HeaderMutation { set_headers: vec![option], remove_headers: vec![] }),
        clear_route_cache: true,
    };
    let mode = ProcessingMode {
        request_header_mode: HeaderSendMode::Skip.into(),
        response_header_mode: HeaderSendMode::Send.into(),
        request_body_mode: BodySendMode::Streamed.into(),
        response_body_mode: BodySendMode::Buffered.into(),
        request_trailer_mode: HeaderSendMode::Default.into(),
        response_trailer_mode: HeaderSendMode::Send.into(),
    };
    let message = ProcessingResponse {
        response: Some(Response::ResponseHeaders(HeadersResponse { response: Some(changes) })),
        dynamic_metadata: Some(Struct::from_iter([("keygate", Struct::from_iter([("key", "k")]))])),
        mode_override: Some(mode),
        override_message_timeout: Some(Duration::from(std::time::Duration::from_millis(1500))),
    };
    assert_same(&message, golden!("ext_proc.ProcessingResponse/all_fields"));
}

/// The paths are those of the services in the `.proto` files.
#[test]
fn paths_name_the_services() {
    assert_eq!(ext_authz::CHECK, "/envoy.service.auth.v3.Authorization/Check");
    assert_eq!(ext_proc::PROCESS, "/envoy.service.ext_proc.v3.ExternalProcessor/Process");
}
