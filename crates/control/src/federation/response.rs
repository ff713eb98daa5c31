//! Responses of an exchange (RFC 8693, section 2.2; RFC 6749, section 5.2).

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use uuid::Uuid;

use super::request::ISSUED_TYPE;
use crate::management::{ApiKey, ErrorKind, ExchangedKey, ManagementError};
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

/// The response for an error, by its name in the protocol. Nothing of its description is about this installation.
pub(super) fn failure(id: Uuid, error: &ManagementError) -> Response<Bytes> {
    let error = shown(error);
    let (status, name) = error.row().status_and_exchange_error();
    let description = match error.kind() {
        _ if error.row().is_of_exchange() => error.to_string(),
        ErrorKind::Unavailable => "the gateway cannot make a key now; try again".to_owned(),
        _ => ManagementError::ExchangeFailed.to_string(),
    };
    let failure =
        Failure { error: name, error_description: &description, code: error.code(), request_id: id.to_string() };
    let mut response = json(status, &failure);
    if let Some(seconds) = error.wait() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// The error as its client is told: a rule that was removed between the look at it and the exchange is no target.
pub(super) fn shown(error: &ManagementError) -> &ManagementError {
    if matches!(error, ManagementError::NoRule(_)) { &ManagementError::UnknownTarget } else { error }
}

/// Returns whether the client has done nothing wrong: it does not count as a failed attempt. While the keys of an
/// issuer cannot be read, every token counts: none of them is known to be valid.
pub(super) fn is_of_gateway(error: &ManagementError) -> bool {
    match error {
        ManagementError::ExchangeLimited(_) | ManagementError::ExchangeFailed => true,
        error => error.kind() == ErrorKind::Unavailable && !error.row().is_of_exchange(),
    }
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
