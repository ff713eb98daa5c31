//! Who asks: the identity headers that the gateway sets, and nothing else is believed.
//!
//! A request without them did not come through the gateway, and is refused. This does not make the service safe to
//! expose: whoever reaches it can set the headers as well. Only the gateway may reach it.

use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

use super::refusal::Refusal;
use crate::identity::{X_ORG_ID, X_REQUEST_ID, X_USER_ID};
use crate::query_store::service::Caller;

/// Characters of a request id that is taken over: a UUID has 36.
const MAX_REQUEST_ID: usize = 128;

/// The caller of a request.
pub(super) fn read(headers: &HeaderMap) -> Result<Caller, Refusal> {
    Ok(Caller { org: identity(headers, X_ORG_ID)?, user: identity(headers, X_USER_ID)? })
}

/// The request's id as the gateway set it, or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let given = single(headers, &X_REQUEST_ID).filter(|id| !id.is_empty() && id.len() <= MAX_REQUEST_ID);
    given.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

fn identity<T: FromStr>(headers: &HeaderMap, name: HeaderName) -> Result<T, Refusal> {
    single(headers, &name).and_then(|text| text.parse().ok()).ok_or(Refusal::NoIdentity { header: name })
}

/// The value of a header that is there exactly once and is visible ASCII.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
