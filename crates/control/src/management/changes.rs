//! Changes of an organization, as its users see them.
//!
//! - Administrators see all changes of their organization; other users those of their own record, keys and sessions.
//! - The operator has no name here: an organization is not told which person runs the gateway. A program is its token.
//! - The address from which a change was made is for administrators, and for the user who made it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::UnixUser;
use super::audited_change::{Target, begin_change, use_end};
use super::authorization::{Access, authorize};
use super::key_actor::{ChangeUser, emails_of};
use super::operands::{find_org, find_user};
use super::uses::page_of_records;
use super::{Actor, Management, ManagementError, UsePage};
use domain::clock::{self, Micros};
use domain::identity::UserId;
use domain::key::KeyId;
use domain::management_token::{TokenId, TokenScope};
use domain::page::{Page, PageLimit, PageQuery};
use journal::audit::{Filter, Outcome, Record, RecordKind, ViewStatus};

/// Change by management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeEntry {
    /// Id of its record.
    pub id: Uuid,
    /// Time at which it was asked for.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// The operation, such as `key.revoke`.
    pub action: String,
    /// The user who made it; `None`: the operator, or a program with a token.
    pub by: Option<ChangeUser>,
    /// The management token with which a program made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    /// The user who is acted on; `None` when the organization is changed.
    pub subject: Option<ChangeUser>,
    /// The key, when a key is changed.
    pub key_id: Option<KeyId>,
    /// Address of the client that asked for it.
    pub ip: Option<IpAddr>,
    /// Its user agent.
    pub user_agent: Option<String>,
    /// Outcome of the change.
    pub outcome: Outcome,
    /// The gateway that recorded it.
    pub gateway: String,
    /// True when the gateway itself made it.
    #[serde(skip)]
    pub is_of_gateway: bool,
}

/// Page of the changes of an organization, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePage {
    /// The changes. There may be fewer than the limit, or none, although more follow.
    #[serde(flatten)]
    pub page: Page<ChangeEntry>,
    /// The name of this gateway.
    pub gateway: String,
    /// Whose records these are; `None`: this gateway's, and no others are configured to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewStatus>,
}

/// Changes that are saved as one file at most.
const MAX_EXPORTED: usize = 10_000;

/// Filter of changes: those that satisfy every condition that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeFilter {
    /// Id or email address of the user who made them; empty for anybody.
    pub by: String,
    /// The management token of the program that made them.
    pub token: Option<TokenId>,
    /// The key that is changed.
    pub key: Option<KeyId>,
    /// The operation, one of [`super::ACTIONS`].
    pub action: Option<&'static str>,
    /// The outcome.
    pub outcome: Option<Outcome>,
    /// Changes from this time on.
    #[serde(with = "clock::rfc3339::option")]
    pub since: Option<Micros>,
    /// Changes before this time.
    #[serde(with = "clock::rfc3339::option")]
    pub until: Option<Micros>,
}

/// Lists changes of an organization, newest first, a page at a time: all for its administrators, and for other
/// users those that are about themselves.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`], [`ManagementError::JournalUnreadable`].
pub async fn list_changes(
    management: &Management,
    actor: &Actor,
    org: &str,
    filter: &ChangeFilter,
    page: &PageQuery,
    now: Micros,
) -> Result<ChangePage, ManagementError> {
    authorize(management, actor, Access::Org(org, TokenScope::AuditRead), now).await?;
    let org = find_org(management, org).await?.id;
    let subject = actor.visible_owner();
    let query = ("changes", org, subject, filter);
    let by = if filter.by.is_empty() { None } else { Some(find_user(management, org, &filter.by).await?.id) };
    let ChangeFilter { by: _, token, key, action, outcome, since, until } = *filter;
    let kind = Some(RecordKind::Change);
    let action = action.map(|operation| operation.parse().expect("names of operations are short"));
    let filter = Filter {
        org: Some(org),
        subject,
        user: by,
        token,
        key,
        kind,
        action,
        outcome,
        since,
        until,
        ..Filter::default()
    };
    let UsePage { page: records, gateway, view, .. } = page_of_records(management, actor, &query, filter, page).await?;
    let users = records.items.iter().flat_map(|record| [record.user_id, record.subject]).flatten();
    let users = emails_of(management, org, users.collect()).await?;
    let items = records.items.into_iter().map(|record| ChangeEntry::new(record, subject, &users)).collect();
    Ok(ChangePage { page: Page { items, next: records.next }, gateway, view })
}

/// All changes that [`list_changes`] lists, for a file of this form. It is a change of its own in the audit.
///
/// # Errors
/// Those of [`list_changes`]; [`ManagementError::InvalidQuery`] for more than 10,000.
pub async fn export_changes(
    management: &Management,
    actor: &Actor,
    org: &str,
    filter: &ChangeFilter,
    form: &str,
    now: Micros,
) -> Result<Vec<ChangeEntry>, ManagementError> {
    let by = authorize(management, actor, Access::Org(org, TokenScope::AuditRead), now).await?;
    let target = Target { org: Some(find_org(management, org).await?.id), user: actor.visible_owner(), key: None };
    let mut page = PageQuery::first(PageLimit::MAX);
    let mut changes = Vec::new();
    loop {
        let ChangePage { page: Page { items, next }, .. } =
            list_changes(management, actor, org, filter, &page, now).await?;
        changes.extend(items);
        if changes.len() > MAX_EXPORTED {
            let error = format!("more than {MAX_EXPORTED} changes match; narrow `since` and `until`");
            return Err(ManagementError::InvalidQuery(error));
        }
        let Some(next) = next else { break };
        page.cursor = Some(next);
        // Requests of the same worker are served between two pages.
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    let path = format!("audit.export/{form}/{}", changes.len());
    let entry = begin_change(management, "audit.export", &path, target, false, by).await?;
    entry.close_change(use_end(&Ok(()), started)).await;
    Ok(changes)
}

impl ChangeEntry {
    /// The user, the program or the gateway that made it, in one word or two; none: the operator.
    pub fn maker(&self) -> Option<String> {
        let program = || self.token_id.map(|token| format!("Token {token}"));
        let gateway = || self.is_of_gateway.then(|| "Gateway".to_owned());
        self.by.as_ref().map(ChangeUser::label).or_else(program).or_else(gateway)
    }

    /// `viewer` is the only user whose changes are shown; `None` of administrators.
    fn new(record: Record, viewer: Option<UserId>, users: &BTreeMap<UserId, String>) -> Self {
        let named = |id: UserId| ChangeUser { id, email: users.get(&id).cloned() };
        let shows_client = viewer.is_none() || viewer == record.user_id;
        Self {
            id: record.id,
            time: record.time,
            is_of_gateway: record.actor.as_deref() == Some(UnixUser::GATEWAY.as_str()),
            action: record.action,
            by: record.user_id.map(named),
            token_id: record.token_id,
            subject: record.subject.map(named),
            key_id: record.key_id,
            ip: record.ip.filter(|_| shows_client),
            user_agent: record.user_agent.filter(|_| shows_client),
            outcome: record.outcome,
            gateway: record.gateway,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ACTIONS;
    use super::*;
    use crate::api::{Mount, document};

    fn record(by: &str) -> Record {
        let json = format!(
            r#"{{"id":"01a1feff-db5a-70fa-9bbd-47f5e31b72be","time":"2026-01-01T00:00:00Z","key_id":null,"org_id":null,
            "ip":"203.0.113.7","user_agent":null,"action":"key.revoke","method":"ADMIN","path":"key.revoke",
            "status":200,"outcome":"completed","duration_us":1,"request_bytes":0,"response_bytes":0,
            "gateway":"gw",{by}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn document_of_the_api_names_the_actions_by_which_changes_are_found() {
        let document: serde_json::Value = serde_json::from_str(document(Mount::Socket)).unwrap();
        let names = ACTIONS.map(|(name, _)| name);
        for path in ["/orgs/{org}/changes", "/orgs/{org}/changes.csv", "/orgs/{org}/changes.ndjson"] {
            let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
            let action = parameters.iter().find(|parameter| parameter["name"] == "action").unwrap();
            assert_eq!(action["schema"]["enum"], serde_json::json!(&names[..]), "{path}");
        }
    }

    #[test]
    fn change_names_its_maker_by_user_or_token_and_never_the_operator() {
        let user = UserId::generate();
        let of_user = format!(r#""user_id":"{user}","auth_method":"session","actor":"{user}""#);
        let by_token = r#""user_id":null,"auth_method":"token","actor":"token:AbcDEF1239","token_id":"AbcDEF1239""#;
        let by_operator = r#""user_id":null,"auth_method":"admin-socket","actor":"unix:root(0)""#;
        let entry = |by| ChangeEntry::new(record(by), None, &BTreeMap::new());
        assert_eq!(entry(&of_user).maker(), Some(user.to_string()));
        assert_eq!(entry(by_token).maker().as_deref(), Some("Token AbcDEF1239"));
        assert_eq!(entry(by_operator).maker(), None);
        let json = serde_json::to_value(entry(by_token)).unwrap();
        assert_eq!((&json["by"], &json["token_id"]), (&serde_json::Value::Null, &"AbcDEF1239".into()));
        assert!(serde_json::to_value(entry(by_operator)).unwrap().get("token_id").is_none());
        // A member is not told from where others have changed something.
        let viewed = ChangeEntry::new(record(by_token), Some(user), &BTreeMap::new());
        assert_eq!(viewed.ip, None);
    }
}
