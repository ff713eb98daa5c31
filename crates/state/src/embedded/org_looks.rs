//! Looks of the names of organizations: no organization is created whose name looks like that of another one, or
//! differs from it in case alone.
//!
//! The table is temporary: it is filled when the file is opened, and belongs to the connection that writes. So the file
//! has nothing that depends on the version of Unicode, and imported organizations that look the same stay.

use rusqlite::Connection;

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
        for look in names::looks(row.get_ref(0)?.as_str()?) {
            insert.execute([look])?;
        }
    }
    Ok(())
}

/// Requires a name that looks like that of no other organization.
pub(super) fn require_new(sql: &Connection, name: &str) -> Result<(), ChangeError> {
    let same_name = exists(sql, "SELECT 1 FROM orgs WHERE name = ?1", [name])?;
    let same_look = exists(sql, "SELECT 1 FROM org_looks WHERE look IN (?1, ?2)", names::looks(name))?;
    match (same_name, same_look) {
        (true, _) => Err(ChangeError::Taken("name")),
        (false, true) => Err(ChangeError::Taken(LOOK_TAKEN)),
        (false, false) => Ok(()),
    }
}

/// Adds the looks of a new organization's name.
pub(super) fn add(sql: &Connection, name: &str) -> Result<(), ChangeError> {
    execute(sql, "INSERT INTO org_looks VALUES (?1), (?2)", names::looks(name)).map(drop)
}
