//! Operations as they travel over the admin socket: `{"operation": "key.create", "org": "…", …}`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::management::{
    KeyQuery, LimitUpdate, NewFederationRule, OrgPolicyUpdate, PolicyUpdate, TokenSettings, UseFilter, duration_text,
};
use domain::identity::{Permission, SessionId};
use domain::key::KeyId;
use domain::management_token::TokenId;
use domain::page::PageLimit;

/// Operation on the wire. Organizations are given by id or name, users by id or email address. Lists are read a page at
/// a time: `cursor` is the `nextCursor` of the page before, `limit` the number of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are the operands of the function that the variant names")]
pub enum Operation {
    /// [`create_org`](crate::management::Management::create_org)
    #[serde(rename = "org.create")]
    CreateOrg { name: String },
    /// [`list_orgs`](crate::management::Management::list_orgs)
    #[serde(rename = "org.list")]
    ListOrgs {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
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
    /// [`set_org_policy`](crate::management::Management::set_org_policy)
    #[serde(rename = "org.policy")]
    SetOrgPolicy { org: String, policy: OrgPolicyUpdate },
    /// [`accept_state`](crate::management::Management::accept_state)
    #[serde(rename = "state.accept")]
    AcceptState,
    /// [`create_user`](crate::management::Management::create_user)
    #[serde(rename = "user.create")]
    CreateUser { org: String, email: String, permissions: Vec<Permission> },
    /// [`create_service`](crate::management::Management::create_service)
    #[serde(rename = "user.create_service")]
    CreateService { org: String, name: String, responsible: String, permissions: Vec<Permission> },
    /// [`list_users`](crate::management::Management::list_users)
    #[serde(rename = "user.list")]
    ListUsers {
        org: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
    /// [`show_user`](crate::management::Management::show_user)
    #[serde(rename = "user.show")]
    ShowUser { org: String, user: String },
    /// [`permit_user`](crate::management::Management::permit_user)
    #[serde(rename = "user.permit")]
    PermitUser { org: String, user: String, permissions: Vec<Permission> },
    /// [`change_permissions`](crate::management::Management::change_permissions)
    #[serde(rename = "user.change_permissions")]
    ChangePermissions {
        org: String,
        user: String,
        add_permissions: Vec<Permission>,
        remove_permissions: Vec<Permission>,
    },
    /// [`remove_user`](crate::management::Management::remove_user)
    #[serde(rename = "user.remove")]
    RemoveUser { org: String, user: String },
    /// [`suspend_user`](crate::management::Management::suspend_user)
    #[serde(rename = "user.suspend")]
    SuspendUser { org: String, user: String },
    /// [`resume_user`](crate::management::Management::resume_user)
    #[serde(rename = "user.resume")]
    ResumeUser { org: String, user: String },
    /// [`reassign_user`](crate::management::Management::reassign_user)
    #[serde(rename = "user.reassign")]
    ReassignUser { org: String, user: String, responsible: String },
    /// [`create_key`](crate::management::Management::create_key)
    #[serde(rename = "key.create")]
    CreateKey {
        org: String,
        user: String,
        name: String,
        #[serde(default, skip_serializing_if = "is_empty")]
        policy: Box<PolicyUpdate>,
        /// This and the next of a key that was made offline; neither: its secret is generated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<KeyId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
    /// [`set_key`](crate::management::Management::set_key)
    #[serde(rename = "key.set")]
    SetKey { key: KeyId, policy: Box<PolicyUpdate> },
    /// [`disable_key`](crate::management::Management::disable_key)
    #[serde(rename = "key.disable")]
    DisableKey {
        key: KeyId,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        leaked: bool,
    },
    /// [`enable_key`](crate::management::Management::enable_key)
    #[serde(rename = "key.enable")]
    EnableKey { key: KeyId },
    /// [`list_keys`](crate::management::Management::list_keys)
    #[serde(rename = "key.list")]
    ListKeys {
        org: String,
        #[serde(default, skip_serializing_if = "is_default")]
        query: Box<KeyQuery>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
    /// [`show_key`](crate::management::Management::show_key)
    #[serde(rename = "key.show")]
    ShowKey { key: KeyId },
    /// [`find_keys_by_digest`](crate::management::Management::find_keys_by_digest)
    #[serde(rename = "key.find")]
    FindKeys { sha256: Vec<String> },
    /// [`revoke_key`](crate::management::Management::revoke_key)
    #[serde(rename = "key.revoke")]
    RevokeKey { key: KeyId },
    /// [`rotate_key`](crate::management::Management::rotate_key)
    #[serde(rename = "key.rotate")]
    RotateKey {
        key: KeyId,
        #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
        overlap: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
    /// [`limit_key`](crate::management::Management::limit_key)
    #[serde(rename = "key.limits")]
    LimitKey { key: KeyId, limits: Option<LimitUpdate> },
    /// [`import_key`](crate::management::Management::import_key)
    #[serde(rename = "key.import")]
    ImportKey {
        org: String,
        user: String,
        sha256: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<KeyId>,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<LimitUpdate>,
        #[serde(default, skip_serializing_if = "is_empty")]
        policy: Box<PolicyUpdate>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        disabled: bool,
    },
    /// [`explain_key`](crate::management::Management::explain_key)
    #[serde(rename = "explain")]
    Explain { key: KeyId },
    /// [`list_uses`](crate::management::Management::list_uses)
    #[serde(rename = "key.requests")]
    ListUses {
        key: KeyId,
        #[serde(default)]
        filter: UseFilter,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
    /// [`key_activity`](crate::management::Management::key_activity)
    #[serde(rename = "org.activity")]
    Activity { org: String, keys: Vec<KeyId> },
    /// [`create_link`](crate::management::Management::create_link)
    #[serde(rename = "session.link")]
    LinkSession { org: String, user: String },
    /// [`list_sessions`](crate::management::Management::list_sessions)
    #[serde(rename = "session.list")]
    ListSessions {
        #[serde(default)]
        org: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
    /// [`end_session`](crate::management::Management::end_session)
    #[serde(rename = "session.end")]
    EndSession { session: SessionId },
    /// [`end_sessions`](crate::management::Management::end_sessions)
    #[serde(rename = "session.end_all")]
    EndSessions { org: String, user: String },
    /// [`create_token`](crate::management::Management::create_token)
    #[serde(rename = "token.create")]
    CreateToken { settings: Box<TokenSettings> },
    /// [`list_tokens`](crate::management::Management::list_tokens)
    #[serde(rename = "token.list")]
    ListTokens {
        #[serde(default)]
        org: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
    /// [`revoke_token`](crate::management::Management::revoke_token)
    #[serde(rename = "token.revoke")]
    RevokeToken {
        token: TokenId,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_descendants: bool,
    },
    /// [`create_federation_rule`](crate::management::Management::create_federation_rule)
    #[serde(rename = "federation.create")]
    CreateRule { org: String, rule: Box<NewFederationRule> },
    /// [`list_federation_rules`](crate::management::Management::list_federation_rules)
    #[serde(rename = "federation.list")]
    ListRules {
        org: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        #[serde(default)]
        limit: PageLimit,
    },
    /// [`show_federation_rule`](crate::management::Management::show_federation_rule)
    #[serde(rename = "federation.show")]
    ShowRule { org: String, rule: String },
    /// [`remove_federation_rule`](crate::management::Management::remove_federation_rule)
    #[serde(rename = "federation.remove")]
    RemoveRule { org: String, rule: String },
}

impl Operation {
    /// The operation that lists all organizations.
    pub fn list_orgs() -> Self {
        Self::ListOrgs { cursor: None, limit: PageLimit::MAX }
    }

    /// The operation that lists the users of an organization.
    pub fn list_users(org: String) -> Self {
        Self::ListUsers { org, cursor: None, limit: PageLimit::MAX }
    }

    /// The operation that lists the keys of an organization.
    pub fn list_keys(org: String) -> Self {
        Self::query_keys(org, KeyQuery::default())
    }

    /// The operation that lists some keys of an organization.
    pub fn query_keys(org: String, query: KeyQuery) -> Self {
        Self::ListKeys { org, query: Box::new(query), cursor: None, limit: PageLimit::MAX }
    }

    /// The operation that lists web sessions, of one organization or all.
    pub fn list_sessions(org: Option<String>) -> Self {
        Self::ListSessions { org, cursor: None, limit: PageLimit::MAX }
    }

    /// The operation that lists management tokens, of one organization or all.
    pub fn list_tokens(org: Option<String>) -> Self {
        Self::ListTokens { org, cursor: None, limit: PageLimit::MAX }
    }

    /// The operation that lists the federation rules of an organization.
    pub fn list_rules(org: String) -> Self {
        Self::ListRules { org, cursor: None, limit: PageLimit::MAX }
    }

    /// The cursor of an operation that lists.
    pub fn cursor_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::ListOrgs { cursor, .. }
            | Self::ListUsers { cursor, .. }
            | Self::ListKeys { cursor, .. }
            | Self::ListUses { cursor, .. }
            | Self::ListTokens { cursor, .. }
            | Self::ListRules { cursor, .. }
            | Self::ListSessions { cursor, .. } => Some(cursor),
            _ => None,
        }
    }
}

fn is_empty(policy: &PolicyUpdate) -> bool {
    policy.is_empty()
}

fn is_default(query: &KeyQuery) -> bool {
    *query == KeyQuery::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_travel_as_json() {
        let key: KeyId = "abcDEF123".parse().unwrap();
        let limits = LimitUpdate { requests: Some(10), per: Some(Duration::from_secs(60)), burst: None };
        let cases = [
            (
                Operation::ListOrgs { cursor: None, limit: PageLimit::default() },
                r#"{"operation":"org.list","limit":20}"#,
            ),
            (
                Operation::ListKeys {
                    org: "acme".into(),
                    query: Box::default(),
                    cursor: Some("c".into()),
                    limit: PageLimit::of(5),
                },
                r#"{"operation":"key.list","org":"acme","cursor":"c","limit":5}"#,
            ),
            (
                Operation::RotateKey { key, overlap: Some(Duration::from_secs(3600)), sha256: None },
                r#"{"operation":"key.rotate","key":"abcDEF123","overlap":"1h"}"#,
            ),
            (
                Operation::LimitKey { key, limits: Some(limits) },
                r#"{"operation":"key.limits","key":"abcDEF123","limits":{"requests":10,"per":"1m","burst":null}}"#,
            ),
            (
                Operation::ListUses {
                    key,
                    filter: UseFilter { outcome: None, refused: Some(true) },
                    cursor: None,
                    limit: PageLimit::of(5),
                },
                r#"{"operation":"key.requests","key":"abcDEF123","filter":{"outcome":null,"refused":true},"limit":5}"#,
            ),
        ];
        for (operation, json) in cases {
            assert_eq!(serde_json::to_string(&operation).unwrap(), json);
            assert_eq!(serde_json::from_str::<Operation>(json).unwrap(), operation);
        }
        let listed: Operation = serde_json::from_str(r#"{"operation":"org.list"}"#).unwrap();
        assert_eq!(listed, Operation::ListOrgs { cursor: None, limit: PageLimit::default() });
        for limit in ["0", "-1", "1.5", r#""20""#, "null"] {
            let json = format!(r#"{{"operation":"org.list","limit":{limit}}}"#);
            assert!(serde_json::from_str::<Operation>(&json).is_err(), "{limit}");
        }
        assert!(serde_json::from_str::<Operation>(r#"{"operation":"org.list","x":1}"#).is_err());
        assert!(serde_json::from_str::<Operation>(r#"{"operation":"org.drop"}"#).is_err());
    }
}
