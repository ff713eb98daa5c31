//! Organizations as SQL.

use rusqlite::{Connection, params};

use super::changes::require_org;
use super::org_looks;
use super::sql::{execute, integer};
use super::standing::read_org;
use crate::{ChangeError, Org, OrgPatch};
use domain::identity::OrgId;
use domain::key::policy::Field;

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

/// Changes an organization. The column of an empty policy is `NULL`.
pub(super) fn update(sql: &Connection, org: OrgId, patch: &OrgPatch) -> Result<(), ChangeError> {
    require_org(sql, org)?;
    let OrgPatch { suspended, concurrent, policy } = patch;
    if let Some(suspended) = suspended {
        change(sql, org, "UPDATE orgs SET suspended = ?2 WHERE id = ?1", suspended)?;
    }
    let limit = |concurrent| change(sql, org, "UPDATE orgs SET concurrent = ?2 WHERE id = ?1", concurrent);
    match *concurrent {
        Field::Keep => {}
        Field::Clear => limit(None)?,
        Field::Set(concurrent) => limit(Some(concurrent))?,
    }
    if policy.is_empty() {
        return Ok(());
    }
    let policy = policy.apply_to(read_org(sql, org)?.policy)?;
    change(sql, org, "UPDATE orgs SET policy = ?2 WHERE id = ?1", policy.to_record())
}

fn change(sql: &Connection, org: OrgId, update: &str, value: impl rusqlite::ToSql) -> Result<(), ChangeError> {
    execute(sql, update, params![org.to_string(), value]).map(drop)
}
