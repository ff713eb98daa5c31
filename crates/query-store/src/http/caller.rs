//! The caller of a request, by the identity headers that the gateway sets.
//!
//! A request without these headers did not come through the gateway, and is refused. This does not make the service
//! safe to expose: everyone who reaches it can set the headers. Only the gateway may reach it.

use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

use super::request_error::RequestError;
use crate::service::Caller;
use domain::identity::{X_ORG_ID, X_REQUEST_ID, X_USER_ID};

/// Maximum length of a request id that is accepted, in characters; a UUID has 36.
const MAX_REQUEST_ID: usize = 128;

/// Reads the caller of a request.
pub(super) fn read_caller(headers: &HeaderMap) -> Result<Caller, RequestError> {
    Ok(Caller { org: parse_identity(headers, X_ORG_ID)?, user: parse_identity(headers, X_USER_ID)? })
}

/// The request id that the gateway set, or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let given = single_value(headers, &X_REQUEST_ID).filter(|id| !id.is_empty() && id.len() <= MAX_REQUEST_ID);
    given.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

fn parse_identity<T: FromStr>(headers: &HeaderMap, name: HeaderName) -> Result<T, RequestError> {
    single_value(headers, &name).and_then(|text| text.parse().ok()).ok_or(RequestError::NoIdentity { header: name })
}

/// The value of a header that is present exactly once and is visible ASCII.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
