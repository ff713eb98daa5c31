//! Input of the API: references in paths, and the filters of lists.

use std::time::Duration;

use crate::json_input;
use crate::management::{KeyQuery, KeySort, ManagementError};
use crate::request::ControlRequest;
use domain::key::KeyId;
use platform::settings::parse_duration;

/// A name or id in a path; text that is not UTF-8 names nothing.
pub(super) fn reference(segment: &str) -> Result<String, ManagementError> {
    json_input::decode(segment).ok_or(ManagementError::NotFound)
}

/// The filter and the order of a list of keys.
pub(super) fn key_query(request: &ControlRequest) -> Result<KeyQuery, ManagementError> {
    let text = |name| request.parameter(name).unwrap_or_default().to_owned();
    let status = request.parameter("status").map(|status| {
        serde_json::from_value(serde_json::Value::from(status))
            .map_err(|_| ManagementError::InvalidQuery("`status` is not a status of keys".into()))
    });
    let (sort, descending) = key_order(request)?;
    Ok(KeyQuery {
        text: text("search"),
        name: text("name"),
        user: text("user"),
        status: status.transpose()?,
        unused_for: duration(request, "unused_for")?,
        expires_within: duration(request, "expires_within")?,
        sort,
        descending,
    })
}

/// The order of a list of keys: `sort`, or `newest_first`, which is `sort=-created`.
fn key_order(request: &ControlRequest) -> Result<(KeySort, bool), ManagementError> {
    let newest_first = json_input::boolean(request, "newest_first")?;
    let Some(text) = request.parameter("sort") else { return Ok((KeySort::Created, newest_first.unwrap_or(false))) };
    if newest_first.is_some() {
        return Err(ManagementError::InvalidQuery("give `sort` or `newest_first`, not both".into()));
    }
    KeySort::from_parameter(text).ok_or_else(|| {
        let names = KeySort::ALL.map(KeySort::name).join(", ");
        ManagementError::InvalidQuery(format!("`sort` must be one of {names}, or one with `-` before it: descending"))
    })
}

/// The ids of the parameter `keys`, separated by commas.
pub(super) fn key_list(request: &ControlRequest) -> Result<Vec<KeyId>, ManagementError> {
    let invalid = || ManagementError::InvalidQuery("`keys` must be ids of keys, separated by commas".into());
    let ids = request.parameter("keys").ok_or_else(invalid)?.split(',').map(|id| id.parse().map_err(|_| invalid()));
    ids.collect()
}

/// The digests of the parameter `sha256`, separated by commas.
pub(super) fn digests(request: &ControlRequest) -> Result<Vec<String>, ManagementError> {
    let missing = || ManagementError::InvalidQuery("give `sha256`: digests of keys, separated by commas".into());
    Ok(request.parameter("sha256").ok_or_else(missing)?.split(',').map(str::to_owned).collect())
}

fn duration(request: &ControlRequest, name: &str) -> Result<Option<Duration>, ManagementError> {
    let parse = |text| parse_duration(text).map_err(|error| ManagementError::InvalidQuery(format!("`{name}` {error}")));
    request.parameter(name).map(parse).transpose()
}
