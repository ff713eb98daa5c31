//! Management tokens: create, list, revoke, and the authentication of the programs that present them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::audited_change::Target;
use super::authorization::Access;
use super::token_settings::{check_creator, check_settings, default_expiry};
use super::{ADMIN, Actor, ApiKey, ClientInfo, Conditions, Management, ManagementError, Program, TokenSettings};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::policy::Network;
use domain::management_token::{self, ManagementToken, PlainToken, TokenId, TokenScope};
use domain::names;
use domain::page::{Page, PageQuery};
use domain::session::TokenDigest;
use state::{Change, TokenPosition};

/// Tokens of one organization at most, those included that are revoked and not expired.
const MAX_TOKENS_OF_ORG: usize = 100;
/// Management token, as operations show it: without its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Its name.
    pub name: String,
    /// The only organization that it manages; none for all.
    pub org: Option<OrgId>,
    /// Operations that it may perform.
    pub allow: BTreeSet<TokenScope>,
    /// Networks from which it is accepted; empty for any.
    pub networks: Vec<Network>,
    /// Subject alternative name that the client's certificate has to have.
    pub client_san: Option<String>,
    /// Time of its creation.
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// Actor who created it; none where the viewer may not know.
    pub created_by: Option<String>,
    /// Time from which it is refused.
    #[serde(with = "clock::rfc3339")]
    pub expires: Micros,
    /// Time of its revocation.
    #[serde(with = "clock::rfc3339::option")]
    pub revoked: Option<Micros>,
}

/// New token, with its text. `Debug` does not show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// Its text, to be shown once.
    pub secret: ApiKey,
    /// The token as lists show it.
    pub token: Token,
}

/// Reason why a presented token is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// The text is no token, or no token has this id and secret, or it was revoked.
    #[error("the token is not known, or was revoked; create one with `keygate token create`")]
    Unknown,
    /// Its time is over.
    #[error("the token has expired; create another with `keygate token create`")]
    Expired,
    /// It is not accepted from the client's address.
    #[error("the token is not accepted from this address")]
    Address,
    /// The client's certificate does not have the name that the token asks for.
    #[error("the token asks for a client certificate with another name")]
    Certificate,
    /// The state did not answer.
    #[error(transparent)]
    State(#[from] state::Unavailable),
}

impl Management {
    /// Creates a token. Administrators create tokens of their organization with their own rights at most; a program
    /// with the scope `tokens:manage` creates none that exceeds its own token.
    ///
    /// # Errors
    /// [`ManagementError::InvalidToken`], [`ManagementError::InvalidName`], [`ManagementError::NoOrg`],
    /// [`ManagementError::TokenExceeds`], [`ManagementError::TooManyTokens`].
    pub async fn create_token(
        &self,
        actor: &Actor,
        settings: TokenSettings,
        now: Micros,
    ) -> Result<NewToken, ManagementError> {
        let by = self.authorize(actor, Access::Tokens(settings.org.as_deref()), now).await?;
        let plain = PlainToken::generate()?;
        let token = self.token_of(actor, settings, &plain, now).await?;
        check_creator(actor, &token)?;
        self.check_token_count(token.org).await?;
        let target = Target { org: token.org, user: None, key: None };
        // The id of the token is in the path: neither the organization nor a key names it.
        let path = format!("token.create/{}", token.id);
        let change = Change::CreateToken(Box::new(token.clone()));
        self.apply_change_at("token.create", &path, target, change, by).await?;
        Ok(NewToken { secret: ApiKey::from_token(&plain), token: Token::new(token, actor) })
    }

    /// Lists tokens, oldest first, a page at a time: those of one organization, or all that the actor may see.
    ///
    /// # Errors
    /// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
    pub async fn list_tokens(
        &self,
        actor: &Actor,
        org: Option<&str>,
        page: &PageQuery,
        now: Micros,
    ) -> Result<Page<Token>, ManagementError> {
        // A program of one organization sees the tokens of that one.
        let own = actor.org().map(|org| org.to_string());
        let org = org.or(own.as_deref());
        self.authorize(actor, Access::Tokens(org), now).await?;
        let org = match org {
            Some(org) => Some(self.find_org(org).await?.id),
            None => None,
        };
        let sealer = self.cursor_sealer(&("tokens", org)).await?;
        let after: Option<TokenPosition> = sealer.open(page.cursor.as_deref())?;
        let found = self.state.page_of_management_tokens(org, after, page.limit.get()).await?;
        sealer.seal(found.map(|token| Token::new(token, actor)))
    }

    /// Revokes a token, for every call that begins afterwards. Revoking it again changes nothing.
    ///
    /// # Errors
    /// [`ManagementError::NoToken`].
    pub async fn revoke_token(&self, actor: &Actor, id: TokenId, now: Micros) -> Result<Token, ManagementError> {
        let by = self.authorize(actor, Access::Token(id), now).await?;
        let mut token = self.state.management_token(id).await?.ok_or(ManagementError::NoToken(id))?;
        let target = Target { org: token.org, user: None, key: None };
        let change = Change::RevokeToken { token: id, at: now };
        self.apply_change_at("token.revoke", &format!("token.revoke/{id}"), target, change, by).await?;
        token.revoked = token.revoked.or(Some(now));
        Ok(Token::new(token, actor))
    }

    /// Authenticates the program that presents a token. `sans` are the subject alternative names of its certificate.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub async fn authenticate_token(
        &self,
        presented: &[u8],
        sans: &[String],
        client: ClientInfo,
        now: Micros,
    ) -> Result<Program, TokenRefusal> {
        let id = management_token::parse(presented).ok_or(TokenRefusal::Unknown)?;
        let found = self.state.management_token(id).await?;
        let token = found.filter(|token| token.digest == TokenDigest::of(presented) && token.revoked.is_none());
        let token = token.ok_or(TokenRefusal::Unknown)?;
        if !token.is_live(now) {
            return Err(TokenRefusal::Expired);
        }
        if !token.allows_address(client.ip.as_ref()) {
            return Err(TokenRefusal::Address);
        }
        if token.client_san.as_ref().is_some_and(|san| !sans.contains(san)) {
            return Err(TokenRefusal::Certificate);
        }
        if let (Some(org), Some(admin)) = (token.org, token.admin)
            && !self.is_admin_of(org, admin).await?
        {
            return Err(TokenRefusal::Unknown);
        }
        Ok(Program { token, client, conditions: Conditions::default() })
    }

    /// Returns whether a user is an active administrator of an organization.
    async fn is_admin_of(&self, org: OrgId, user: UserId) -> Result<bool, state::Unavailable> {
        let member = self.state.member(org, user).await?;
        Ok(member.is_some_and(|(_, user)| {
            user.is_active() && user.permissions.iter().any(|permission| permission.as_str() == ADMIN)
        }))
    }

    async fn token_of(
        &self,
        actor: &Actor,
        settings: TokenSettings,
        plain: &PlainToken,
        now: Micros,
    ) -> Result<ManagementToken, ManagementError> {
        let TokenSettings { name, org, allow, expires, mut networks, client_san } = settings;
        networks.sort_unstable();
        networks.dedup();
        let org = match org {
            Some(org) => Some(self.find_org(&org).await?.id),
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
        check_settings(&token, now)?;
        Ok(token)
    }

    async fn check_token_count(&self, org: Option<OrgId>) -> Result<(), ManagementError> {
        let Some(org) = org else { return Ok(()) };
        let tokens = self.state.page_of_management_tokens(Some(org), None, MAX_TOKENS_OF_ORG).await?;
        let limit = u32::try_from(MAX_TOKENS_OF_ORG).expect("a constant");
        if tokens.items.len() < MAX_TOKENS_OF_ORG { Ok(()) } else { Err(ManagementError::TooManyTokens(limit)) }
    }
}

impl Token {
    /// The token as an actor sees it.
    pub(super) fn new(token: ManagementToken, viewer: &Actor) -> Self {
        let created_by = Some(token.created_by).filter(|name| viewer.knows_operators() || !name.starts_with("unix:"));
        Self {
            id: token.id,
            name: token.name,
            org: token.org,
            allow: token.scopes,
            networks: token.networks,
            client_san: token.client_san,
            created: token.created,
            created_by,
            expires: token.expires,
            revoked: token.revoked,
        }
    }

    /// Returns whether it is accepted at this time, from the networks that it has.
    pub fn is_live(&self, now: Micros) -> bool {
        self.revoked.is_none() && now < self.expires
    }
}
