//! What requests to the API say: the ids in their paths, their queries and their bodies, each read strictly.
//!
//! - What is not understood is refused and named, never passed over: a misspelt parameter is no missing one.

use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::request::DashboardRequest;
use super::error::ApiError;
use super::routes::Route;
use crate::audit::Outcome;
use crate::identity::SessionId;
use crate::key::KeyId;
use crate::management::UseQuery;

/// What `PATCH /session` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChooseOrgBody {
    /// The id of an organization.
    pub(super) org: String,
}

/// What `POST /keys` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateKeyBody {
    pub(super) name: String,
    /// The id or email address of a user; none: whoever asks.
    pub(super) user: Option<String>,
}

/// What `POST /keys/{key}/rotate` takes.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateKeyBody {
    /// For how many seconds the old secret stays valid; none: not at all.
    pub(super) overlap_seconds: Option<WholeSeconds>,
}

/// A whole number, as JSON Schema has it: `60.0` is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "serde_json::Number")]
pub(super) struct WholeSeconds(pub(super) u64);

/// The number is not whole, or negative, or far too large.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a whole number of seconds, from 0 on")]
pub(super) struct InvalidSeconds(serde_json::Number);

impl TryFrom<serde_json::Number> for WholeSeconds {
    type Error = InvalidSeconds;

    fn try_from(number: serde_json::Number) -> Result<Self, InvalidSeconds> {
        // As far as every whole number can be told from its neighbours.
        let exact = |float: &f64| float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(float);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and within bounds")]
        let of_float = || number.as_f64().filter(exact).map(|float| float as u64);
        number.as_u64().or_else(of_float).map(Self).ok_or(InvalidSeconds(number))
    }
}

/// The key that a path names.
pub(super) fn key(id: Option<&str>) -> Result<KeyId, ApiError> {
    decoded(id).and_then(|id| id.parse().ok()).ok_or(ApiError::NoKey)
}

/// The session that a path names.
pub(super) fn session(id: Option<&str>) -> Result<SessionId, ApiError> {
    decoded(id).and_then(|id| id.parse().ok()).ok_or(ApiError::NoSuchSession)
}

fn decoded(segment: Option<&str>) -> Option<String> {
    percent_decode_str(segment?).decode_utf8().ok().map(Into::into)
}

/// Refuses parameters that the route does not have, and those that come twice.
pub(super) fn check_query(request: &DashboardRequest, route: &Route) -> Result<(), ApiError> {
    for (at, (name, _)) in request.query.iter().enumerate() {
        let shown: String = name.escape_default().take(100).collect();
        if !route.query.contains(&name.as_str()) {
            let known = if route.query.is_empty() { "none".to_owned() } else { route.query.join(", ") };
            return Err(ApiError::Parameter(format!("there is no parameter `{shown}` here; there is: {known}")));
        }
        if request.query[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(ApiError::Parameter(format!("`{shown}` comes twice; give it once")));
        }
    }
    Ok(())
}

/// Which uses are wanted.
pub(super) fn uses(request: &DashboardRequest) -> Result<UseQuery, ApiError> {
    let outcome = request.parameter("outcome").map(|text| {
        let names = || Outcome::all().map(Outcome::name).collect::<Vec<_>>().join(", ");
        Outcome::from_name(text).ok_or_else(|| ApiError::Parameter(format!("`outcome` is none of {}", names())))
    });
    let refused = match request.parameter("refused") {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(ApiError::Parameter("`refused` is neither true nor false".into())),
    };
    let limit = request.parameter("limit").map(|text| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| ApiError::Parameter("`limit` is not a whole number from 1 to 200".into()))
    });
    let before = request.parameter("before").map(str::to_owned);
    Ok(UseQuery { outcome: outcome.transpose()?, refused, before, limit: limit.transpose()? })
}

/// A body that may be left out.
pub(super) fn optional_body<T: Default + DeserializeOwned>(request: &DashboardRequest) -> Result<T, ApiError> {
    if request.body.is_empty() { Ok(T::default()) } else { body(request) }
}

/// A JSON object, of the form that is wanted.
pub(super) fn body<T: DeserializeOwned>(request: &DashboardRequest) -> Result<T, ApiError> {
    if request.body.is_empty() {
        return Err(ApiError::Body("it is empty; send a JSON object".into()));
    }
    if !is_json(request) {
        return Err(ApiError::MediaType);
    }
    // A list of the fields' values would be taken for an object.
    if request.body.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::Body("it is not a JSON object".into()));
    }
    serde_json::from_slice(&request.body).map_err(|error| ApiError::Body(error.to_string()))
}

/// Whether the body is said to be JSON. JSON is UTF-8 (RFC 8259, section 8.1), whether that is said or not.
fn is_json(request: &DashboardRequest) -> bool {
    let mut types = request.headers.get_all(CONTENT_TYPE).into_iter();
    let (Some(only), None) = (types.next(), types.next()) else { return false };
    let mut parts = only.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let essence = parts.next().unwrap_or_default();
    let utf8 =
        |part: &[u8]| part.eq_ignore_ascii_case(b"charset=utf-8") || part.eq_ignore_ascii_case(b"charset=\"utf-8\"");
    essence.eq_ignore_ascii_case(b"application/json") && parts.all(|part| part.is_empty() || utf8(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_those_of_json_schema() {
        let read = |text| serde_json::from_str::<WholeSeconds>(text).ok();
        for (text, whole) in [("0", 0), ("60", 60), ("60.0", 60), ("6e1", 60), ("-0.0", 0)] {
            assert_eq!(read(text), Some(WholeSeconds(whole)), "{text}");
        }
        for text in ["-1", "0.5", "1e300", "\"60\"", "true", "[60]"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
