//! Organizations as SQL.

use rusqlite::{Connection, params};

use super::org_looks;
use super::sql::{execute, integer};
use crate::{ChangeError, Org, OrgPolicy};
use domain::identity::OrgId;

/// Creates an organization whose name looks like no other one's.
pub(super) fn create_new(sql: &Connection, org: &Org) -> Result<(), ChangeError> {
    org_looks::require_new(sql, &org.name)?;
    create(sql, org)
}

pub(super) fn create(sql: &Connection, org: &Org) -> Result<(), ChangeError> {
    let id = org.id.to_string();
    let created = integer(org.created.0);
    let policy = org.policy.to_record();
    execute(
        sql,
        "INSERT INTO orgs (id, tag, name, created, suspended, concurrent, policy)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![id, org.tag.as_str(), org.name, created, org.suspended, org.concurrent, policy],
    )?;
    org_looks::add(sql, &org.name)
}

pub(super) fn suspend(sql: &Connection, org: OrgId, suspended: bool) -> Result<(), ChangeError> {
    change(sql, org, "UPDATE orgs SET suspended = ?2 WHERE id = ?1", suspended)
}

pub(super) fn limit(sql: &Connection, org: OrgId, concurrent: Option<u32>) -> Result<(), ChangeError> {
    change(sql, org, "UPDATE orgs SET concurrent = ?2 WHERE id = ?1", concurrent)
}

/// Sets the policy; the column of an empty one is `NULL`.
pub(super) fn set_policy(sql: &Connection, org: OrgId, policy: OrgPolicy) -> Result<(), ChangeError> {
    change(sql, org, "UPDATE orgs SET policy = ?2 WHERE id = ?1", policy.to_record())
}

fn change(sql: &Connection, org: OrgId, update: &str, value: impl rusqlite::ToSql) -> Result<(), ChangeError> {
    match execute(sql, update, params![org.to_string(), value])? {
        0 => Err(ChangeError::NoOrg(org)),
        _ => Ok(()),
    }
}
