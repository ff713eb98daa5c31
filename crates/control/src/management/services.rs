//! Accounts of services: create, reassign, and the persons who are responsible for them.
//!
//! - A service has a name, permissions and keys, as a person has. It never signs in: there is no link, provider or
//!   session for it. Administrators of the organization make its keys.
//! - The responsible person is one of the organization. The suspension or removal of that person marks the service
//!   and stops nothing.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join_all;

use super::authorization::Access;
use super::user::Responsible;
use super::users::NewUser;
use super::{Actor, Management, ManagementError, User, operands};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId};
use domain::management_token::TokenScope;
use domain::names;
use state;

impl Management {
    /// Creates the account of a service with this name, these permissions and a responsible person. For the operator.
    ///
    /// # Errors
    /// [`ManagementError::InvalidName`], [`ManagementError::NoOrg`]; [`ManagementError::NoUser`] and
    /// [`ManagementError::NotPerson`] for the responsible person; [`ManagementError::Taken`] when a user of the
    /// organization has this name.
    pub async fn create_service(
        &self,
        actor: &Actor,
        org: &str,
        name: &str,
        responsible: &str,
        permissions: Vec<Permission>,
        now: Micros,
    ) -> Result<User, ManagementError> {
        let by = self.authorize(actor, Access::OrgOperator(org, TokenScope::UsersWrite), now).await?;
        let name = names::validate_service_name(name)?;
        let org = self.find_org(org).await?;
        operands::check_creation(actor, &org)?;
        let org = org.id;
        let person = self.find_person(org, responsible).await?;
        let new = NewUser { org, email: &name, permissions, vouched_by: None, responsible: Some(person.id) };
        let user = self.add_user(new, by).await?;
        Ok(User::new(user, Some(Responsible::new(person.id, Some(&person)))))
    }

    /// Looks up the person with this id or email address.
    pub(super) async fn find_person(&self, org: OrgId, reference: &str) -> Result<state::User, ManagementError> {
        let user = self.find_user(org, reference).await?;
        if user.is_service() { Err(ManagementError::NotPerson(user.email)) } else { Ok(user) }
    }

    /// The person who is responsible for a service; none for a person.
    pub(super) async fn find_responsible(&self, user: &state::User) -> Result<Option<Responsible>, ManagementError> {
        let Some(id) = user.responsible else { return Ok(None) };
        let member = self.state.member(user.org, id).await?;
        Ok(Some(Responsible::new(id, member.as_ref().map(|(_, user)| user))))
    }

    /// Users of an organization as results show them. Each responsible person is looked up once.
    pub(super) async fn show_users(&self, org: OrgId, users: Vec<state::User>) -> Result<Vec<User>, ManagementError> {
        let ids: HashSet<UserId> = users.iter().filter_map(|user| user.responsible).collect();
        let members = try_join_all(ids.into_iter().map(|id| self.state.member(org, id))).await?;
        let persons: HashMap<UserId, state::User> =
            members.into_iter().flatten().map(|(_, user)| (user.id, user)).collect();
        let show = |user: state::User| {
            let responsible = user.responsible.map(|id| Responsible::new(id, persons.get(&id)));
            User::new(user, responsible)
        };
        Ok(users.into_iter().map(show).collect())
    }
}
