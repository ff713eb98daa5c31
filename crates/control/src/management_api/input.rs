//! Input of the management API: bodies, ids in paths, and the filters of lists.

use std::time::Duration;

use serde::Deserialize;

use super::error::ApiError;
use crate::json_input::{self, InputError, WholeSeconds};
use crate::management::{KeyQuery, LimitUpdate, PolicyUpdate, UserKind};
use crate::request::{ControlRequest, RouteError};
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::KeyId;
use domain::management_token::TokenId;
use platform::settings::parse_duration;

/// Body of `POST /orgs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateOrgBody {
    pub(super) name: String,
}

/// Body of `POST /orgs/{org}/users`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateUserBody {
    /// Email address of a person, name of a service.
    pub(super) email: String,
    #[serde(default)]
    pub(super) kind: UserKind,
    #[serde(default)]
    pub(super) permissions: Vec<Permission>,
    /// Id or email address of the person who is responsible for a service.
    pub(super) responsible: Option<String>,
}

/// Body of `POST /orgs/{org}/keys`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateKeyBody {
    pub(super) name: String,
    /// Id or email address of the owner.
    pub(super) user: String,
    #[serde(default, deserialize_with = "json_input::object")]
    pub(super) policy: PolicyUpdate,
    /// Id of a key that was made offline, with its digest: both or neither.
    pub(super) id: Option<KeyId>,
    /// SHA-256 of the whole key, in hexadecimal.
    pub(super) sha256: Option<String>,
}

/// Body of `PUT /orgs/{org}/keys/by-digest/{sha256}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PutKeyBody {
    pub(super) name: String,
    /// Id or email address of the owner.
    pub(super) user: String,
    #[serde(default, deserialize_with = "json_input::object")]
    pub(super) policy: PolicyUpdate,
    /// Id of a key that was made offline; absent for one of another system.
    pub(super) id: Option<KeyId>,
}

/// Body of `POST /orgs/{org}/keys/import`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportKeyBody {
    /// Id or email address of the owner.
    pub(super) user: String,
    /// SHA-256 of the whole key, in hexadecimal.
    pub(super) sha256: String,
    /// Id of a key that was made offline; absent for one of another system.
    pub(super) id: Option<KeyId>,
    pub(super) name: String,
    /// The key's own limits; absent or `null`: the configured ones.
    pub(super) limits: Option<LimitUpdate>,
    #[serde(default, deserialize_with = "json_input::object")]
    pub(super) policy: PolicyUpdate,
    /// The key is refused until it is enabled.
    #[serde(default)]
    pub(super) disabled: bool,
}

/// Body of `POST /keys/{key}/rotate`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateKeyBody {
    /// Time in which the old secret stays valid; absent: none.
    pub(super) overlap_seconds: Option<WholeSeconds>,
    /// The member `rotated` of the key as the program knows it; absent: any.
    #[serde(default, deserialize_with = "json_input::given_time")]
    pub(super) expected_rotated: Option<Option<Micros>>,
    /// SHA-256 of a whole key that was made offline; absent: the secret is generated.
    pub(super) sha256: Option<String>,
}

/// Body of `POST /keys/{key}/disable`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DisableKeyBody {
    /// The key has leaked.
    #[serde(default)]
    pub(super) leaked: bool,
}

/// The key id in a path.
pub(super) fn key(segment: &str) -> Result<KeyId, ApiError> {
    json_input::decode_id(segment).ok_or(ApiError::NoKey)
}

/// The token id in a path.
pub(super) fn token(segment: &str) -> Result<TokenId, ApiError> {
    json_input::decode_id(segment).ok_or(ApiError::NoSuchToken)
}

/// A name or id in a path; text that is not UTF-8 names nothing.
pub(super) fn reference(segment: &str) -> Result<String, ApiError> {
    Ok(json_input::decode(segment).ok_or(RouteError::NotFound)?)
}

/// The filter and the order of a list of keys.
pub(super) fn key_query(request: &ControlRequest) -> Result<KeyQuery, ApiError> {
    let text = |name| request.parameter(name).unwrap_or_default().to_owned();
    let status = request.parameter("status").map(|status| {
        serde_json::from_value(serde_json::Value::from(status))
            .map_err(|_| InputError::Query("`status` is not a status of keys".into()))
    });
    Ok(KeyQuery {
        text: text("search"),
        name: text("name"),
        user: text("user"),
        status: status.transpose()?,
        unused_for: duration(request, "unused_for")?,
        expires_within: duration(request, "expires_within")?,
        newest_first: json_input::boolean(request, "newest_first")?.unwrap_or(false),
    })
}

/// The ids of the parameter `keys`, separated by commas.
pub(super) fn key_list(request: &ControlRequest) -> Result<Vec<KeyId>, ApiError> {
    let invalid = || InputError::Query("`keys` must be ids of keys, separated by commas".into());
    let ids = request.parameter("keys").ok_or_else(invalid)?.split(',').map(|id| id.parse().map_err(|_| invalid()));
    Ok(ids.collect::<Result<_, _>>()?)
}

/// The digests of the parameter `sha256`, separated by commas.
pub(super) fn digests(request: &ControlRequest) -> Result<Vec<String>, ApiError> {
    let missing = || InputError::Query("give `sha256`: digests of keys, separated by commas".into());
    Ok(request.parameter("sha256").ok_or_else(missing)?.split(',').map(str::to_owned).collect())
}

fn duration(request: &ControlRequest, name: &str) -> Result<Option<Duration>, InputError> {
    let parse = |text| parse_duration(text).map_err(|error| InputError::Query(format!("`{name}` {error}")));
    request.parameter(name).map(parse).transpose()
}
