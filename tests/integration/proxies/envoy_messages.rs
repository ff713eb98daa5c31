//! Messages of `envoy.service.auth.v3` and `envoy.service.ext_proc.v3`: the few fields that the tests need.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub raw_value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// 2: overwrite if it exists, or add.
    #[prost(int32, tag = "3")]
    pub append_action: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

// ext_authz.

#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<Attributes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Attributes {
    #[prost(message, optional, tag = "4")]
    pub request: Option<AttributesRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AttributesRequest {
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpRequest {
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(map = "string, string", tag = "3")]
    pub headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    pub path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<RpcStatus>,
    #[prost(message, optional, tag = "2")]
    pub denied_response: Option<DeniedResponse>,
    #[prost(message, optional, tag = "3")]
    pub ok_response: Option<OkResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeniedResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub body: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OkResponse {
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    pub headers_to_remove: Vec<String>,
}

// ext_proc.

#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    #[prost(message, optional, tag = "2")]
    pub request_headers: Option<HttpHeaders>,
    #[prost(message, optional, tag = "3")]
    pub response_headers: Option<HttpHeaders>,
    #[prost(message, optional, tag = "7")]
    pub response_trailers: Option<Empty>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    #[prost(message, optional, tag = "1")]
    pub request_headers: Option<HeadersResponse>,
    #[prost(message, optional, tag = "2")]
    pub response_headers: Option<HeadersResponse>,
    #[prost(message, optional, tag = "6")]
    pub response_trailers: Option<Empty>,
    #[prost(message, optional, tag = "7")]
    pub immediate_response: Option<ImmediateResponse>,
    #[prost(message, optional, tag = "9")]
    pub mode_override: Option<ProcessingMode>,
}

/// 1: send, 2: skip.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingMode {
    #[prost(int32, tag = "2")]
    pub response_header_mode: i32,
    #[prost(int32, tag = "6")]
    pub response_trailer_mode: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeadersResponse {
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    #[prost(bytes = "vec", tag = "3")]
    pub body: Vec<u8>,
}
