//! The operations, as they travel over the admin socket: `{"operation": "key.create", "org": "…", …}`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{LimitUpdate, UseQuery, duration_text};
use crate::identity::{Permission, SessionId};
use crate::key::KeyId;

/// One thing to do. Organizations are given by id or name, users by id or email address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are the operands that the variant's text names")]
pub enum Operation {
    /// A new organization with this name.
    #[serde(rename = "org.create")]
    CreateOrg { name: String },
    /// All organizations.
    #[serde(rename = "org.list")]
    ListOrgs {},
    /// One organization.
    #[serde(rename = "org.show")]
    ShowOrg { org: String },
    /// Refuse all its requests from the next one on.
    #[serde(rename = "org.suspend")]
    SuspendOrg { org: String },
    /// Admit them again.
    #[serde(rename = "org.resume")]
    ResumeOrg { org: String },
    /// Its own limit of requests in flight, or none for the configured one.
    #[serde(rename = "org.limits")]
    LimitOrg { org: String, concurrent: Option<u32> },
    /// A new user with this email address and these permissions.
    #[serde(rename = "user.create")]
    CreateUser { org: String, email: String, permissions: Vec<Permission> },
    /// All users of an organization, removed ones too.
    #[serde(rename = "user.list")]
    ListUsers { org: String },
    /// Replace all that a user may do.
    #[serde(rename = "user.permit")]
    PermitUser { org: String, user: String, permissions: Vec<Permission> },
    /// Remove a user and refuse its keys, for good.
    #[serde(rename = "user.remove")]
    RemoveUser { org: String, user: String },
    /// A new key for a user, with this name.
    #[serde(rename = "key.create")]
    CreateKey { org: String, user: String, name: String },
    /// All keys of an organization, revoked ones too.
    #[serde(rename = "key.list")]
    ListKeys { org: String },
    /// One key.
    #[serde(rename = "key.show")]
    ShowKey { key: KeyId },
    /// Refuse a key from the next request on, for good.
    #[serde(rename = "key.revoke")]
    RevokeKey { key: KeyId },
    /// A new secret for a key; the old one stays valid for the overlap, if there is one.
    #[serde(rename = "key.rotate")]
    RotateKey {
        key: KeyId,
        #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
        overlap: Option<Duration>,
    },
    /// Its own limits, or none for the configured ones.
    #[serde(rename = "key.limits")]
    LimitKey { key: KeyId, limits: Option<LimitUpdate> },
    /// A key of an older system, by its SHA-256 in hexadecimal.
    #[serde(rename = "key.import")]
    ImportKey { org: String, user: String, sha256: String, name: String },
    /// Why a key is, or would be, refused.
    #[serde(rename = "explain")]
    Explain { key: KeyId },
    /// The uses of a key that this gateway has recorded, newest first.
    #[serde(rename = "key.uses")]
    ListUses {
        key: KeyId,
        #[serde(default)]
        uses: UseQuery,
    },
    /// What happened with some keys of an organization in the last day, as far as this gateway has recorded it. At most
    /// 200 keys.
    #[serde(rename = "org.activity")]
    Activity { org: String, keys: Vec<KeyId> },
    /// A link that signs a user in to the dashboard, once.
    #[serde(rename = "session.link")]
    LinkSession { org: String, user: String },
    /// All web sessions, or those of people of one organization.
    #[serde(rename = "session.list")]
    ListSessions { org: Option<String> },
    /// End a web session, everywhere at once.
    #[serde(rename = "session.end")]
    EndSession { session: SessionId },
    /// End all web sessions of a user.
    #[serde(rename = "session.end_all")]
    EndSessions { org: String, user: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn travels_as_json() {
        let key: KeyId = "abcDEF123".parse().unwrap();
        let limits = LimitUpdate { requests: Some(10), per: Some(Duration::from_secs(60)), burst: None };
        let cases = [
            (Operation::ListOrgs {}, r#"{"operation":"org.list"}"#),
            (
                Operation::RotateKey { key, overlap: Some(Duration::from_secs(3600)) },
                r#"{"operation":"key.rotate","key":"abcDEF123","overlap":"1h"}"#,
            ),
            (
                Operation::LimitKey { key, limits: Some(limits) },
                r#"{"operation":"key.limits","key":"abcDEF123","limits":{"requests":10,"per":"1m","burst":null}}"#,
            ),
        ];
        for (operation, json) in cases {
            assert_eq!(serde_json::to_string(&operation).unwrap(), json);
            assert_eq!(serde_json::from_str::<Operation>(json).unwrap(), operation);
        }
        assert!(serde_json::from_str::<Operation>(r#"{"operation":"org.list","x":1}"#).is_err());
        assert!(serde_json::from_str::<Operation>(r#"{"operation":"org.drop"}"#).is_err());
    }
}
