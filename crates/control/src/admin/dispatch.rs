//! Dispatch: from an operation of the wire to the function of [`Management`], and from its result to the reply.

use super::operation::Operation;
use super::reply::Reply;
use crate::management::{Actor, KeyImport, KeyQuery, Management, ManagementError, Rotation};
use domain::clock::Micros;
use domain::page::{Page, PageQuery};

/// The actor of the admin socket and of the command line: a process that may open the socket, or
/// the files of the state.
const ACTOR: &Actor = &Actor::Operator;

/// Performs one operation for the operator. It is done completely or not at all; run it to its end,
/// as `management` asks.
///
/// # Errors
/// Those of the operation.
#[rustfmt::skip]
pub async fn perform(to: &Management, operation: Operation, now: Micros) -> Result<Reply, ManagementError> {
    Ok(match operation {
        Operation::CreateOrg { name } => to.create_org(ACTOR, &name, now).await?.into(),
        Operation::ListOrgs { cursor, limit } => to.list_orgs(ACTOR, &PageQuery { cursor, limit }, now).await?.into(),
        Operation::ShowOrg { org } => to.show_org(ACTOR, &org, now).await?.into(),
        Operation::SuspendOrg { org } => to.suspend_org(ACTOR, &org, now).await?.into(),
        Operation::ResumeOrg { org } => to.resume_org(ACTOR, &org, now).await?.into(),
        Operation::LimitOrg { org, concurrent } => to.limit_org(ACTOR, &org, concurrent, now).await?.into(),
        Operation::CreateUser { org, email, permissions } =>
            to.create_user(ACTOR, &org, &email, permissions, now).await?.into(),
        Operation::ListUsers { org, cursor, limit } =>
            to.list_users(ACTOR, &org, &PageQuery { cursor, limit }, now).await?.into(),
        Operation::PermitUser { org, user, permissions } =>
            to.permit_user(ACTOR, &org, &user, permissions, now).await?.into(),
        Operation::RemoveUser { org, user } => to.remove_user(ACTOR, &org, &user, now).await?.into(),
        Operation::CreateKey { org, user, name } => to.create_key(ACTOR, &org, &user, &name, now).await?.into(),
        Operation::ListKeys { org, cursor, limit } =>
            to.list_keys(ACTOR, &org, &KeyQuery::default(), &PageQuery { cursor, limit }, now).await?.into(),
        Operation::ShowKey { key } => to.show_key(ACTOR, key, now).await?.into(),
        Operation::FindKeys { sha256 } => {
            Reply::FoundKeys { found: to.find_keys_by_digest(ACTOR, &sha256, now).await? }
        }
        Operation::RevokeKey { key } => to.revoke_key(ACTOR, key, now).await?.into(),
        Operation::RotateKey { key, overlap } => {
            to.rotate_key(ACTOR, key, Rotation::new(overlap), now).await?.into()
        }
        Operation::LimitKey { key, limits } => to.limit_key(ACTOR, key, limits, now).await?.into(),
        Operation::ImportKey { org, user, sha256, name, limits } => {
            let import = KeyImport { org: &org, user: &user, sha256: &sha256, name: &name, limits };
            to.import_key(ACTOR, import, now).await?.into()
        }
        Operation::Explain { key } => to.explain_key(ACTOR, key, now).await?.into(),
        Operation::ListUses { key, uses, cursor, limit } =>
            to.list_uses(ACTOR, key, uses, &PageQuery { cursor, limit }, now).await?.into(),
        Operation::Activity { org, keys } => to.key_activity(ACTOR, &org, keys, now).await?.into(),
        Operation::LinkSession { org, user } => to.create_link(ACTOR, &org, &user, now).await?.into(),
        Operation::ListSessions { org, cursor, limit } =>
            to.list_sessions(ACTOR, org.as_deref(), false, &PageQuery { cursor, limit }, now).await?.into(),
        Operation::EndSession { session } => to.end_session(ACTOR, session, now).await?.into(),
        Operation::EndSessions { org, user } =>
            Page { items: to.end_sessions(ACTOR, &org, &user, now).await?, next: None }.into(),
    })
}
