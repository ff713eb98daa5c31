//! Input of the API: queries and bodies, each parsed strictly.
//!
//! - Unknown input is refused and named, never ignored: a misspelt parameter must not count as an absent one.

use std::str::FromStr;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use crate::distinct_json::Distinct;
use crate::management::{ManagementError, UseFilter};
use crate::request::ControlRequest;
use domain::clock::{Micros, rfc3339};
use domain::page::{InvalidPageLimit, PageLimit, PageQuery};
use journal::audit::Outcome;

/// Media type of merge patches (RFC 7396, section 4).
const MERGE_PATCH: &str = "application/merge-patch+json";
/// `Accept-Patch` (RFC 5789, section 3.1).
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
/// The media types of patches.
const PATCH_TYPES: HeaderValue = HeaderValue::from_static("application/merge-patch+json, application/json");

/// Adds `Accept-Patch` to the response to a patch of another type, and to one that says that a path takes patches.
pub(crate) fn add_accept_patch(headers: &mut HeaderMap, is_patch_type: bool) {
    let allows =
        |allow: &HeaderValue| allow.as_bytes().split(|byte| *byte == b',').any(|name| name.trim_ascii() == b"PATCH");
    if is_patch_type || headers.get(ALLOW).is_some_and(allows) {
        headers.insert(ACCEPT_PATCH, PATCH_TYPES);
    }
}

/// Reads a struct from an object alone: serde also reads structs from arrays of their fields' values.
pub(crate) fn object<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let object = serde_json::Map::deserialize(deserializer)?;
    T::deserialize(serde_json::Value::Object(object)).map_err(D::Error::custom)
}

/// Tells a time that is `null` from one that is absent.
#[allow(clippy::option_option, reason = "absent, null and a time mean three things")]
pub(crate) fn given_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Micros>>, D::Error> {
    rfc3339::option::deserialize(deserializer).map(Some)
}

/// An integer number of seconds, as JSON Schema defines integers: `60.0` is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "serde_json::Number")]
pub(crate) struct WholeSeconds(pub(crate) u64);

/// The number has a fraction, is negative or is larger than 2^53.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a whole number of seconds of at least 0")]
pub(crate) struct InvalidSeconds(serde_json::Number);

impl TryFrom<serde_json::Number> for WholeSeconds {
    type Error = InvalidSeconds;

    fn try_from(number: serde_json::Number) -> Result<Self, InvalidSeconds> {
        // Up to 2^53, every integer has a floating-point number of its own.
        let is_exact = |float: &f64| float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(float);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and within bounds")]
        let from_float = || number.as_f64().filter(is_exact).map(|float| float as u64);
        number.as_u64().or_else(from_float).map(Self).ok_or(InvalidSeconds(number))
    }
}

/// A segment of a path, decoded.
pub(crate) fn decode(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(Into::into)
}

/// An id in a segment of a path; none when the segment has another form.
pub(crate) fn decode_id<T: FromStr>(segment: &str) -> Option<T> {
    decode(segment)?.parse().ok()
}

/// The value of a parameter that is true or false; none when it is absent.
pub(crate) fn boolean(request: &ControlRequest, name: &str) -> Result<Option<bool>, ManagementError> {
    let parse =
        |text: &str| text.parse().map_err(|_| ManagementError::InvalidQuery(format!("`{name}` must be true or false")));
    request.parameter(name).map(parse).transpose()
}

/// Refuses parameters that the route does not accept, and those that are given twice.
pub(crate) fn check_query(request: &ControlRequest, accepted: &[&str]) -> Result<(), ManagementError> {
    for (at, (name, _)) in request.query.iter().enumerate() {
        let shown: String = name.escape_default().take(100).collect();
        if !accepted.contains(&name.as_str()) {
            let accepted = if accepted.is_empty() { "none".to_owned() } else { accepted.join(", ") };
            return Err(ManagementError::InvalidQuery(format!(
                "`{shown}` is not a parameter of this path; accepted: {accepted}"
            )));
        }
        if request.query[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(ManagementError::InvalidQuery(format!("`{shown}` is given twice; give it once")));
        }
    }
    Ok(())
}

/// The page of a list.
pub(crate) fn page_query(request: &ControlRequest) -> Result<PageQuery, InvalidPageLimit> {
    let limit = request.parameter("limit").map(PageLimit::parse).transpose()?;
    Ok(PageQuery { cursor: request.parameter("cursor").map(str::to_owned), limit: limit.unwrap_or_default() })
}

/// The filter of a list of uses, of all actions.
pub(crate) fn use_filter(request: &ControlRequest) -> Result<UseFilter, ManagementError> {
    Ok(UseFilter {
        outcome: request.parameter("outcome").map(outcome).transpose()?,
        action: None,
        refused: boolean(request, "refused")?,
        since: time(request, "since")?,
        until: time(request, "until")?,
    })
}

/// The time of a query parameter.
pub(crate) fn time(request: &ControlRequest, name: &str) -> Result<Option<Micros>, ManagementError> {
    let parse = |text: &str| {
        let must = format!("`{name}` must be an RFC 3339 time, such as 2026-01-31T12:00:00Z");
        text.parse().map_err(|_| ManagementError::InvalidQuery(must))
    };
    request.parameter(name).map(parse).transpose()
}

fn outcome(text: &str) -> Result<Outcome, ManagementError> {
    let names = || Outcome::all().map(Outcome::name).collect::<Vec<_>>().join(", ");
    Outcome::from_name(text)
        .ok_or_else(|| ManagementError::InvalidQuery(format!("`outcome` must be one of {}", names())))
}

/// Parses a body that may be absent.
pub(crate) fn optional_body<T: Default + DeserializeOwned>(request: &ControlRequest) -> Result<T, ManagementError> {
    if request.body.is_empty() { Ok(T::default()) } else { body(request) }
}

/// Parses a body: a JSON object.
pub(crate) fn body<T: DeserializeOwned>(request: &ControlRequest) -> Result<T, ManagementError> {
    if request.body.is_empty() {
        return Err(ManagementError::InvalidBody("it is empty; send a JSON object".into()));
    }
    let is_patch = request.method == Method::PATCH;
    if !is_json(request, is_patch) {
        return Err(if is_patch { ManagementError::PatchMediaType } else { ManagementError::MediaType });
    }
    // serde also reads structs from arrays of their fields' values.
    if request.body.trim_ascii_start().first() != Some(&b'{') {
        return Err(ManagementError::InvalidBody("it is not a JSON object".into()));
    }
    let invalid = |error: serde_json::Error| ManagementError::InvalidBody(error.to_string());
    serde_json::from_slice::<Distinct>(&request.body).map_err(invalid)?;
    serde_json::from_slice(&request.body).map_err(invalid)
}

/// Returns `true` if there is one `Content-Type`, for JSON, or for a merge patch (RFC 7396, section 4) where one is
/// sent. JSON is UTF-8 with or without a parameter (RFC 8259, section 8.1).
fn is_json(request: &ControlRequest, is_patch: bool) -> bool {
    let mut types = request.headers.get_all(CONTENT_TYPE).into_iter();
    let (Some(only), None) = (types.next(), types.next()) else { return false };
    let mut parts = only.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let essence = parts.next().unwrap_or_default();
    let is_utf8 =
        |part: &[u8]| part.eq_ignore_ascii_case(b"charset=utf-8") || part.eq_ignore_ascii_case(b"charset=\"utf-8\"");
    let is_type = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
    (is_type("application/json") || (is_patch && is_type(MERGE_PATCH)))
        && parts.all(|part| part.is_empty() || is_utf8(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_integers_of_json_schema() {
        let read = |text| serde_json::from_str::<WholeSeconds>(text).ok();
        for (text, whole) in [("0", 0), ("60", 60), ("60.0", 60), ("6e1", 60), ("-0.0", 0)] {
            assert_eq!(read(text), Some(WholeSeconds(whole)), "{text}");
        }
        for text in ["-1", "0.5", "1e300", "\"60\"", "true", "[60]"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
