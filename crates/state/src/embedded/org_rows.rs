//! Organizations as SQL.

use rusqlite::{Connection, params};

use super::org_looks;
use super::sql::{execute, integer};
use crate::{ChangeError, Org};
use domain::plan_name::PlanName;

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
        "INSERT INTO orgs (id, tag, name, created, suspended, concurrent, policy, plan)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![id, org.tag.as_str(), org.name, created, org.suspended, org.concurrent, policy, plan(org)],
    )?;
    org_looks::add(sql, &org.name)
}

/// Writes what can change of an organization. The column of an empty policy is `NULL`.
pub(super) fn update(sql: &Connection, org: &Org) -> Result<(), ChangeError> {
    let update = "UPDATE orgs SET suspended = ?2, concurrent = ?3, policy = ?4, plan = ?5 WHERE id = ?1";
    let parameters = params![org.id.to_string(), org.suspended, org.concurrent, org.policy.to_record(), plan(org)];
    execute(sql, update, parameters).map(drop)
}

fn plan(org: &Org) -> Option<&str> {
    org.plan.as_ref().map(PlanName::as_str)
}
