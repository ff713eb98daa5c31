//! Responses of the management API.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

/// A response with a body of this media type. Caches do not store it.
pub(super) fn build(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A response with this value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    build(status, "application/json", serde_json::to_vec(value).expect("results are structs with text keys"))
}
