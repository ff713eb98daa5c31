//! Responses of an exchange (RFC 8693, section 2.2; RFC 6749, section 5.2).

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use uuid::Uuid;

use super::error::ExchangeError;
use super::request::ISSUED_TYPE;
use crate::management::{ApiKey, ExchangedKey};
use domain::clock::Micros;
use domain::identity::Permission;

/// Body of the response to a request that succeeded.
#[derive(Serialize)]
struct Issued<'a> {
    access_token: &'a ApiKey,
    issued_token_type: &'static str,
    token_type: &'static str,
    /// Seconds, rounded down: the key is not refused before.
    expires_in: u64,
    scope: String,
}

/// Body of the response to a request that failed.
#[derive(Serialize)]
struct Failure<'a> {
    error: &'static str,
    error_description: &'a str,
    /// Extension: stable name of the error, for programs.
    code: &'static str,
    /// Extension: id of the request.
    request_id: String,
}

/// The response with a key.
pub(super) fn success(key: &ExchangedKey, now: Micros) -> Response<Bytes> {
    let scope: Vec<&str> = key.permissions.iter().map(Permission::as_str).collect();
    let issued = Issued {
        access_token: &key.api_key,
        issued_token_type: ISSUED_TYPE,
        token_type: "Bearer",
        expires_in: key.expires.since(now) / 1_000_000,
        scope: scope.join(" "),
    };
    json(StatusCode::OK, &issued)
}

/// The response for an error.
pub(super) fn failure(id: Uuid, error: &ExchangeError) -> Response<Bytes> {
    let (status, name) = error.status_and_error();
    let description = error.description();
    let failure =
        Failure { error: name, error_description: &description, code: error.code(), request_id: id.to_string() };
    let mut response = json(status, &failure);
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    let body = serde_json::to_vec(body).expect("texts and numbers are JSON");
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // RFC 6749, section 5.1: what has a key is stored nowhere.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
