//! Responses of the admin faces.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::problem::{self, Problem};

/// A whole answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// A body with its type.
pub(super) fn content(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).expect("replies are structs with text keys");
    content(status, "application/json", body)
}

/// A refusal.
pub(super) fn problem(status: StatusCode, code: &str, detail: String) -> Answer {
    let body = Problem::new(status, code, detail).to_json();
    content(status, problem::MEDIA_TYPE, body)
}

/// No such thing here.
pub(super) fn not_found() -> Answer {
    problem(StatusCode::NOT_FOUND, "not_found", "there is nothing here".to_owned())
}

/// Another method is needed.
pub(super) fn method_not_allowed(allowed: &'static str) -> Answer {
    let detail = format!("only {allowed} works here");
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}
