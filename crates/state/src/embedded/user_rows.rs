//! Users as SQL.

use rusqlite::{Connection, params};

use super::sql::{execute, integer};
use crate::{ChangeError, User};
use domain::clock::Micros;
use domain::identity::Permission;

/// Creates a user, whose organization exists.
pub(super) fn create(sql: &Connection, user: &User) -> Result<(), ChangeError> {
    let insert = "INSERT INTO users (org, email, created, permissions, removed, provider, person, withdrawn, suspended,
                                     suspended_by_operator, responsible, id)
                  VALUES (?10, ?11, ?12, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1)";
    write(sql, insert, user)
}

/// Writes what can change of a user.
pub(super) fn update(sql: &Connection, user: &User) -> Result<(), ChangeError> {
    let update = "UPDATE users SET permissions = ?2, removed = ?3, provider = ?4, person = ?5, withdrawn = ?6,
                                   suspended = ?7, suspended_by_operator = ?8, responsible = ?9,
                                   org = ?10, email = ?11, created = ?12 WHERE id = ?1";
    write(sql, update, user)
}

fn write(sql: &Connection, statement: &str, user: &User) -> Result<(), ChangeError> {
    let time = |at: Option<Micros>| at.map(|at| integer(at.0));
    let (provider, person) = user.vouched_by.as_ref().map(|by| (&*by.provider, by.person.to_string())).unzip();
    // Comma-separated.
    let permissions = user.permissions.iter().map(Permission::as_str).collect::<Vec<_>>().join(",");
    let parameters = params![
        user.id.to_string(),
        permissions,
        time(user.removed),
        provider,
        person,
        time(user.withdrawn),
        time(user.suspended),
        user.suspended_by_operator,
        user.responsible.map(|user| user.to_string()),
        user.org.to_string(),
        user.email,
        integer(user.created.0),
    ];
    execute(sql, statement, parameters).map(drop)
}
