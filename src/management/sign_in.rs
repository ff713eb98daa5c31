//! Signing in by an identity provider: who somebody is here, by its word.

use super::actor::AuditActor;
use super::sessions::{NewSession, target};
use super::{Actor, ClientInfo, Management, ManagementError, checks};
use crate::clock::Micros;
use crate::identity::{OrgId, Permission, UserId};
use crate::secret::Secret;
use crate::session::{Token, TokenDigest};
use crate::state::{self, Change, Membership, Session};

/// Bytes of an ID token that a session keeps; without it, the provider asks whether to sign out.
const ID_TOKEN: usize = 8 << 10;

/// What a provider says of a person, as the configuration reads it.
#[derive(Clone, Debug)]
pub struct ProviderSignIn {
    /// The provider's name.
    pub provider: String,
    /// The person's address; verified, or believed.
    pub email: String,
    /// Where they belong to.
    pub entitlements: Entitlements,
    /// What the provider wants to see again when they sign out.
    pub id_token: Option<Secret>,
    /// The session that the browser had.
    pub previous: Option<TokenDigest>,
}

/// Where a person belongs to, and what they may do there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entitlements {
    /// Organizations, by name or id, as the provider says; none: those whose directory has the person's address. A person
    /// who is not in the directory of such an organization yet is entered.
    pub orgs: Option<Vec<String>>,
    /// The only organizations, by name or id, that this provider may speak for; none: all.
    pub only: Option<Vec<String>>,
    /// What they may do in each of them, as the provider says; none: what the directory says.
    pub permissions: Option<Vec<Permission>>,
}

impl Management {
    /// Signs in by a provider's word: a new session, and what its browser is to hold.
    ///
    /// # Errors
    /// [`ManagementError::NoMembership`] when the person belongs nowhere; others as for all operations.
    pub async fn sign_in_with_provider(
        &self,
        sign_in: ProviderSignIn,
        client: ClientInfo,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        let ProviderSignIn { provider, email, entitlements, id_token, previous } = sign_in;
        let email = checks::email(&email)?;
        let visitor = Actor::Visitor(client.clone());
        let memberships = self.memberships(&email, &entitlements, AuditActor { actor: &visitor, now }).await?;
        let id_token = id_token.map(|token| token.expose().to_owned()).filter(|token| token.len() <= ID_TOKEN);
        self.begin(NewSession { memberships, email, provider: Some(provider), id_token, previous }, client, now).await
    }

    /// Who the person is in each organization that they belong to; those that the provider entrusts to us are entered.
    async fn memberships(
        &self,
        email: &str,
        entitlements: &Entitlements,
        by: AuditActor<'_>,
    ) -> Result<Vec<Membership>, ManagementError> {
        let named = |names: &[String], org: &state::Org| names.iter().any(|name| is_named(name, org));
        let mut memberships = Vec::new();
        for org in self.state.orgs().await? {
            let may = entitlements.only.as_deref().is_none_or(|only| named(only, &org));
            let told = entitlements.orgs.as_deref().map(|orgs| named(orgs, &org));
            if !may || told == Some(false) {
                continue;
            }
            let found = self.state.user_by_email(org.id, email).await?;
            let user = match (found, told) {
                (Some(user), _) => self.sync_permissions(user, entitlements, by).await?,
                // Whom somebody has removed here does not come back by themselves.
                (None, Some(_)) if self.was_removed(org.id, email).await? => continue,
                (None, Some(_)) => {
                    let permissions = entitlements.permissions.clone().unwrap_or_default();
                    self.enter_user(org.id, email, permissions, by).await?
                }
                (None, None) => continue,
            };
            memberships.push(Membership { org: org.id, user });
        }
        if memberships.is_empty() { Err(ManagementError::NoMembership(email.to_owned())) } else { Ok(memberships) }
    }

    /// Whether a user with this address was removed from an organization.
    async fn was_removed(&self, org: OrgId, email: &str) -> Result<bool, ManagementError> {
        Ok(self.state.users(org).await?.iter().any(|user| user.email == email && user.removed.is_some()))
    }

    /// A user, permitted what the provider says.
    async fn sync_permissions(
        &self,
        user: state::User,
        entitlements: &Entitlements,
        by: AuditActor<'_>,
    ) -> Result<UserId, ManagementError> {
        if let Some(told) = &entitlements.permissions {
            let permissions = checks::permissions(told.clone());
            if permissions != user.permissions {
                let change = Change::PermitUser { org: user.org, user: user.id, permissions };
                self.change("user.permit", target(user.org, user.id), change, by).await?;
            }
        }
        Ok(user.id)
    }

    /// Keeps what a sign-in under way needs when the browser comes back, once.
    ///
    /// # Errors
    /// [`ManagementError::State`].
    pub async fn store_pending_sign_in(
        &self,
        digest: TokenDigest,
        content: Vec<u8>,
        expires: Micros,
    ) -> Result<(), ManagementError> {
        Ok(self.state.change(Change::PutTicket { digest, content, expires }).await?)
    }

    /// What was kept, for the first who asks.
    ///
    /// # Errors
    /// [`ManagementError::State`].
    pub async fn take_pending_sign_in(
        &self,
        digest: &TokenDigest,
        now: Micros,
    ) -> Result<Option<Vec<u8>>, ManagementError> {
        Ok(self.state.take_ticket(digest, now).await?)
    }
}

fn is_named(name: &str, org: &state::Org) -> bool {
    name.parse::<OrgId>().map_or(name == org.name, |id| id == org.id)
}
