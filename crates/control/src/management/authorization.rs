//! Authorization of operations: the one place that decides what an actor may do.
//!
//! | access | operator | administrator of the chosen organization | other signed-in user | program, by its token |
//! |---|---|---|---|---|
//! | [`Access::Operator`] | yes | no | no | no |
//! | [`Access::AllOrgs`] | yes | no | no | of all organizations |
//! | [`Access::OrgOperator`], [`Access::KeyOperator`] | yes | no | no | of the organization, made by the operator |
//! | [`Access::People`] | yes | the chosen one, where administrators manage people | no | of the organization, made by the operator |
//! | [`Access::Org`] | yes | the chosen one | the chosen one | of the organization |
//! | [`Access::OrgAdmin`] | yes | the chosen one | no | of the organization |
//! | [`Access::NewKey`] | yes | for all its users | for themselves | of the organization |
//! | [`Access::Key`], [`Access::Keys`] | yes | all of the organization | their own | of the organization |
//! | [`Access::Tokens`], [`Access::Token`] | yes | those of the chosen one | no | of the organization |
//! | [`Access::Session`] | yes | all of the organization | their own | no |
//! | a secret by its digest (`require_digests_allowed`) | yes | no | no | yes |
//!
//! - A program needs the scope of the operation besides. The scope is checked first: its answer tells nothing of what
//!   the operation names.
//! - A visitor, who is in the middle of signing in, may do nothing of this.
//! - A key or session that an actor may not see is reported as absent, so that ids of others cannot be probed; to
//!   programs also an organization.

use futures_util::future::try_join_all;

use super::actor::AuditActor;
use super::operands::look_up_org;
use super::{Actor, Management, ManagementError, Program, SignedInUser, operands};
use domain::clock::Micros;
use domain::identity::SessionId;
use domain::key::KeyId;
use domain::management_token::{TokenId, TokenScope};
use state::{self, Membership};

/// Access that an operation needs, with the scope that a program needs for it. Organizations and users are references
/// as operations take them: ids, names or addresses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access<'a> {
    /// To everything, across organizations, for people at the machine.
    Operator,
    /// To everything, across organizations.
    AllOrgs(TokenScope),
    /// To what the operator may see and change of an organization, its federation rules included.
    OrgOperator(&'a str, TokenScope),
    /// To the people of an organization: to add, to remove and to permit them. No scope: programs may not.
    People(&'a str, Option<TokenScope>),
    /// To what every member of an organization may see.
    Org(&'a str, TokenScope),
    /// To what administrators of an organization may see.
    OrgAdmin(&'a str, TokenScope),
    /// To create a key for a user of an organization.
    NewKey { org: &'a str, user: &'a str },
    /// To what the operator may change of one key.
    KeyOperator(KeyId, TokenScope),
    /// To one key.
    Key(KeyId, TokenScope),
    /// To some keys of an organization.
    Keys { org: &'a str, keys: &'a [KeyId] },
    /// To the management tokens of an organization; without one, of all.
    Tokens(Option<&'a str>),
    /// To one management token.
    Token(TokenId),
    /// To one web session.
    Session(SessionId),
}

impl Access<'_> {
    /// The scope that a program needs; none where a program may do nothing.
    fn scope(self) -> Option<TokenScope> {
        match self {
            Self::AllOrgs(scope)
            | Self::OrgOperator(_, scope)
            | Self::Org(_, scope)
            | Self::OrgAdmin(_, scope)
            | Self::KeyOperator(_, scope)
            | Self::Key(_, scope) => Some(scope),
            Self::People(_, scope) => scope,
            Self::NewKey { .. } => Some(TokenScope::KeysCreate),
            Self::Keys { .. } => Some(TokenScope::UsageRead),
            Self::Tokens(_) | Self::Token(_) => Some(TokenScope::TokensManage),
            Self::Operator | Self::Session(_) => None,
        }
    }
}

/// Authorizes an actor, and returns who the audit record names for what follows.
///
/// # Errors
/// [`ManagementError::NotAllowed`]; for a key or session that the actor may not see, that there is none;
/// [`ManagementError::MissingScope`].
pub(super) async fn authorize<'a>(
    management: &Management,
    actor: &'a Actor,
    access: Access<'_>,
    now: Micros,
) -> Result<AuditActor<'a>, ManagementError> {
    match actor {
        Actor::Operator(_) => {}
        Actor::Visitor(_) => return Err(ManagementError::NotAllowed),
        Actor::User(user) => authorize_user(management, user, access, now).await?,
        Actor::Program(program) => authorize_program(management, program, access).await?,
    }
    Ok(AuditActor { actor, now })
}

/// Authorizes an actor for all that its scope covers: the only organization of a token, or all of them.
///
/// # Errors
/// As [`authorize`].
pub(super) async fn authorize_all<'a>(
    management: &Management,
    actor: &'a Actor,
    scope: TokenScope,
    now: Micros,
) -> Result<AuditActor<'a>, ManagementError> {
    match actor.token_org().map(|org| org.to_string()) {
        Some(org) => authorize(management, actor, Access::Org(&org, scope), now).await,
        None => authorize(management, actor, Access::AllOrgs(scope), now).await,
    }
}

/// Requires an actor who may give a key a secret that was made elsewhere, by its digest. A signed-in person may
/// not: the dashboard shows people the secrets of their keys, and makes each of them with full randomness.
///
/// # Errors
/// [`ManagementError::NotAllowed`].
pub(super) fn require_digests_allowed(actor: &Actor) -> Result<(), ManagementError> {
    if actor.signed_in().is_some() { Err(ManagementError::NotAllowed) } else { Ok(()) }
}

async fn authorize_user(
    management: &Management,
    user: &SignedInUser,
    access: Access<'_>,
    now: Micros,
) -> Result<(), ManagementError> {
    let allowed = match access {
        Access::Operator | Access::AllOrgs(_) | Access::OrgOperator(..) | Access::KeyOperator(..) => false,
        Access::Tokens(org) => user.is_admin() && org.is_some_and(|org| user.has_chosen(org)),
        Access::Token(token) => return authorize_token(management, user, token).await,
        Access::People(org, _) if user.has_chosen(org) && user.is_admin() => {
            return if management.admins_manage_people() { Ok(()) } else { Err(ManagementError::PeopleOfProvider) };
        }
        Access::People(..) => false,
        Access::Org(org, _) => user.has_chosen(org),
        Access::OrgAdmin(org, _) => user.has_chosen(org) && user.is_admin(),
        Access::NewKey { org, user: owner } => user.has_chosen(org) && (user.is_admin() || user.is_named(owner)),
        Access::Key(key, _) => return authorize_key(management, user, key).await,
        Access::Keys { org, keys } if user.has_chosen(org) => return authorize_keys(management, user, keys).await,
        Access::Keys { .. } => false,
        Access::Session(session) => return authorize_session(management, user, session, now).await,
    };
    if allowed { Ok(()) } else { Err(ManagementError::NotAllowed) }
}

async fn authorize_program(
    management: &Management,
    program: &Program,
    access: Access<'_>,
) -> Result<(), ManagementError> {
    let token = &program.token;
    let scope = access.scope().ok_or(ManagementError::NotAllowed)?;
    if !token.scopes.contains(&scope) {
        return Err(ManagementError::MissingScope(scope));
    }
    let needs_operator =
        matches!(access, Access::AllOrgs(_) | Access::OrgOperator(..) | Access::KeyOperator(..) | Access::People(..));
    if needs_operator && token.admin.is_some() {
        return Err(ManagementError::NotAllowed);
    }
    match access {
        Access::AllOrgs(_) if token.org.is_some() => Err(ManagementError::OneOrg),
        Access::AllOrgs(_) => Ok(()),
        Access::OrgOperator(org, _)
        | Access::People(org, _)
        | Access::Org(org, _)
        | Access::OrgAdmin(org, _)
        | Access::NewKey { org, .. } => authorize_program_in(management, program, org).await,
        Access::KeyOperator(key, _) | Access::Key(key, _) => authorize_program_key(management, program, key).await,
        Access::Keys { org, keys } => {
            authorize_program_in(management, program, org).await?;
            operands::check_key_count(keys)?;
            try_join_all(keys.iter().map(|key| authorize_program_key(management, program, *key))).await.map(drop)
        }
        Access::Tokens(org) => match org {
            Some(org) => authorize_program_in(management, program, org).await,
            None if token.org.is_some() => Err(ManagementError::OneOrg),
            None => Ok(()),
        },
        Access::Token(id) => {
            let found = management.state.management_token(id).await?;
            let is_visible = found.is_some_and(|found| token.org.is_none() || token.org == found.org);
            if is_visible { Ok(()) } else { Err(ManagementError::NoToken(id)) }
        }
        Access::Operator | Access::Session(_) => unreachable!("no scope allows it, as above"),
    }
}

/// An organization that the token does not manage is reported as absent.
async fn authorize_program_in(management: &Management, program: &Program, org: &str) -> Result<(), ManagementError> {
    if program.token.org.is_none() {
        return Ok(());
    }
    let found = look_up_org(management, org).await?.filter(|found| program.token.covers(found.id));
    found.map(drop).ok_or_else(|| ManagementError::NoOrg(org.to_owned()))
}

async fn authorize_program_key(management: &Management, program: &Program, id: KeyId) -> Result<(), ManagementError> {
    let key = management.state.key(id).await?;
    let is_visible = |key: &state::Key| program.token.covers(key.org) && !key.session_quota_key;
    if key.is_some_and(|key| is_visible(&key)) { Ok(()) } else { Err(ManagementError::NoKey(id)) }
}

/// Authorizes each of these keys. Too many are refused before any of them is looked up, to bound the work.
async fn authorize_keys(management: &Management, user: &SignedInUser, keys: &[KeyId]) -> Result<(), ManagementError> {
    operands::check_key_count(keys)?;
    try_join_all(keys.iter().map(|key| authorize_key(management, user, *key))).await.map(drop)
}

/// A session quota key is never managed, so it is reported as absent like a key of another user.
async fn authorize_key(management: &Management, user: &SignedInUser, id: KeyId) -> Result<(), ManagementError> {
    let key = management.state.key(id).await?;
    let is_visible = |key: &state::Key| {
        key.org == user.org.id && (key.user == user.user.id || user.is_admin()) && !key.session_quota_key
    };
    if key.is_some_and(|key| is_visible(&key)) { Ok(()) } else { Err(ManagementError::NoKey(id)) }
}

async fn authorize_token(management: &Management, user: &SignedInUser, id: TokenId) -> Result<(), ManagementError> {
    let found = management.state.management_token(id).await?;
    let is_visible = found.is_some_and(|token| user.is_admin() && token.org == Some(user.org.id));
    if is_visible { Ok(()) } else { Err(ManagementError::NoToken(id)) }
}

async fn authorize_session(
    management: &Management,
    user: &SignedInUser,
    id: SessionId,
    now: Micros,
) -> Result<(), ManagementError> {
    let session = management.state.session_by_id(id, now).await?;
    let is_visible =
        |membership: &Membership| membership.user == user.user.id || (user.is_admin() && membership.org == user.org.id);
    let visible = session.is_some_and(|session| session.memberships.iter().any(is_visible));
    if visible { Ok(()) } else { Err(ManagementError::NoSession(id.to_string())) }
}
