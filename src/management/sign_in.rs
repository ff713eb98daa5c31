//! Signing in by an identity provider: who somebody is here, by its word.

use super::actor::By;
use super::sessions::{Entry, subject};
use super::{Actor, Management, ManagementError, Origin, checks};
use crate::clock::Micros;
use crate::identity::{OrgId, Permission, UserId};
use crate::secret::Secret;
use crate::session::{Token, TokenDigest};
use crate::state::{self, Change, Membership, Session};

/// Bytes of an ID token that a session keeps; without it, the provider asks whether to sign out.
const ID_TOKEN: usize = 8 << 10;

/// What a provider says of a person, as the configuration reads it.
#[derive(Clone, Debug)]
pub struct SignIn {
    /// The provider's name.
    pub provider: String,
    /// The person's address; verified, or believed.
    pub email: String,
    /// Where they belong to.
    pub belongs: Belongs,
    /// What the provider wants to see again when they sign out.
    pub id_token: Option<Secret>,
    /// The session that the browser had.
    pub previous: Option<TokenDigest>,
}

/// Where a person belongs to, and what they may do there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belongs {
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
    pub async fn sign_in(
        &self,
        sign_in: SignIn,
        origin: Origin,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        let SignIn { provider, email, belongs, id_token, previous } = sign_in;
        let email = checks::email(&email)?;
        let visitor = Actor::Visitor(origin.clone());
        let memberships = self.memberships(&email, &belongs, By { actor: &visitor, now }).await?;
        let id_token = id_token.map(|token| token.expose().to_owned()).filter(|token| token.len() <= ID_TOKEN);
        self.begin(Entry { memberships, email, provider: Some(provider), id_token, previous }, origin, now).await
    }

    /// Who the person is in each organization that they belong to; those that the provider entrusts to us are entered.
    async fn memberships(
        &self,
        email: &str,
        belongs: &Belongs,
        by: By<'_>,
    ) -> Result<Vec<Membership>, ManagementError> {
        let named = |names: &[String], org: &state::Org| names.iter().any(|name| is_named(name, org));
        let mut memberships = Vec::new();
        for org in self.state.orgs().await? {
            let may = belongs.only.as_deref().is_none_or(|only| named(only, &org));
            let told = belongs.orgs.as_deref().map(|orgs| named(orgs, &org));
            if !may || told == Some(false) {
                continue;
            }
            let found = self.state.user_by_email(org.id, email).await?;
            let user = match (found, told) {
                (Some(user), _) => self.as_told(user, belongs, by).await?,
                // Whom somebody has removed here does not come back by themselves.
                (None, Some(_)) if self.was_removed(org.id, email).await? => continue,
                (None, Some(_)) => {
                    let permissions = belongs.permissions.clone().unwrap_or_default();
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
    async fn as_told(&self, user: state::User, belongs: &Belongs, by: By<'_>) -> Result<UserId, ManagementError> {
        if let Some(told) = &belongs.permissions {
            let permissions = checks::permissions(told.clone());
            if permissions != user.permissions {
                let change = Change::PermitUser { org: user.org, user: user.id, permissions };
                self.change("user.permit", subject(user.org, user.id), change, by).await?;
            }
        }
        Ok(user.id)
    }

    /// Keeps what a sign-in under way needs when the browser comes back, once.
    ///
    /// # Errors
    /// [`ManagementError::State`].
    pub async fn put_pending(
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
    pub async fn take_pending(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ManagementError> {
        Ok(self.state.take_ticket(digest, now).await?)
    }
}

fn is_named(name: &str, org: &state::Org) -> bool {
    name.parse::<OrgId>().map_or(name == org.name, |id| id == org.id)
}
