//! Accounts of services: create, reassign, and the persons who are responsible for them.
//!
//! - A service has a name, permissions and keys, as a person has. It never signs in: there is no link, provider or
//!   session for it. Administrators of the organization make its keys.
//! - The responsible person is one of the organization. The suspension or removal of that person marks the service
//!   and stops nothing.

use super::authorization::{Access, authorize};
use super::operands::{find_org, find_person};
use super::user::Responsible;
use super::users::{NewUser, UserGrants, add_user};
use super::{Actor, Management, ManagementError, User, operands};
use domain::clock::Micros;
use domain::management_token::TokenScope;
use domain::names;

/// Creates the account of a service with this name, these grants and a responsible person. For the operator.
///
/// # Errors
/// [`ManagementError::InvalidName`], [`ManagementError::NoOrg`]; [`ManagementError::NoUser`] and
/// [`ManagementError::NotPerson`] for the responsible person; [`ManagementError::Taken`] when a user of the
/// organization has this name.
pub async fn create_service(
    management: &Management,
    actor: &Actor,
    org: &str,
    name: &str,
    responsible: &str,
    grants: UserGrants,
    now: Micros,
) -> Result<User, ManagementError> {
    let by = authorize(management, actor, Access::OrgOperator(org, TokenScope::UsersWrite), now).await?;
    let name = names::validate_service_name(name)?;
    let org = find_org(management, org).await?;
    operands::check_creation(actor, &org)?;
    let org = org.id;
    let person = find_person(management, org, responsible).await?;
    let new = NewUser { org, email: &name, grants, vouched_by: None, responsible: Some(person.id) };
    let user = add_user(management, new, by).await?;
    Ok(User::new(user, Some(Responsible::new(person.id, Some(&person)))))
}
