//! Policies of keys in the state file, in a table of their own: the row of a key without a policy is as before.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::sql::{execute, for_each_row, text};
use crate::ChangeError;
use domain::key::KeyId;
use domain::key::policy::KeyPolicy;

/// The table, made when the file is opened. The version of the schema stays: gateways of before read the file as well,
/// and know of no policies.
///
/// - `policy` is JSON, never that of an empty policy.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS key_policies (key TEXT PRIMARY KEY, policy TEXT NOT NULL) STRICT, WITHOUT ROWID;
";

/// Makes the table, if the file has none.
pub(super) fn create_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)
}

/// Reads the policies of all keys.
pub(super) fn for_each(connection: &Connection, mut take: impl FnMut(KeyId, KeyPolicy)) -> rusqlite::Result<()> {
    for_each_row(connection, "SELECT key, policy FROM key_policies", |row| {
        take(text(row, "key")?, parse(&row.get::<_, String>("policy")?)?);
        Ok(())
    })
}

/// The policy of a key; none when it has none.
pub(super) fn read(connection: &Connection, key: KeyId) -> rusqlite::Result<Option<Box<KeyPolicy>>> {
    let mut query = connection.prepare_cached("SELECT policy FROM key_policies WHERE key = ?1")?;
    let found: Option<String> = query.query_row([key.as_str()], |row| row.get(0)).optional()?;
    found.map(|policy| parse(&policy).map(Box::new)).transpose()
}

/// Sets the policy of a key.
pub(super) fn write(sql: &Connection, key: KeyId, policy: Option<&KeyPolicy>) -> Result<(), ChangeError> {
    let Some(policy) = policy else {
        return execute(sql, "DELETE FROM key_policies WHERE key = ?1", [key.as_str()]).map(drop);
    };
    let insert = "INSERT OR REPLACE INTO key_policies VALUES (?1, ?2)";
    execute(sql, insert, params![key.as_str(), policy.to_json()]).map(drop)
}

/// A policy that cannot be read in full is an error, so that no key is wider than its policy.
pub(super) fn parse(text: &str) -> rusqlite::Result<KeyPolicy> {
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error)))
}
