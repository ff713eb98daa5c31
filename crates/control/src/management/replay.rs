//! Replay of a call with an idempotency key that was made before.

use serde_json::{Value, json};

use super::actor::IdempotentCall;
use super::authorization::{Access, authorize};
use super::federation_rules::{find_rule, show_rule};
use super::operands::{find_org, look_up_org};
use super::orgs::org_from_record;
use super::owned_key::{find_key, show_owned};
use super::tokens::show_found;
use super::user::find_responsible;
use super::{Actor, Management, ManagementError, User};
use domain::clock::Micros;
use domain::management_token::TokenScope;
use state::{ETag, IdempotencyPlace, IdempotencyRecord};

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

/// The record of a call that was made before: of one that creates an organization, or is about one.
///
/// # Errors
/// [`ManagementError::StateUnavailable`].
pub(crate) async fn idempotency_record(
    management: &Management,
    place: IdempotencyPlace,
    call: &IdempotentCall,
    now: Micros,
) -> Result<Option<IdempotencyRecord>, ManagementError> {
    Ok(management.state.idempotency_record(place, &call.id, now).await?)
}

/// The place of the records of calls about an organization, by its id or name; none when there is no such
/// organization.
///
/// # Errors
/// [`ManagementError::StateUnavailable`].
pub(crate) async fn idempotency_place(
    management: &Management,
    org: &str,
) -> Result<Option<IdempotencyPlace>, ManagementError> {
    Ok(look_up_org(management, org).await?.map(|org| IdempotencyPlace::Org(org.tag)))
}

/// The result of a call that was made before, by the same caller.
///
/// # Errors
/// The record is gone: as of the operation that shows it. Those of [`ManagementError`] that concern the state.
pub(crate) async fn replay(
    management: &Management,
    actor: &Actor,
    record: &IdempotencyRecord,
    now: Micros,
) -> Result<Replay, ManagementError> {
    let path: Vec<&str> = record.resource.split('/').collect();
    let found = match path[..] {
        ["orgs", org] => {
            let org = org_from_record(management, find_org(management, org).await?);
            Some((json!(org), org.etag))
        }
        ["orgs", org, "users", user] => show_member(management, org, user).await?,
        ["orgs", org, "federation-rules", rule] => {
            let org = find_org(management, org).await?;
            let rule = find_rule(management, org.id, rule).await?;
            Some((json!(show_rule(management, rule, &org.name).await?), None))
        }
        ["keys", key] => match key.parse() {
            Ok(key) => {
                authorize_person(management, actor, Access::Key(key, TokenScope::KeysRead), now).await?;
                let key = show_owned(management, &find_key(management, actor, key).await?, now);
                Some((json!(key), key.etag))
            }
            Err(_) => None,
        },
        ["tokens", token] => match token.parse() {
            Ok(id) => {
                authorize_person(management, actor, Access::Token(id), now).await?;
                let token = management.state.management_token(id).await?.ok_or(ManagementError::NoToken(id))?;
                Some((json!(show_found(management, actor, token, now).await?), None))
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
async fn authorize_person(
    management: &Management,
    actor: &Actor,
    access: Access<'_>,
    now: Micros,
) -> Result<(), ManagementError> {
    if actor.signed_in().is_some() { authorize(management, actor, access, now).await.map(drop) } else { Ok(()) }
}

/// A user, who may be removed, with the entity tag.
async fn show_member(
    management: &Management,
    org: &str,
    user: &str,
) -> Result<Option<(Value, Option<ETag>)>, ManagementError> {
    let (Ok(org), Ok(user)) = (org.parse(), user.parse()) else { return Ok(None) };
    let Some((_, user)) = management.state.member(org, user).await? else { return Ok(None) };
    let responsible = find_responsible(management, &user).await?;
    let user = User::new(user, responsible);
    Ok(Some((json!(user), user.etag)))
}
