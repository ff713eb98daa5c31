//! Looks of the names of organizations: no organization is created whose name looks like that of another one.
//!
//! The table is temporary: it is filled when the file is opened, and belongs to the connection that writes. So the file
//! has nothing that depends on the version of Unicode, and imported organizations that look the same stay.

use rusqlite::{Connection, params};

use super::sql::{execute, exists};
use crate::{ChangeError, LOOK_TAKEN};
use domain::names;

/// Makes the table, with the organizations of the file.
pub(super) fn fill(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TEMP TABLE org_looks (look TEXT NOT NULL); CREATE INDEX temp.org_looks_look ON org_looks (look);",
    )?;
    let mut orgs = connection.prepare("SELECT name FROM orgs")?;
    let mut rows = orgs.query([])?;
    let mut insert = connection.prepare("INSERT INTO org_looks VALUES (?1)")?;
    while let Some(row) = rows.next()? {
        insert.execute([names::look(row.get_ref(0)?.as_str()?)])?;
    }
    Ok(())
}

/// Requires a name that looks like that of no other organization.
pub(super) fn require_new(sql: &Connection, name: &str) -> Result<(), ChangeError> {
    let same_name = exists(sql, "SELECT 1 FROM orgs WHERE name = ?1", [name])?;
    let same_look = exists(sql, "SELECT 1 FROM org_looks WHERE look = ?1", [names::look(name)])?;
    match (same_name, same_look) {
        (true, _) => Err(ChangeError::Taken("name")),
        (false, true) => Err(ChangeError::Taken(LOOK_TAKEN)),
        (false, false) => Ok(()),
    }
}

/// Adds the look of a new organization's name.
pub(super) fn add(sql: &Connection, name: &str) -> Result<(), ChangeError> {
    execute(sql, "INSERT INTO org_looks VALUES (?1)", params![names::look(name)]).map(drop)
}
