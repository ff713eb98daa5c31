//! Accounts of services as SQL: each has a responsible person of its organization.

use rusqlite::{Connection, params};

use super::changes::{create_user, require_user};
use super::sql::{execute, exists};
use crate::{ChangeError, User};
use domain::identity::{OrgId, UserId};

/// Creates a user; the responsible person of a service must be a person of the organization.
pub(super) fn create_new_user(sql: &Connection, user: &User) -> Result<(), ChangeError> {
    if let Some(responsible) = user.responsible {
        require_person(sql, user.org, responsible)?;
    }
    create_user(sql, user)
}

/// Makes another person responsible for a service, which is not removed.
pub(super) fn reassign(sql: &Connection, org: OrgId, user: UserId, responsible: UserId) -> Result<(), ChangeError> {
    if !is_service(sql, user)? {
        return Err(ChangeError::NotService(user));
    }
    require_person(sql, org, responsible)?;
    let update = "UPDATE users SET responsible = ?2 WHERE id = ?1";
    execute(sql, update, params![user.to_string(), responsible.to_string()]).map(drop)
}

/// Requires a person of the organization who is not removed.
fn require_person(sql: &Connection, org: OrgId, user: UserId) -> Result<(), ChangeError> {
    require_user(sql, org, user)?;
    if is_service(sql, user)? { Err(ChangeError::NotPerson(user)) } else { Ok(()) }
}

fn is_service(sql: &Connection, user: UserId) -> Result<bool, ChangeError> {
    exists(sql, "SELECT 1 FROM users WHERE id = ?1 AND responsible IS NOT NULL", [user.to_string()])
}
