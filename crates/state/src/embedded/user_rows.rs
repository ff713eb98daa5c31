//! Users as SQL.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::sql::{execute, integer};
use crate::{ChangeError, User};
use domain::identity::Permission;

/// Creates a user, whose organization exists.
pub(super) fn create(sql: &Connection, user: &User) -> Result<(), ChangeError> {
    let insert = "INSERT INTO users (id, permissions, removed, provider, person, withdrawn, suspended,
                                     suspended_by_operator, responsible, plan, budget, org, email, created)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let fixed = [user.org.to_string().into(), user.email.clone().into(), integer(user.created.0).into()];
    execute(sql, insert, params_from_iter(changing(user).into_iter().chain(fixed))).map(drop)
}

/// Writes what can change of a user.
pub(super) fn update(sql: &Connection, user: &User) -> Result<(), ChangeError> {
    let update = "UPDATE users SET permissions = ?2, removed = ?3, provider = ?4, person = ?5, withdrawn = ?6,
                                   suspended = ?7, suspended_by_operator = ?8, responsible = ?9, plan = ?10,
                                   budget = ?11
                  WHERE id = ?1";
    execute(sql, update, params_from_iter(changing(user))).map(drop)
}

/// The id, and the columns that can change.
fn changing(user: &User) -> [Value; 11] {
    let [removed, withdrawn, suspended] =
        [user.removed, user.withdrawn, user.suspended].map(|at| at.map(|at| integer(at.0)).into());
    let (provider, person) = user.vouched_by.as_ref().map(|by| (by.provider.clone(), by.person.to_string())).unzip();
    // Comma-separated.
    let permissions = user.permissions.iter().map(Permission::as_str).collect::<Vec<_>>().join(",");
    let responsible = user.responsible.map(|user| user.to_string());
    let by_operator = user.suspended_by_operator.into();
    [
        user.id.to_string().into(),
        permissions.into(),
        removed,
        provider.into(),
        person.into(),
        withdrawn,
        suspended,
        by_operator,
        responsible.into(),
        user.plan.as_ref().map(|plan| plan.as_str().to_owned()).into(),
        user.budget.map(|budget| budget.to_string()).into(),
    ]
}
