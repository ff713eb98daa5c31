//! Dispatch: from an operation of the wire to the function of [`Management`], and from its result to the reply.

use super::operation::Operation;
use super::reply::Reply;
use crate::management::{Actor, Key, KeyImport, Management, ManagementError, NewKeyRequest, Rotation, SecretSource};
use domain::clock::Micros;
use domain::page::{Page, PageQuery};

/// Performs one operation for an actor. It is done completely or not at all; run it to its end,
/// as `management` asks.
///
/// # Errors
/// Those of the operation.
#[rustfmt::skip]
pub async fn perform(to: &Management, actor: &Actor, operation: Operation, now: Micros)
    -> Result<Reply, ManagementError> {
    Ok(match operation {
        Operation::CreateOrg { name } => Reply::Org { org: to.create_org(actor, &name, now).await? },
        Operation::ListOrgs { cursor, limit } =>
            Reply::Orgs(to.list_orgs(actor, &PageQuery { cursor, limit }, now).await?),
        Operation::ShowOrg { org } => Reply::Org { org: to.show_org(actor, &org, now).await? },
        Operation::SuspendOrg { org } => Reply::Org { org: to.suspend_org(actor, &org, now).await? },
        Operation::ResumeOrg { org } => Reply::Org { org: to.resume_org(actor, &org, now).await? },
        Operation::LimitOrg { org, concurrent } =>
            Reply::Org { org: to.limit_org(actor, &org, concurrent, now).await? },
        Operation::SetOrgPolicy { org, policy } =>
            Reply::Org { org: to.set_org_policy(actor, &org, policy, now).await? },
        Operation::AcceptState => Reply::AcceptedState { state: to.accept_state(actor, now).await? },
        Operation::CreateUser { org, email, permissions } =>
            Reply::User { user: to.create_user(actor, &org, &email, permissions, now).await? },
        Operation::CreateService { org, name, responsible, permissions } =>
            Reply::User { user: to.create_service(actor, &org, &name, &responsible, permissions, now).await? },
        Operation::ListUsers { org, cursor, limit } =>
            Reply::Users(to.list_users(actor, &org, &PageQuery { cursor, limit }, now).await?),
        Operation::ShowUser { org, user } => Reply::User { user: to.show_user(actor, &org, &user, now).await? },
        Operation::ChangePermissions { org, user, add_permissions, remove_permissions } => Reply::User {
            user: to.change_permissions(actor, &org, &user, add_permissions, remove_permissions, now).await?,
        },
        Operation::PermitUser { org, user, permissions } =>
            Reply::User { user: to.permit_user(actor, &org, &user, permissions, now).await? },
        Operation::RemoveUser { org, user } => Reply::User { user: to.remove_user(actor, &org, &user, now).await? },
        Operation::SuspendUser { org, user } => Reply::User { user: to.suspend_user(actor, &org, &user, now).await? },
        Operation::ResumeUser { org, user } => Reply::User { user: to.resume_user(actor, &org, &user, now).await? },
        Operation::ReassignUser { org, user, responsible } =>
            Reply::User { user: to.reassign_user(actor, &org, &user, &responsible, now).await? },
        Operation::CreateKey { org, user, name, policy, id, sha256 } => {
            let request = NewKeyRequest { user: &user, name: &name, policy: *policy };
            let source = SecretSource::from_operands(id, sha256.as_deref())?;
            Reply::NewKey(to.create_key(actor, &org, request, source, now).await?)
        }
        Operation::SetKey { key, policy } => Reply::Key { key: to.set_key(actor, key, *policy, now).await? },
        Operation::DisableKey { key, leaked } => Reply::Key { key: to.disable_key(actor, key, leaked, now).await? },
        Operation::EnableKey { key } => Reply::Key { key: to.enable_key(actor, key, now).await? },
        Operation::ListKeys { org, query, cursor, limit } =>
            Reply::Keys(to.list_keys(actor, &org, &query, &PageQuery { cursor, limit }, now).await?),
        Operation::ShowKey { key } => Reply::Key { key: to.show_key(actor, key, now).await? },
        Operation::FindKeys { sha256 } =>
            Reply::FoundKeys { found: to.find_keys_by_digest(actor, &sha256, now).await? },
        Operation::RevokeKey { key } => Reply::Key { key: to.revoke_key(actor, key, now).await? },
        Operation::RotateKey { key, overlap, sha256 } => {
            let rotation = Rotation::new(overlap).with_digest(sha256.as_deref())?;
            Reply::NewKey(to.rotate_key(actor, key, rotation, now).await?)
        }
        Operation::LimitKey { key, limits } => Reply::Key { key: to.limit_key(actor, key, limits, now).await? },
        import @ Operation::ImportKey { .. } => Reply::Key { key: import_key(to, actor, import, now).await? },
        Operation::Explain { key } =>
            Reply::Explanation { explanation: Box::new(to.explain_key(actor, key, now).await?) },
        Operation::ListUses { key, filter, cursor, limit } =>
            Reply::Uses(to.list_uses(actor, key, filter, &PageQuery { cursor, limit }, now).await?),
        Operation::Activity { org, keys } => Reply::Activity(to.key_activity(actor, &org, keys, now).await?),
        of_access => perform_of_access(to, actor, of_access, now).await?,
    })
}

/// Performs an operation on web sessions, sign-in links or management tokens.
#[rustfmt::skip]
async fn perform_of_access(
    to: &Management, actor: &Actor, operation: Operation, now: Micros,
) -> Result<Reply, ManagementError> {
    Ok(match operation {
        Operation::LinkSession { org, user } => Reply::Link { link: to.create_link(actor, &org, &user, now).await? },
        Operation::ListSessions { org, cursor, limit } => Reply::Sessions(
            to.list_sessions(actor, org.as_deref(), false, &PageQuery { cursor, limit }, now).await?),
        Operation::EndSession { session } => Reply::Session { session: to.end_session(actor, session, now).await? },
        Operation::CreateToken { settings } => Reply::NewToken(to.create_token(actor, *settings, now).await?),
        Operation::ListTokens { org, cursor, limit } =>
            Reply::Tokens(to.list_tokens(actor, org.as_deref(), &PageQuery { cursor, limit }, now).await?),
        Operation::RevokeToken { token, with_descendants } =>
            Reply::Token { token: to.revoke_token(actor, token, with_descendants, now).await? },
        Operation::EndSessions { org, user } =>
            Reply::Sessions(Page { items: to.end_sessions(actor, &org, &user, now).await?, next: None }),
        operation => perform_on_rules(to, actor, operation, now).await?,
    })
}

/// The same of the operations on federation rules.
async fn perform_on_rules(
    to: &Management,
    actor: &Actor,
    operation: Operation,
    now: Micros,
) -> Result<Reply, ManagementError> {
    let rule = match operation {
        Operation::CreateRule { org, rule } => to.create_federation_rule(actor, &org, *rule, now).await?,
        Operation::ShowRule { org, rule } => to.show_federation_rule(actor, &org, &rule, now).await?,
        Operation::RemoveRule { org, rule } => to.remove_federation_rule(actor, &org, &rule, now).await?,
        Operation::ListRules { org, cursor, limit } => {
            let rules = to.list_federation_rules(actor, &org, &PageQuery { cursor, limit }, now).await?;
            return Ok(Reply::FederationRules(rules));
        }
        other => unreachable!("no operation on rules: {other:?}"),
    };
    Ok(Reply::FederationRule { rule: Box::new(rule) })
}

async fn import_key(to: &Management, actor: &Actor, operation: Operation, now: Micros) -> Result<Key, ManagementError> {
    let Operation::ImportKey { org, user, sha256, id, name, limits, policy, disabled } = operation else {
        unreachable!("the caller has an import")
    };
    let policy = *policy;
    let import = KeyImport { org: &org, user: &user, sha256: &sha256, id, name: &name, limits, policy, disabled };
    to.import_key(actor, import, now).await
}
