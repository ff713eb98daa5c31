//! One stream for an exchange: `envoy/service/ext_proc/v3/external_processor.proto`.
//!
//! Envoy sends a [`ProcessingRequest`] for each part of the exchange that the mode has it send, and waits for one
//! [`ProcessingResponse`] of the same part before it goes on. It removes fields *before* it sets others, the reverse of
//! `ext_authz`; reads `raw_value` only; and neither sets nor removes `x-envoy-*`, unless the filter's mutation rules
//! allow it.

mod mode;
mod request;
mod response;

pub use mode::{BodySendMode, HeaderSendMode, ProcessingMode};
pub use request::{HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest, Request};
pub use response::{
    BodyResponse, CommonResponse, GrpcStatus, HeaderMutation, HeadersResponse, ImmediateResponse, ProcessingResponse,
    Response, ResponseStatus, TrailersResponse,
};

/// Path of the one method.
pub const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
