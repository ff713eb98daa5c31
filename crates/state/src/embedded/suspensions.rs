//! Suspensions of users and organizations as SQL. What the operator has suspended the operator alone resumes.

use rusqlite::{Connection, params};

use super::sql::{execute, exists, integer};
use crate::ChangeError;
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};

/// Suspends a user. Of several suspensions the first stands, and that of the operator is noted.
pub(super) fn suspend_user(sql: &Connection, user: UserId, at: Micros, by_operator: bool) -> Result<(), ChangeError> {
    let update = "UPDATE users SET suspended = coalesce(suspended, ?2),
                                   suspended_by_operator = max(coalesce(suspended_by_operator, 0), ?3) WHERE id = ?1";
    execute(sql, update, params![user.to_string(), integer(at.0), by_operator]).map(drop)
}

/// Resumes a user; one whom the operator has suspended for the operator alone.
pub(super) fn resume_user(sql: &Connection, user: UserId, by_operator: bool) -> Result<(), ChangeError> {
    let update = "UPDATE users SET suspended = NULL, suspended_by_operator = NULL
                  WHERE id = ?1 AND (?2 OR coalesce(suspended_by_operator, 0) = 0)";
    match execute(sql, update, params![user.to_string(), by_operator])? {
        0 => Err(ChangeError::SuspendedByOperator(user)),
        _ => Ok(()),
    }
}

/// Requires an organization that is not suspended.
pub(super) fn require_active_org(sql: &Connection, org: OrgId) -> Result<(), ChangeError> {
    let is_suspended = exists(sql, "SELECT 1 FROM orgs WHERE id = ?1 AND suspended", [org.to_string()])?;
    if is_suspended { Err(ChangeError::OrgSuspended(org)) } else { Ok(()) }
}
