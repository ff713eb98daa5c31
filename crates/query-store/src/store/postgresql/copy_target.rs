//! A PostgreSQL database as the target of a copy: empty before, and complete or still empty after.
//!
//! All records are written in one transaction. A copy that is interrupted leaves nothing, and is simply begun again.

use tokio_postgres::{Client, Transaction};

use super::SCHEMA;
use super::rows::CURRENT;
use crate::store::records::{OrgRecord, ROW_VERSION_COLUMNS, RowVersionRecord, SnapshotRecord, StoreTotals};
use platform::postgresql::{self, Connector};

/// The database cannot be copied to.
#[derive(Debug, thiserror::Error)]
pub enum CopyTargetError {
    /// There is no connection, or the tables cannot be created.
    #[error("cannot use the database")]
    Database(#[from] postgresql::Error),
    /// A statement failed.
    #[error("the database rejected a statement")]
    Statement(#[from] tokio_postgres::Error),
    /// There are records already.
    #[error("the database has queries already; a copy needs an empty one")]
    NotEmpty,
}

/// A connection to the target, with its tables.
pub struct CopyTarget {
    client: Client,
}

/// The transaction of a copy.
pub struct CopyTransaction<'a> {
    transaction: Transaction<'a>,
}

impl CopyTarget {
    /// Connects, and creates or migrates the tables.
    ///
    /// # Errors
    /// [`CopyTargetError::Database`].
    pub async fn open(settings: postgresql::Settings) -> Result<Self, CopyTargetError> {
        let mut client = Connector::open(settings)?.connect("query-store copy").await?;
        postgresql::migrate(&mut client, &SCHEMA).await?;
        // A large copy takes longer than any limit that is meant for requests.
        client.batch_execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0").await?;
        Ok(Self { client })
    }

    /// Begins the transaction. Query-stores that use the database can read meanwhile, and wait to write.
    ///
    /// # Errors
    /// [`CopyTargetError::NotEmpty`], [`CopyTargetError::Statement`].
    pub async fn begin(&mut self) -> Result<CopyTransaction<'_>, CopyTargetError> {
        let transaction = self.client.transaction().await?;
        let tables = "query_store.orgs, query_store.queries, query_store.snapshots";
        transaction.batch_execute(&format!("LOCK TABLE {tables} IN EXCLUSIVE MODE")).await?;
        let filled = "SELECT EXISTS (SELECT FROM query_store.orgs) OR EXISTS (SELECT FROM query_store.queries)
                      OR EXISTS (SELECT FROM query_store.snapshots)";
        if transaction.query_one(filled, &[]).await?.try_get(0)? {
            return Err(CopyTargetError::NotEmpty);
        }
        Ok(CopyTransaction { transaction })
    }

    /// Brings the statistics of the tables up to date, after the copy.
    ///
    /// # Errors
    /// [`CopyTargetError::Statement`].
    pub async fn analyze(&self) -> Result<(), CopyTargetError> {
        let tables = "query_store.orgs, query_store.queries, query_store.snapshots";
        Ok(self.client.batch_execute(&format!("ANALYZE {tables}")).await?)
    }
}

impl CopyTransaction<'_> {
    /// Writes organizations.
    ///
    /// # Errors
    /// [`CopyTargetError::Statement`].
    pub async fn write_orgs(&self, records: &[OrgRecord]) -> Result<(), CopyTargetError> {
        let sql = "INSERT INTO query_store.orgs (number, org, version)
                   SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[])";
        let numbers = column(records, |record| record.number);
        let orgs = column(records, |record| record.org.as_str());
        let versions = column(records, |record| record.version);
        self.transaction.execute(sql, &[&numbers, &orgs, &versions]).await?;
        Ok(())
    }

    /// Writes row versions.
    ///
    /// # Errors
    /// [`CopyTargetError::Statement`].
    pub async fn write_row_versions(&self, records: &[RowVersionRecord]) -> Result<(), CopyTargetError> {
        let sql = format!(
            "INSERT INTO query_store.queries ({ROW_VERSION_COLUMNS})
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]::uuid[],
                                  $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::text[])"
        );
        self.transaction
            .execute(
                &sql,
                &[
                    &column(records, |record| record.org),
                    &column(records, |record| record.position),
                    &column(records, |record| record.version_created),
                    &column(records, |record| record.version_ended.unwrap_or(CURRENT)),
                    &column(records, |record| record.id.to_string()),
                    &column(records, |record| record.name.as_str()),
                    &column(records, |record| record.sql.as_str()),
                    &column(records, |record| record.created_at),
                    &column(records, |record| record.updated_at),
                    &column(records, |record| record.created_by.as_str()),
                ],
            )
            .await?;
        Ok(())
    }

    /// Writes snapshots.
    ///
    /// # Errors
    /// [`CopyTargetError::Statement`].
    pub async fn write_snapshots(&self, records: &[SnapshotRecord]) -> Result<(), CopyTargetError> {
        let sql = "INSERT INTO query_store.snapshots (org, version, expires_at)
                   SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])";
        let orgs = column(records, |record| record.org);
        let versions = column(records, |record| record.version);
        let expiries = column(records, |record| record.expires_at);
        self.transaction.execute(sql, &[&orgs, &versions, &expiries]).await?;
        Ok(())
    }

    /// Counts what the transaction has written.
    ///
    /// # Errors
    /// [`CopyTargetError::Statement`].
    pub async fn totals(&self) -> Result<StoreTotals, CopyTargetError> {
        let sql = "SELECT (SELECT count(*) FROM query_store.orgs),
                          (SELECT coalesce(sum(version), 0)::bigint FROM query_store.orgs),
                          count(*) FILTER (WHERE version_ended = $1), count(*) FILTER (WHERE version_ended < $1),
                          coalesce(sum(octet_length(name) + octet_length(sql)), 0)::bigint,
                          (SELECT count(*) FROM query_store.snapshots)
                   FROM query_store.queries";
        let row = self.transaction.query_one(sql, &[&CURRENT]).await?;
        Ok(StoreTotals {
            orgs: row.try_get(0)?,
            versions: row.try_get(1)?,
            current: row.try_get(2)?,
            ended: row.try_get(3)?,
            bytes: row.try_get(4)?,
            snapshots: row.try_get(5)?,
        })
    }

    /// Commits the copy.
    ///
    /// # Errors
    /// [`CopyTargetError::Statement`].
    pub async fn commit(self) -> Result<(), CopyTargetError> {
        // The numbers were given by the source: the next organization gets a higher one.
        let next =
            "SELECT setval(pg_get_serial_sequence('query_store.orgs', 'number'), coalesce(max(number), 0) + 1, false)
                    FROM query_store.orgs";
        self.transaction.query_one(next, &[]).await?;
        let history = "UPDATE query_store.orgs AS o SET history = coalesce((
                           SELECT sum(query_store.history_cost(q))::bigint FROM query_store.queries AS q
                           WHERE q.org = o.number AND q.version_ended < $1), 0)";
        self.transaction.execute(history, &[&CURRENT]).await?;
        Ok(self.transaction.commit().await?)
    }
}

fn column<'a, R, T>(records: &'a [R], field: impl FnMut(&'a R) -> T) -> Vec<T> {
    records.iter().map(field).collect()
}
