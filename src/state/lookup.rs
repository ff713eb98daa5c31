//! Look-ups of single records of the directory.

use super::{Org, State, Unavailable, User};
use crate::identity::{OrgId, UserId};

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
}
