//! Conditions of a call: an entity tag (`If-Match`) and an idempotency key, with which the change of the call
//! is made, and the replay of a call that was made before.

use serde_json::{Value, json};

use super::actor::{AuditActor, Conditions, IdempotentCall};
use super::authorization::Access;
use super::{Actor, Management, ManagementError, User};
use domain::clock::Micros;
use domain::management_token::TokenScope;
use state::{Change, ETag, IdempotencyPlace, IdempotencyRecord, IdempotentRequest, RuleChange};

/// Time for which a call with an idempotency key is remembered, in microseconds: a day.
const REMEMBERED_US: u64 = 24 * 3600 * 1_000_000;

/// The result of a call that was made before, as the record that it created or changed is now. Secrets are not stored,
/// so that it has none.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// Status of the response.
    pub status: u16,
    /// Path of the record below the API's.
    pub path: String,
    /// The record as JSON; none of a kind that a gateway of another version has recorded.
    pub body: Option<Value>,
    /// Its entity tag, if it has one.
    pub etag: Option<ETag>,
}

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

impl Management {
    /// The record of a call that was made before: of one that creates an organization, or is about one.
    ///
    /// # Errors
    /// [`ManagementError::StateUnavailable`].
    pub(crate) async fn idempotency_record(
        &self,
        place: IdempotencyPlace,
        call: &IdempotentCall,
        now: Micros,
    ) -> Result<Option<IdempotencyRecord>, ManagementError> {
        Ok(self.state.idempotency_record(place, &call.id, now).await?)
    }

    /// The place of the records of calls about an organization, by its id or name; none when there is no such
    /// organization.
    ///
    /// # Errors
    /// [`ManagementError::StateUnavailable`].
    pub(crate) async fn idempotency_place(&self, org: &str) -> Result<Option<IdempotencyPlace>, ManagementError> {
        Ok(self.look_up_org(org).await?.map(|org| IdempotencyPlace::Org(org.tag)))
    }

    /// The result of a call that was made before, by the same caller.
    ///
    /// # Errors
    /// The record is gone: as of the operation that shows it. Those of [`ManagementError`] that concern the state.
    pub(crate) async fn replay(
        &self,
        actor: &Actor,
        record: &IdempotencyRecord,
        now: Micros,
    ) -> Result<Replay, ManagementError> {
        let path: Vec<&str> = record.resource.split('/').collect();
        let found = match path[..] {
            ["orgs", org] => {
                let org = self.show(self.find_org(org).await?);
                Some((json!(org), org.etag))
            }
            ["orgs", org, "users", user] => self.show_member(org, user).await?,
            ["orgs", org, "federation-rules", rule] => {
                let org = self.find_org(org).await?;
                let rule = self.find_rule(org.id, rule).await?;
                Some((json!(self.show_rule(rule, &org.name).await?), None))
            }
            ["keys", key] => match key.parse() {
                Ok(key) => {
                    self.authorize_person(actor, Access::Key(key, TokenScope::KeysRead), now).await?;
                    let key = self.show_owned(&self.find_key(actor, key).await?, now);
                    Some((json!(key), key.etag))
                }
                Err(_) => None,
            },
            ["tokens", token] => match token.parse() {
                Ok(id) => {
                    self.authorize_person(actor, Access::Token(id), now).await?;
                    let token = self.state.management_token(id).await?.ok_or(ManagementError::NoToken(id))?;
                    Some((json!(self.show_found(actor, token, now).await?), None))
                }
                Err(_) => None,
            },
            _ => None,
        };
        let (body, etag) = found.unzip();
        Ok(Replay { status: record.status, path: record.resource.clone(), body, etag: etag.flatten() })
    }

    /// Authorizes a person, who may have lost the right since. The scopes of a token do not change, and it may have
    /// made what it may not read.
    async fn authorize_person(&self, actor: &Actor, access: Access<'_>, now: Micros) -> Result<(), ManagementError> {
        if actor.signed_in().is_some() { self.authorize(actor, access, now).await.map(drop) } else { Ok(()) }
    }

    /// A user, who may be removed, with the entity tag.
    async fn show_member(&self, org: &str, user: &str) -> Result<Option<(Value, Option<ETag>)>, ManagementError> {
        let (Ok(org), Ok(user)) = (org.parse(), user.parse()) else { return Ok(None) };
        let Some((_, user)) = self.state.member(org, user).await? else { return Ok(None) };
        let responsible = self.find_responsible(&user).await?;
        let user = User::new(user, responsible);
        Ok(Some((json!(user), user.etag)))
    }
}
