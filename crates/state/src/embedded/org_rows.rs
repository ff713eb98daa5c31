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
        "INSERT INTO orgs (id, tag, name, created, suspended, concurrent, policy, plan, budget)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![id, org.tag.as_str(), org.name, created, org.suspended, org.concurrent, policy, plan(org), budget(org)],
    )?;
    org_looks::add(sql, &org.name)
}

/// Writes what can change of an organization. The column of an empty policy is `NULL`.
pub(super) fn update(sql: &Connection, org: &Org) -> Result<(), ChangeError> {
    let update = "UPDATE orgs SET suspended = ?2, concurrent = ?3, policy = ?4, plan = ?5, budget = ?6 WHERE id = ?1";
    let (id, policy) = (org.id.to_string(), org.policy.to_record());
    let parameters = params![id, org.suspended, org.concurrent, policy, plan(org), budget(org)];
    execute(sql, update, parameters).map(drop)
}

fn plan(org: &Org) -> Option<&str> {
    org.plan.as_ref().map(PlanName::as_str)
}

fn budget(org: &Org) -> Option<String> {
    org.budget.map(|budget| budget.to_string())
}
