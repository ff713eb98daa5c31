//! Migrations of schemas: forwards only, one program at a time.

use tokio_postgres::Client;

use super::error::Error;

/// One step of a schema: SQL statements, and never changed once released.
#[derive(Clone, Copy, Debug)]
pub struct Migration(pub &'static str);

/// A schema with its migrations, the oldest first. Version `n` is the schema after the first `n` of them.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// Its name in the database: a plain identifier.
    pub name: &'static str,
    /// Number of the advisory lock under which it is migrated; the same in every program and version.
    pub lock: i64,
    /// The migrations.
    pub migrations: &'static [Migration],
}

/// Brings a schema to the version of this program, and returns the number of migrations that were made. All are one
/// transaction under an advisory lock: of programs that start together, one migrates and the others wait.
///
/// # Errors
/// [`Error::NewerSchema`] when a newer program has migrated it, [`Error::Statement`] when a migration fails; nothing is
/// changed then.
pub async fn migrate(client: &mut Client, schema: &Schema) -> Result<usize, Error> {
    if is_migrated(client, schema).await? {
        return Ok(0);
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&schema.lock]).await?;
    let name = schema.name;
    let table = format!(
        "CREATE SCHEMA IF NOT EXISTS {name};
         CREATE TABLE IF NOT EXISTS {name}.migrations (
             version integer PRIMARY KEY,
             at timestamptz NOT NULL DEFAULT now()
         )"
    );
    transaction.batch_execute(&table).await?;
    let newest = format!("SELECT coalesce(max(version), 0) FROM {name}.migrations");
    let found: i32 = transaction.query_one(&newest, &[]).await?.get(0);
    let known = newest_known(schema);
    check_known(schema, found)?;
    let insert = format!("INSERT INTO {name}.migrations (version) VALUES ($1)");
    for version in found + 1..=known {
        let Migration(statements) = schema.migrations[usize::try_from(version - 1).unwrap_or_default()];
        transaction.batch_execute(statements).await?;
        transaction.execute(&insert, &[&version]).await?;
    }
    transaction.commit().await?;
    Ok(usize::try_from(known - found).unwrap_or_default())
}

/// Returns whether a schema has the version of this program. It takes no lock, and needs no right to create anything.
async fn is_migrated(client: &Client, schema: &Schema) -> Result<bool, Error> {
    let name = schema.name;
    let table = format!("{name}.migrations");
    if client.query_one("SELECT to_regclass($1) IS NULL", &[&table]).await?.get(0) {
        return Ok(false);
    }
    let newest = format!("SELECT coalesce(max(version), 0) FROM {table}");
    let found: i32 = client.query_one(&newest, &[]).await?.get(0);
    check_known(schema, found)?;
    Ok(found == newest_known(schema))
}

fn newest_known(schema: &Schema) -> i32 {
    i32::try_from(schema.migrations.len()).unwrap_or(i32::MAX)
}

fn check_known(schema: &Schema, found: i32) -> Result<(), Error> {
    let known = newest_known(schema);
    if found > known { Err(Error::NewerSchema { schema: schema.name, found, known }) } else { Ok(()) }
}
