//! Look-ups of single records of the directory.

use std::sync::Arc;

use super::{CredentialStatus, Org, RevocationLog, State, Unavailable, User, Validity};
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, Principal, UserId};

impl State {
    /// One organization.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn org(&self, id: OrgId) -> Result<Option<Org>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.org(id)),
            Self::Redis(state) => state.org(id).await,
        }
    }

    /// The organization with this name.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn org_by_name(&self, name: &str) -> Result<Option<Org>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.org_by_name(name)),
            Self::Redis(state) => state.org_by_name(name).await,
        }
    }

    /// The users with this email address, in lower case, in all organizations; removed ones too. The look-up takes the same
    /// time however many organizations there are.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn users_by_email(&self, email: &str) -> Result<Vec<User>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.users_by_email(email)),
            Self::Redis(state) => state.users_by_email(email).await,
        }
    }

    /// The users for whose memberships a provider has vouched as this person, in all organizations; removed and withdrawn ones
    /// too.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn users_by_person(&self, person: &PersonId) -> Result<Vec<User>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.users_by_person(person)),
            Self::Redis(state) => state.users_by_person(person).await,
        }
    }

    /// An organization and one of its users, who may be removed; none when either does not exist.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn member(&self, org: OrgId, user: UserId) -> Result<Option<(Org, User)>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.member(org, user)),
            Self::Redis(state) => state.member(org, user).await,
        }
    }

    /// The user of an organization with this email address, in lower case. Removed users are not found.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn user_by_email(&self, org: OrgId, email: &str) -> Result<Option<User>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.user_by_email(org, email)),
            Self::Redis(state) => state.user_by_email(org, email).await,
        }
    }

    /// The log of revocations, which ends exchanges that are open.
    pub fn revocations(&self) -> &Arc<RevocationLog> {
        match self {
            Self::Embedded(state) => state.revocations(),
            Self::Redis(state) => state.revocations(),
        }
    }

    /// Checks whether the credential of an admitted request is still valid, with its user and organization. Takes nothing,
    /// and is no use of a session.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn check_credential(
        &self,
        principal: &Principal,
        validity: &Validity,
        now: Micros,
    ) -> Result<CredentialStatus, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.check_credential(validity, now)),
            Self::Redis(state) => state.check_credential(principal, validity, now).await,
        }
    }
}
