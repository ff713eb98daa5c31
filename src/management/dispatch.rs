//! Dispatch of operations as they travel to the functions of [`Management`].

use super::{Actor, Management, ManagementError, Operation, Reply};
use crate::clock::Micros;

/// Performs one operation for an actor.
///
/// # Errors
/// Those of the operation.
#[rustfmt::skip]
pub(super) async fn dispatch(
    to: &Management,
    actor: &Actor,
    operation: Operation,
    now: Micros,
) -> Result<Reply, ManagementError> {
    Ok(match operation {
        Operation::CreateOrg { name } => to.create_org(actor, &name, now).await?.into(),
        Operation::ListOrgs {} => to.list_orgs(actor, now).await?.into(),
        Operation::ShowOrg { org } => to.show_org(actor, &org, now).await?.into(),
        Operation::SuspendOrg { org } => to.suspend_org(actor, &org, now).await?.into(),
        Operation::ResumeOrg { org } => to.resume_org(actor, &org, now).await?.into(),
        Operation::LimitOrg { org, concurrent } => to.limit_org(actor, &org, concurrent, now).await?.into(),
        Operation::CreateUser { org, email, permissions } =>
            to.create_user(actor, &org, &email, permissions, now).await?.into(),
        Operation::ListUsers { org } => to.list_users(actor, &org, now).await?.into(),
        Operation::PermitUser { org, user, permissions } =>
            to.permit_user(actor, &org, &user, permissions, now).await?.into(),
        Operation::RemoveUser { org, user } => to.remove_user(actor, &org, &user, now).await?.into(),
        Operation::CreateKey { org, user, name } => to.create_key(actor, &org, &user, &name, now).await?.into(),
        Operation::ListKeys { org } => to.list_keys(actor, &org, now).await?.into(),
        Operation::ShowKey { key } => to.show_key(actor, key, now).await?.into(),
        Operation::RevokeKey { key } => to.revoke_key(actor, key, now).await?.into(),
        Operation::RotateKey { key, overlap } => to.rotate_key(actor, key, overlap, now).await?.into(),
        Operation::LimitKey { key, limits } => to.limit_key(actor, key, limits, now).await?.into(),
        Operation::ImportKey { org, user, sha256, name } =>
            to.import_key(actor, &org, &user, &sha256, &name, now).await?.into(),
        Operation::Explain { key } => to.explain_key(actor, key, now).await?.into(),
        Operation::ListUses { key, uses } => to.list_uses(actor, key, uses, now).await?.into(),
        Operation::Activity { org, keys } => to.key_activity(actor, &org, keys, now).await?.into(),
        Operation::LinkSession { org, user } => to.create_link(actor, &org, &user, now).await?.into(),
        Operation::ListSessions { org } => to.list_sessions(actor, org.as_deref(), now).await?.into(),
        Operation::EndSession { session } => to.end_session(actor, session, now).await?.into(),
        Operation::EndSessions { org, user } => to.end_sessions(actor, &org, &user, now).await?.into(),
    })
}
