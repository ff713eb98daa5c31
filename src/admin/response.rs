//! Responses of the admin socket and the admin listener.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::problem::{self, Problem};

/// Response with its whole body in memory.
pub(super) type AdminResponse = Response<Full<Bytes>>;

/// A response with this body.
pub(super) fn content(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with this value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> AdminResponse {
    let body = serde_json::to_vec(value).expect("replies are structs with text keys");
    content(status, "application/json", body)
}

/// A problem response (RFC 9457).
pub(super) fn problem(status: StatusCode, code: &str, detail: String) -> AdminResponse {
    let body = Problem::new(status, code, detail).to_json();
    content(status, problem::MEDIA_TYPE, body)
}

/// 404 for a path that does not exist.
pub(super) fn not_found() -> AdminResponse {
    problem(StatusCode::NOT_FOUND, "not_found", "there is nothing here".to_owned())
}

/// 405 with the methods that the path has.
pub(super) fn method_not_allowed(allowed: &'static str) -> AdminResponse {
    let detail = format!("only {allowed} works here");
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
