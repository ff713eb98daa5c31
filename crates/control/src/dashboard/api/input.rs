//! Input of the API: bodies, and ids in paths.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::error::ApiError;
use crate::json_input::{self, WholeSeconds};
use crate::management::{PolicyUpdate, TokenSettings};
use domain::clock::{Micros, rfc3339};
use domain::identity::SessionId;
use domain::key::KeyId;
use domain::key::policy::Network;
use domain::management_token::{TokenId, TokenScope};

/// Body of `PATCH /session`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChooseOrgBody {
    /// Id of an organization.
    pub(super) org: String,
}

/// Body of `POST /keys`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateKeyBody {
    pub(super) name: String,
    /// Id or email address of the owner; absent: the signed-in user.
    pub(super) user: Option<String>,
    /// Policy; absent: the key may do what its owner may.
    #[serde(default, deserialize_with = "json_input::object")]
    pub(super) policy: PolicyUpdate,
}

/// Body of `PATCH /keys/{key}`: a merge patch of the key (RFC 7396), whose other members cannot be changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetKeyBody {
    #[serde(deserialize_with = "json_input::object")]
    pub(super) policy: PolicyUpdate,
}

/// Body of `POST /keys/{key}/rotate`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateKeyBody {
    /// Time in which the old secret stays valid; absent: none.
    pub(super) overlap_seconds: Option<WholeSeconds>,
    /// The member `rotated` of the key as the client knows it, `null` for a key that was never rotated. When it is
    /// another one now, nothing is changed. Absent: any.
    #[serde(default, deserialize_with = "json_input::given_time")]
    pub(super) expected_rotated: Option<Option<Micros>>,
}

/// Body of `POST /tokens`: the settings of a token without its organization, which is the chosen one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTokenBody {
    name: String,
    allow: BTreeSet<TokenScope>,
    #[serde(default, deserialize_with = "rfc3339::option::deserialize")]
    expires: Option<Micros>,
    #[serde(default)]
    networks: Vec<Network>,
    client_san: Option<String>,
}

impl CreateTokenBody {
    /// The settings of a token of this organization.
    pub(super) fn into_settings(self, org: &str) -> TokenSettings {
        let Self { name, allow, expires, networks, client_san } = self;
        TokenSettings { name, org: Some(org.to_owned()), allow, expires, networks, client_san }
    }
}

/// The key id in a path.
pub(super) fn key(segment: &str) -> Result<KeyId, ApiError> {
    json_input::decode_id(segment).ok_or(ApiError::NoKey)
}

/// The session id in a path.
pub(super) fn session(segment: &str) -> Result<SessionId, ApiError> {
    json_input::decode_id(segment).ok_or(ApiError::NoSuchSession)
}

/// The token id in a path.
pub(super) fn token(segment: &str) -> Result<TokenId, ApiError> {
    json_input::decode_id(segment).ok_or(ApiError::NoSuchToken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_an_object() {
        let read = |text: &str| serde_json::from_str::<SetKeyBody>(text).map(|body| body.policy);
        assert!(read(r#"{"policy":{"concurrent":null}}"#).unwrap().concurrent.is_some(), "null clears");
        for text in [r#"{"policy":[null,null]}"#, r#"{"policy":null}"#, r#"{"policy":{"disabled":null}}"#, "{}"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
