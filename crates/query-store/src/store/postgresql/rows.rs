//! Row versions: writing, and reading the current ones. Each function is one statement.

use deadpool_postgres::Client;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::PostgresqlError;
use crate::query::{Query, QueryDraft};
use crate::store::{HistoryLimit, Version, bound, stored_time};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};

/// Columns of [`QueryRow::read`], in its order, of a table named `q`.
macro_rules! columns {
    () => {
        "q.position, q.id::text, q.sql, q.name, q.created_at, q.updated_at, q.created_by"
    };
}
pub(super) use columns;

/// A query and its position in the order of lists.
pub(super) struct QueryRow {
    pub(super) position: Version,
    pub(super) query: Query,
}

/// Stores a new query.
pub(in crate::store) async fn create(
    client: &Client,
    org: OrgId,
    user: UserId,
    draft: &QueryDraft,
    now: Micros,
) -> Result<Query, PostgresqlError> {
    let sql = "WITH org AS (SELECT org_number, last_version FROM query_store.take_versions($1, 1))
               INSERT INTO query_store.queries
               (org, position, version_created, id, name, sql, created_at, updated_at, created_by)
               SELECT org_number, last_version, last_version,
                      $2::text::uuid, $3::text, $4::text, $5::bigint, $5::bigint, $6::text
               FROM org";
    let query = Query::new(user, draft, now);
    let statement = client.prepare_cached(sql).await?;
    let org = org.to_string();
    let id = query.id.to_string();
    let user = user.to_string();
    client.execute(&statement, &[&org, &id, &query.name, &query.sql, &stored_time(now), &user]).await?;
    Ok(query)
}

/// Stores new queries in this order.
pub(in crate::store) async fn import(
    client: &Client,
    org: OrgId,
    user: UserId,
    drafts: &[(QueryDraft, Micros)],
) -> Result<(), PostgresqlError> {
    if drafts.is_empty() {
        return Ok(());
    }
    let sql = "WITH org AS (SELECT org_number, last_version - $2::bigint AS base
                           FROM query_store.take_versions($1, $2::bigint))
               INSERT INTO query_store.queries
               (org, position, version_created, id, name, sql, created_at, updated_at, created_by)
               SELECT org_number, base + n, base + n, d.id::uuid, d.name, d.sql, d.created_at, d.created_at, $7::text
               FROM org, unnest($3::text[], $4::text[], $5::text[], $6::bigint[])
                    WITH ORDINALITY AS d (id, name, sql, created_at, n)";
    let statement = client.prepare_cached(sql).await?;
    let count = bound(drafts.len());
    let ids: Vec<String> = drafts.iter().map(|_| Uuid::now_v7().to_string()).collect();
    let names: Vec<&str> = drafts.iter().map(|(draft, _)| draft.name()).collect();
    let texts: Vec<&str> = drafts.iter().map(|(draft, _)| draft.sql()).collect();
    let times: Vec<i64> = drafts.iter().map(|(_, created)| stored_time(*created)).collect();
    let org = org.to_string();
    let user = user.to_string();
    client.execute(&statement, &[&org, &count, &ids, &names, &texts, &times, &user]).await?;
    Ok(())
}

/// Reads the current version of a query.
pub(in crate::store) async fn read(client: &Client, org: OrgId, id: Uuid) -> Result<Option<Query>, PostgresqlError> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM query_store.orgs AS o JOIN query_store.queries AS q ON q.org = o.number
          WHERE o.org = $1 AND q.id = $2::text::uuid AND q.version_ended = 9223372036854775807"
    );
    let statement = client.prepare_cached(sql).await?;
    let row = client.query_opt(&statement, &[&org.to_string(), &id.to_string()]).await?;
    row.map(|row| Ok(QueryRow::read(&row, 0)?.query)).transpose()
}

/// Ends the current version of a query and creates the next one, at the same position.
pub(in crate::store) async fn replace(
    client: &Client,
    org: OrgId,
    id: Uuid,
    draft: &QueryDraft,
    now: Micros,
    history: HistoryLimit,
) -> Result<Option<Query>, PostgresqlError> {
    let sql =
        concat!("SELECT ", columns!(), " FROM query_store.replace_query($1, $2::text::uuid, $3, $4, $5, $6) AS q");
    let statement = client.prepare_cached(sql).await?;
    let org = org.to_string();
    let id = id.to_string();
    let now = stored_time(now);
    let history = history.bytes();
    let row = client.query_opt(&statement, &[&org, &id, &draft.name(), &draft.sql(), &now, &history]).await?;
    row.map(|row| Ok(QueryRow::read(&row, 0)?.query)).transpose()
}

/// Ends the current version of a query.
pub(in crate::store) async fn delete(
    client: &Client,
    org: OrgId,
    id: Uuid,
    history: HistoryLimit,
) -> Result<bool, PostgresqlError> {
    let statement = client.prepare_cached("SELECT query_store.delete_query($1, $2::text::uuid, $3)").await?;
    let row = client.query_one(&statement, &[&org.to_string(), &id.to_string(), &history.bytes()]).await?;
    Ok(row.try_get(0)?)
}

/// Checks that the database answers and accepts writes.
pub(in crate::store) async fn check_writable(
    client: &Client,
    server: impl FnOnce() -> String,
) -> Result<(), PostgresqlError> {
    let statement = client.prepare_cached("SELECT current_setting('transaction_read_only') = 'on'").await?;
    let is_read_only: bool = client.query_one(&statement, &[]).await?.try_get(0)?;
    if is_read_only { Err(PostgresqlError::ReadOnly { server: server() }) } else { Ok(()) }
}

impl QueryRow {
    /// Reads the columns of [`columns`], which begin at `first`.
    pub(super) fn read(row: &Row, first: usize) -> Result<Self, PostgresqlError> {
        let id: &str = row.try_get(first + 1)?;
        let created_by: &str = row.try_get(first + 6)?;
        let query = Query {
            id: id.parse().map_err(PostgresqlError::unreadable)?,
            sql: row.try_get(first + 2)?,
            name: row.try_get(first + 3)?,
            created_at: read_time(row.try_get(first + 4)?)?,
            updated_at: read_time(row.try_get(first + 5)?)?,
            created_by: created_by.parse().map_err(PostgresqlError::unreadable)?,
        };
        Ok(Self { position: Version(row.try_get(first)?), query })
    }
}

/// Reads a time from its form in the database.
pub(super) fn read_time(micros: i64) -> Result<Micros, PostgresqlError> {
    u64::try_from(micros).map(Micros).map_err(PostgresqlError::unreadable)
}
