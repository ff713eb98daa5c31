//! The table of the records, as a sink.
//!
//! A batch is one transaction: it moves the journal's position from the end of the batch before, and adds the rows. When the
//! position is another one, another process has delivered meanwhile, and the batch is taken back. Its checkpoints are
//! inserted in the same transaction.
//!
//! Rows are copied straight into the table when all of them should be new, which costs the server least. When one of them is
//! there already, nothing of that has an effect: they are copied to a staging table, and inserted from there where they
//! are new.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement, Transaction};
use uuid::Uuid;

use super::checkpoint_table;
use super::copy_format::{self, COLUMNS};
use super::partitions::Partitions;
use super::schema::SCHEMA;
use crate::audit::{Record, StreamPosition};
use crate::postgresql::{self, Connector, Error, migrate};
use crate::shipping::batch::{Batch, OPEN_AFTER};
use crate::shipping::settings::PostgresqlSettings;
use crate::shipping::sink_error::SinkError;

/// Name of the connection in the server's views.
const APPLICATION: &str = "keygate-audit";
/// Staging table of a connection, and room to sort a batch in memory.
const STAGING: &str = "SET work_mem = '32MB';
    CREATE TEMPORARY TABLE incoming (LIKE keygate.records) ON COMMIT DELETE ROWS";

/// The table of the records, as a sink.
pub(in crate::shipping) struct RecordTable {
    connector: Connector,
    retention: Option<Duration>,
    connection: Option<Connection>,
}

struct Connection {
    client: Client,
    partitions: Partitions,
    insert: Statement,
}

impl RecordTable {
    /// Reads the TLS files; makes no connection.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub(in crate::shipping) fn open(settings: PostgresqlSettings) -> Result<Self, Error> {
        let PostgresqlSettings { database, retention } = settings;
        Ok(Self { connector: Connector::open(database)?, retention, connection: None })
    }

    pub(in crate::shipping) fn server(&self) -> String {
        self.connector.server()
    }

    /// Connects, migrates the schema, and returns the position of a journal.
    pub(in crate::shipping) async fn connect(
        &mut self,
        journal: Uuid,
        gateway: &str,
    ) -> Result<StreamPosition, SinkError> {
        self.connection = None;
        // Renewed certificates are used from the next connection on.
        if let Err(error) = self.connector.reload() {
            tracing::warn!(
                error = error.in_full(),
                "cannot reload the TLS files of an audit sink; using those of before"
            );
        }
        let mut client = self.connector.connect(APPLICATION).await?;
        let migrated = migrate(&mut client, &SCHEMA).await?;
        if migrated > 0 {
            tracing::info!(server = self.connector.server(), migrations = migrated, "migrated the audit schema");
        }
        let mut partitions = Partitions::new(self.retention);
        maintain(&mut client, &mut partitions, self.retention).await?;
        client.batch_execute(STAGING).await.map_err(Error::from)?;
        let insert = client.prepare(&insert_statement()).await.map_err(Error::from)?;
        let position = read_position(&client, journal, gateway).await?;
        self.connection = Some(Connection { client, partitions, insert });
        Ok(position)
    }

    pub(in crate::shipping) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(in crate::shipping) async fn deliver(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let connection = self.connection.as_mut().ok_or_else(|| not_connected(&self.connector))?;
        let Connection { client, partitions, insert } = connection;
        maintain(client, partitions, self.retention).await?;
        partitions.provide(client, &batch.records).await?;
        let mut transaction = client.transaction().await.map_err(Error::from)?;
        move_position(&transaction, batch).await?;
        let kept: Vec<&Record> = batch.records.iter().filter(|record| partitions.keeps(record)).collect();
        if !kept.is_empty() {
            add_rows(&mut transaction, insert, &kept).await?;
        }
        if !batch.checkpoints.is_empty() {
            checkpoint_table::insert(&transaction, batch.journal, &batch.checkpoints).await?;
        }
        Ok(transaction.commit().await.map_err(Error::from)?)
    }
}

impl std::fmt::Debug for RecordTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordTable({})", self.connector.server())
    }
}

fn not_connected(connector: &Connector) -> postgresql::Error {
    Error::Timeout { server: connector.server(), within: Duration::ZERO }
}

/// Makes and drops partitions, and removes old checkpoints, when it is time to.
async fn maintain(client: &mut Client, partitions: &mut Partitions, retention: Option<Duration>) -> Result<(), Error> {
    if !partitions.maintain(client).await? {
        return Ok(());
    }
    let Some(retention) = retention else { return Ok(()) };
    match checkpoint_table::expire(client, retention).await {
        Ok(removed) => tracing::debug!(removed, "removed old audit checkpoints (retention)"),
        // Of a user who may only add to the table, it stays as it is.
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot remove old audit checkpoints; trying again in an hour"
        ),
    }
    Ok(())
}

/// The insertion of what is new: a row that is there already changes only from `in_progress` to its outcome.
fn insert_statement() -> String {
    format!(
        "INSERT INTO keygate.records AS known ({COLUMNS})
         SELECT DISTINCT ON (id, time) {COLUMNS} FROM pg_temp.incoming ORDER BY id, time, outcome = 'in_progress'
         ON CONFLICT (id, time) DO UPDATE SET
             outcome = excluded.outcome, status = excluded.status, duration_us = excluded.duration_us,
             request_bytes = excluded.request_bytes, response_bytes = excluded.response_bytes
         WHERE known.outcome = 'in_progress' AND excluded.outcome <> 'in_progress'"
    )
}

async fn read_position(client: &Client, journal: Uuid, gateway: &str) -> Result<StreamPosition, Error> {
    let row = client
        .query_opt(
            "SELECT segment, \"offset\", line, last_line, checksum FROM keygate.journals
             WHERE journal = $1::text::uuid AND gateway = $2",
            &[&journal.to_string(), &gateway],
        )
        .await?;
    let Some(row) = row else { return Ok(StreamPosition::START) };
    let number = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    Ok(StreamPosition {
        segment: number(0),
        offset: number(1),
        line: number(2),
        last_line: number(3),
        checksum: u32::try_from(number(4)).unwrap_or(0),
    })
}

/// Moves the position from the end of the batch before to the end of this one. The row stays locked until the transaction
/// ends: two processes never deliver at once.
async fn move_position(transaction: &Transaction<'_>, batch: &Batch) -> Result<(), SinkError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let StreamPosition { segment, offset, line, last_line, checksum } = batch.to;
    #[allow(clippy::cast_precision_loss, reason = "microseconds of this century are exact in 53 bits")]
    let complete_until = batch.complete_until.0 as f64 / 1e6;
    let (journal, records) = (batch.journal.to_string(), number(batch.records.len() as u64));
    let moved = transaction
        .execute(
            "INSERT INTO keygate.journals AS known
                 (journal, gateway, segment, \"offset\", line, last_line, checksum, records, complete_until)
             VALUES ($1::text::uuid, $2, $3, $4, $5, $6, $7, $8, to_timestamp($9))
             ON CONFLICT (journal, gateway) DO UPDATE SET
                 segment = excluded.segment, \"offset\" = excluded.\"offset\", line = excluded.line,
                 last_line = excluded.last_line, checksum = excluded.checksum,
                 records = known.records + excluded.records, complete_until = excluded.complete_until,
                 updated_at = now()
             WHERE known.segment = $10 AND known.\"offset\" = $11",
            &[
                &journal,
                &batch.gateway,
                &number(segment),
                &number(offset),
                &number(line),
                &number(last_line),
                &i64::from(checksum),
                &records,
                &complete_until,
                &number(batch.from.segment),
                &number(batch.from.offset),
            ],
        )
        .await
        .map_err(Error::from)?;
    if moved == 1 { Ok(()) } else { Err(SinkError::Overtaken) }
}

/// Adds the rows of some records: those that are there already change nothing, or from `in_progress` to their outcomes.
async fn add_rows(transaction: &mut Transaction<'_>, insert: &Statement, records: &[&Record]) -> Result<(), Error> {
    // Delivered before, as in progress. Half of the time, because a use ends before its end is read.
    let may_be_known =
        |record: &&Record| record.duration_us.is_some_and(|us| u128::from(us) >= OPEN_AFTER.as_micros() / 2);
    let (known, new): (Vec<&Record>, Vec<&Record>) = records.iter().partition(|record| may_be_known(record));
    // Rows of an attempt that fails stay in the table's files until they are vacuumed: none is made that is likely to fail.
    let is_copied = new.is_empty() || copy_if_new(transaction, copy_format::encode(new.into_iter())).await?;
    let rest = if is_copied { &known } else { records };
    if rest.is_empty() {
        return Ok(());
    }
    copy(transaction, "pg_temp.incoming", copy_format::encode(rest.iter().copied())).await?;
    transaction.execute(insert, &[]).await?;
    Ok(())
}

/// Copies rows straight into the table. Returns false, without an effect, when one of them is there already.
async fn copy_if_new(transaction: &mut Transaction<'_>, rows: Bytes) -> Result<bool, Error> {
    let attempt = transaction.savepoint("straight").await?;
    match copy(&attempt, "keygate.records", rows).await {
        Ok(()) => attempt.commit().await?,
        Err(Error::Statement(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            attempt.rollback().await?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    Ok(true)
}

async fn copy(transaction: &Transaction<'_>, table: &str, rows: Bytes) -> Result<(), Error> {
    let statement = format!("COPY {table} ({COLUMNS}) FROM STDIN (FORMAT binary)");
    let mut sink = pin!(transaction.copy_in::<_, Bytes>(&statement).await?);
    sink.send(rows).await?;
    sink.finish().await?;
    Ok(())
}
