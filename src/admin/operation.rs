//! Operations as they travel over the admin socket: `{"operation": "key.create", "org": "…", …}`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{Permission, SessionId};
use crate::key::KeyId;
use crate::management::{LimitUpdate, UseQuery, duration_text};

/// Operation on the wire. Organizations are given by id or name, users by id or email address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are the operands of the function that the variant names")]
pub enum Operation {
    /// [`create_org`](crate::management::Management::create_org)
    #[serde(rename = "org.create")]
    CreateOrg { name: String },
    /// [`list_orgs`](crate::management::Management::list_orgs)
    #[serde(rename = "org.list")]
    ListOrgs {},
    /// [`show_org`](crate::management::Management::show_org)
    #[serde(rename = "org.show")]
    ShowOrg { org: String },
    /// [`suspend_org`](crate::management::Management::suspend_org)
    #[serde(rename = "org.suspend")]
    SuspendOrg { org: String },
    /// [`resume_org`](crate::management::Management::resume_org)
    #[serde(rename = "org.resume")]
    ResumeOrg { org: String },
    /// [`limit_org`](crate::management::Management::limit_org)
    #[serde(rename = "org.limits")]
    LimitOrg { org: String, concurrent: Option<u32> },
    /// [`create_user`](crate::management::Management::create_user)
    #[serde(rename = "user.create")]
    CreateUser { org: String, email: String, permissions: Vec<Permission> },
    /// [`list_users`](crate::management::Management::list_users)
    #[serde(rename = "user.list")]
    ListUsers { org: String },
    /// [`permit_user`](crate::management::Management::permit_user)
    #[serde(rename = "user.permit")]
    PermitUser { org: String, user: String, permissions: Vec<Permission> },
    /// [`remove_user`](crate::management::Management::remove_user)
    #[serde(rename = "user.remove")]
    RemoveUser { org: String, user: String },
    /// [`create_key`](crate::management::Management::create_key)
    #[serde(rename = "key.create")]
    CreateKey { org: String, user: String, name: String },
    /// [`list_keys`](crate::management::Management::list_keys)
    #[serde(rename = "key.list")]
    ListKeys { org: String },
    /// [`show_key`](crate::management::Management::show_key)
    #[serde(rename = "key.show")]
    ShowKey { key: KeyId },
    /// [`revoke_key`](crate::management::Management::revoke_key)
    #[serde(rename = "key.revoke")]
    RevokeKey { key: KeyId },
    /// [`rotate_key`](crate::management::Management::rotate_key)
    #[serde(rename = "key.rotate")]
    RotateKey {
        key: KeyId,
        #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
        overlap: Option<Duration>,
    },
    /// [`limit_key`](crate::management::Management::limit_key)
    #[serde(rename = "key.limits")]
    LimitKey { key: KeyId, limits: Option<LimitUpdate> },
    /// [`import_key`](crate::management::Management::import_key)
    #[serde(rename = "key.import")]
    ImportKey { org: String, user: String, sha256: String, name: String },
    /// [`explain_key`](crate::management::Management::explain_key)
    #[serde(rename = "explain")]
    Explain { key: KeyId },
    /// [`list_uses`](crate::management::Management::list_uses)
    #[serde(rename = "key.uses")]
    ListUses {
        key: KeyId,
        #[serde(default)]
        uses: UseQuery,
    },
    /// [`key_activity`](crate::management::Management::key_activity)
    #[serde(rename = "org.activity")]
    Activity { org: String, keys: Vec<KeyId> },
    /// [`create_link`](crate::management::Management::create_link)
    #[serde(rename = "session.link")]
    LinkSession { org: String, user: String },
    /// [`list_sessions`](crate::management::Management::list_sessions)
    #[serde(rename = "session.list")]
    ListSessions { org: Option<String> },
    /// [`end_session`](crate::management::Management::end_session)
    #[serde(rename = "session.end")]
    EndSession { session: SessionId },
    /// [`end_sessions`](crate::management::Management::end_sessions)
    #[serde(rename = "session.end_all")]
    EndSessions { org: String, user: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_travel_as_json() {
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
            (
                Operation::ListUses { key, uses: UseQuery { limit: Some(5), ..UseQuery::default() } },
                r#"{"operation":"key.uses","key":"abcDEF123","uses":{"outcome":null,"refused":null,"before":null,"limit":5}}"#,
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
