//! Management tokens: create, list, show; `token_revocation` revokes them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::audited_change::{Target, apply_change_at};
use super::authorization::{Access, authorize};
use super::cursor::cursor_sealer;
use super::operands::find_org;
use super::token_uses::last_uses;
use super::{Actor, ApiKey, KeyActor, Management, ManagementError, NewToken, Token, TokenStatus, operands};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::policy::Network;
use domain::management_token::{
    DEFAULT_DAYS, InvalidTokenSettings, ManagementToken, PlainToken, TokenId, TokenScope, TokenUse,
};
use domain::names;
use domain::page::{Page, PageQuery};
use state::{ActorName, Change, TokenPosition};

/// Microseconds of a day.
const DAY_US: u64 = 24 * 3600 * 1_000_000;
/// Scopes that an administrator of an organization may give to a token of it.
pub const ADMIN_SCOPES: [TokenScope; 12] = [
    TokenScope::OrgsRead,
    TokenScope::UsersRead,
    TokenScope::UsersWrite,
    TokenScope::KeysRead,
    TokenScope::KeysCreate,
    TokenScope::KeysRotate,
    TokenScope::KeysRevoke,
    TokenScope::KeysSet,
    TokenScope::KeysLeak,
    TokenScope::UsageRead,
    TokenScope::AuditRead,
    TokenScope::TokensManage,
];

/// Users by their ids.
type Administrators = BTreeMap<UserId, state::User>;

/// Settings of a token that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// Its name.
    pub name: String,
    /// Id or name of the only organization that it manages; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// Operations that it may perform, one at least.
    pub allow: BTreeSet<TokenScope>,
    /// Time from which it is refused, at most 366 days from now; none for 90 days from now, and not later than the
    /// token of the program that creates it.
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires: Option<Micros>,
    /// Networks from which it is accepted; none for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Subject alternative name that the client's certificate has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_san: Option<String>,
}

/// Creates a token. Administrators create tokens of their organization with their own rights at most; a program
/// with the scope `tokens:manage` creates none that exceeds its own token.
///
/// # Errors
/// [`ManagementError::InvalidToken`], [`ManagementError::InvalidName`], [`ManagementError::NoOrg`],
/// [`ManagementError::TokenExceeds`], [`ManagementError::TooManyTokens`].
pub async fn create_token(
    management: &Management,
    actor: &Actor,
    settings: TokenSettings,
    now: Micros,
) -> Result<NewToken, ManagementError> {
    let by = authorize(management, actor, Access::Tokens(settings.org.as_deref()), now).await?;
    let plain = PlainToken::generate()?;
    let token = token_of(management, actor, settings, &plain, now).await?;
    check_creator(actor, &token)?;
    let target = Target { org: token.org, user: None, key: None };
    // The id of the token is in the path: neither the organization nor a key names it.
    let path = format!("token.create/{}", token.id);
    let change = Change::CreateToken(Box::new(token.clone()));
    apply_change_at(management, "token.create", &path, target, change, by).await?;
    // Nothing is looked up now: no failure may lose the secret.
    let token = Token::new(token, KeyActor::of(actor), TokenStatus::Active, None);
    Ok(NewToken { secret: ApiKey::from_token(&plain), token })
}

/// Lists tokens, oldest first, a page at a time: those of one organization, or all that the actor may see.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
pub async fn list_tokens(
    management: &Management,
    actor: &Actor,
    org: Option<&str>,
    page: &PageQuery,
    now: Micros,
) -> Result<Page<Token>, ManagementError> {
    // A program of one organization sees the tokens of that one.
    let own = actor.org().map(|org| org.to_string());
    let org = org.or(own.as_deref());
    authorize(management, actor, Access::Tokens(org), now).await?;
    let org = match org {
        Some(org) => Some(find_org(management, org).await?.id),
        None => None,
    };
    let sealer = cursor_sealer(management, &("tokens", org)).await?;
    let after: Option<TokenPosition> = sealer.open(page.cursor.as_deref())?;
    let found = management.state.page_of_management_tokens(org, after, page.limit.get()).await?;
    sealer.seal(Page { items: show_tokens(management, actor, found.items, now).await?, next: found.next })
}

/// Shows one token.
///
/// # Errors
/// [`ManagementError::NoToken`].
pub async fn show_token(
    management: &Management,
    actor: &Actor,
    id: TokenId,
    now: Micros,
) -> Result<Token, ManagementError> {
    authorize(management, actor, Access::Token(id), now).await?;
    let token = management.state.management_token(id).await?.ok_or(ManagementError::NoToken(id))?;
    show_found(management, actor, token, now).await
}

/// Tokens as the viewer may know them, in their order.
async fn show_tokens(
    management: &Management,
    viewer: &Actor,
    tokens: Vec<ManagementToken>,
    now: Micros,
) -> Result<Vec<Token>, state::Unavailable> {
    let administrators = administrators_of(management, &tokens).await?;
    let uses = last_uses(management, &tokens).await?;
    let shown = tokens.into_iter().zip(uses);
    Ok(shown.map(|(token, last)| token_from_record(viewer, token, last, &administrators, now)).collect())
}

pub(super) async fn show_found(
    management: &Management,
    viewer: &Actor,
    token: ManagementToken,
    now: Micros,
) -> Result<Token, ManagementError> {
    let mut shown = show_tokens(management, viewer, vec![token], now).await?;
    Ok(shown.pop().expect("as many are shown as are given"))
}

/// The users whose rights bound these tokens, as their organizations have them now.
async fn administrators_of(
    management: &Management,
    tokens: &[ManagementToken],
) -> Result<Administrators, state::Unavailable> {
    let members: BTreeSet<(OrgId, UserId)> = tokens.iter().filter_map(|token| token.org.zip(token.admin)).collect();
    let found = try_join_all(members.into_iter().map(|(org, user)| management.state.member(org, user))).await?;
    Ok(found.into_iter().flatten().map(|(_, user)| (user.id, user)).collect())
}

async fn token_of(
    management: &Management,
    actor: &Actor,
    settings: TokenSettings,
    plain: &PlainToken,
    now: Micros,
) -> Result<ManagementToken, ManagementError> {
    let TokenSettings { name, org, allow, expires, mut networks, client_san } = settings;
    networks.sort_unstable();
    networks.dedup();
    let org = match org {
        Some(org) => {
            let org = find_org(management, &org).await?;
            operands::check_creation(actor, &org)?;
            Some(org.id)
        }
        None => None,
    };
    let token = ManagementToken {
        id: plain.id(),
        digest: plain.digest(),
        name: names::validate_name(&name)?,
        org,
        admin: actor.bounded_user(),
        scopes: allow,
        networks,
        client_san,
        created: now,
        created_by: actor.audit_name(None).into_owned(),
        expires: expires.unwrap_or_else(|| default_expiry(actor, now)),
        revoked: None,
    };
    token.validate().map_err(|InvalidTokenSettings(invalid)| ManagementError::InvalidToken(invalid))?;
    Ok(token)
}

/// A token as the viewer may know it.
fn token_from_record(
    viewer: &Actor,
    token: ManagementToken,
    last_use: Option<TokenUse>,
    administrators: &Administrators,
    now: Micros,
) -> Token {
    let name = ActorName::new(token.created_by.clone());
    let creator = name.user().and_then(|id| administrators.get(&id));
    let emails = creator.map(|user| (user.id, user.email.clone())).into_iter().collect();
    let created_by = KeyActor::new(&name, viewer, &emails);
    let administrator = token.admin.and_then(|admin| administrators.get(&admin));
    let status = TokenStatus::new(&token, administrator, now);
    Token::new(token, created_by, status, last_use)
}

/// Expiry of a token that none is given for: of one that a program creates not later than that of its own token.
fn default_expiry(actor: &Actor, now: Micros) -> Micros {
    let expires = Micros(now.0 + DEFAULT_DAYS * DAY_US);
    match actor {
        Actor::Program(program) => expires.min(program.token.expires),
        Actor::Operator(_) | Actor::Visitor(_) | Actor::User(_) => expires,
    }
}

/// Checks that a new token does not exceed the rights of its creator.
fn check_creator(actor: &Actor, token: &ManagementToken) -> Result<(), ManagementError> {
    match actor {
        Actor::Program(program) if !token.is_within(&program.token) => Err(ManagementError::TokenExceeds(
            "its organization, scopes, networks, certificate and expiry are at most those of its creator",
        )),
        Actor::User(_) if !token.scopes.iter().all(|scope| ADMIN_SCOPES.contains(scope)) => {
            Err(ManagementError::TokenExceeds("administrators give no orgs:write and no state:export"))
        }
        _ => Ok(()),
    }
}
