//! Conditions of a call: an entity tag (`If-Match`) and an idempotency key, with which the change of the call is made.

use super::actor::{AuditActor, Conditions, IdempotentCall};
use super::{Actor, ManagementError};
use domain::clock::Micros;
use state::{Change, ETag, IdempotentRequest, RuleChange};

/// Time for which a call with an idempotency key is remembered, in microseconds: a day.
const REMEMBERED_US: u64 = 24 * 3600 * 1_000_000;

/// Adds the conditions of its call to a change, unless it is one of sessions, which follows on the one that they are
/// for.
pub(super) fn apply(change: Change, by: AuditActor<'_>) -> Change {
    let Some((status, resource)) = resource(change.as_made()) else { return change };
    let Conditions { if_match, call } = by.actor.conditions();
    let change = if_match.map_or_else(|| change.clone(), |etag| change.clone().if_match(etag));
    let Some(IdempotentCall { id, body }) = call else { return change };
    change.once(IdempotentRequest {
        id: *id,
        caller: by.actor.caller(),
        body: *body,
        status,
        resource,
        now: by.now,
        expires: Micros(by.now.0 + REMEMBERED_US),
        max_live: IdempotentRequest::MAX_LIVE,
    })
}

/// Makes a change depend on the record as it was read with this tag, besides the conditions of its call.
///
/// # Errors
/// [`ManagementError::Stale`] when the call depends on another one.
pub(super) fn require_read(change: Change, read: ETag, actor: &Actor) -> Result<Change, ManagementError> {
    if actor.conditions().if_match.is_some_and(|tag| tag != read) {
        return Err(ManagementError::Stale);
    }
    Ok(change.if_match(read))
}

/// The status of the response to a change that was made, and the path of the record below the API's; none of changes of
/// sessions.
fn resource(change: &Change) -> Option<(u16, String)> {
    Some(match change {
        Change::CreateOrg(org) => (201, format!("orgs/{}", org.id)),
        Change::UpdateOrg { org, .. } => (200, format!("orgs/{org}")),
        Change::CreateUser(user) => (201, format!("orgs/{}/users/{}", user.org, user.id)),
        Change::UpdateUser { org, user, .. } => (200, format!("orgs/{org}/users/{user}")),
        Change::RemoveUser { org, user, .. } => (204, format!("orgs/{org}/users/{user}")),
        Change::CreateKey { key, .. } => (201, format!("keys/{}", key.id)),
        Change::UpdateKey { key, .. } | Change::RotateKey { key, .. } | Change::RevokeKey { key, .. } => {
            (200, format!("keys/{key}"))
        }
        Change::FederationRule(RuleChange::Create(rule)) => {
            (201, format!("orgs/{}/federation-rules/{}", rule.org, rule.name))
        }
        Change::FederationRule(RuleChange::Remove { org, name }) => {
            (200, format!("orgs/{org}/federation-rules/{name}"))
        }
        Change::CreateToken(token) => (201, format!("tokens/{}", token.id)),
        Change::RevokeToken { token, .. } => (200, format!("tokens/{token}")),
        _ => return None,
    })
}
