//! The table of the records, as a sink.
//!
//! A batch is one transaction: it moves the journal's position from the end of the batch before, and adds the rows.
//! When the position is another one, another process has delivered meanwhile, and the batch is taken back. Its
//! checkpoints are inserted in the same transaction.
//!
//! A batch with a row that the database refuses is taken back. Its rows are then added in parts, each in a
//! transaction of its own, until those that are refused are alone and set aside ([`Isolation`]); the batch is
//! delivered again without them.

use std::time::Duration;

use rustc_hash::FxHashSet;
use tokio_postgres::{Client, Statement, Transaction};
use uuid::Uuid;

use super::checkpoint_table;
use super::partitions::Partitions;
use super::rows::{STAGING, add_rows, insert_statement};
use super::schema::SCHEMA;
use crate::audit::{Record, StreamPosition};
use crate::shipping::batch::Batch;
use crate::shipping::isolation::{Isolation, SentPart};
use crate::shipping::message::Message;
use crate::shipping::rejected_file::RejectedFile;
use crate::shipping::settings::PostgresqlSettings;
use crate::shipping::sink_error::SinkError;
use platform::postgresql::{self, Connector, Error, migrate};

/// Name of the connection in the server's views.
const APPLICATION: &str = "keygate-audit";
/// The table of the records, as a sink.
pub(crate) struct RecordTable {
    connector: Connector,
    retention: Option<Duration>,
    connection: Option<Connection>,
    isolation: Isolation,
    /// Records of the present batch that were set aside.
    refused: FxHashSet<Uuid>,
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
    pub(crate) fn open(settings: PostgresqlSettings) -> Result<Self, Error> {
        let PostgresqlSettings { database, retention } = settings;
        Ok(Self {
            connector: Connector::open(database)?,
            retention,
            connection: None,
            isolation: Isolation::default(),
            refused: FxHashSet::default(),
        })
    }

    pub(crate) fn server(&self) -> String {
        self.connector.server()
    }

    /// Connects, migrates the schema, and returns the position of a journal.
    pub(crate) async fn connect(&mut self, journal: Uuid, gateway: &str) -> Result<StreamPosition, SinkError> {
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
        let partitions = Partitions::new(self.retention);
        client.batch_execute(STAGING).await.map_err(Error::from)?;
        let insert = client.prepare(&insert_statement()).await.map_err(Error::from)?;
        let position = read_position(&client, journal, gateway).await?;
        self.connection = Some(Connection { client, partitions, insert });
        Ok(position)
    }

    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(crate) async fn deliver(&mut self, batch: &Batch, rejected: &mut RejectedFile) -> Result<(), SinkError> {
        let Self { connector, connection, isolation, refused, .. } = self;
        let connection = connection.as_mut().ok_or_else(|| not_connected(connector))?;
        maintain(&mut connection.client, &mut connection.partitions, &batch.records).await?;
        connection.partitions.provide(&mut connection.client, &batch.records).await?;
        let delivered = connection.deliver(batch, refused).await;
        if delivered.as_ref().is_err_and(SinkError::is_refusal) {
            connection.isolate(batch, isolation, refused, rejected).await?;
            connection.deliver(batch, refused).await?;
        } else {
            delivered?;
        }
        let is_taken = |record: &&Record| connection.partitions.keeps(record) && !refused.contains(&record.id);
        isolation.note_taken(batch.records.iter().rfind(is_taken));
        note_too_old(connector, batch, &connection.partitions, rejected);
        refused.clear();
        Ok(())
    }
}

impl Connection {
    /// Delivers a batch in one transaction, without the records that were set aside, and those that are too old.
    async fn deliver(&mut self, batch: &Batch, refused: &FxHashSet<Uuid>) -> Result<(), SinkError> {
        let Self { client, partitions, insert } = self;
        let mut transaction = client.transaction().await.map_err(Error::from)?;
        move_position(&transaction, batch).await?;
        let is_kept = |record: &&Record| partitions.keeps(record) && !refused.contains(&record.id);
        let kept: Vec<&Record> = batch.records.iter().filter(is_kept).collect();
        if !kept.is_empty() {
            add_rows(&mut transaction, insert, &kept).await?;
        }
        if !batch.checkpoints.is_empty() {
            checkpoint_table::insert(&transaction, batch.journal, &batch.checkpoints).await?;
        }
        Ok(transaction.commit().await.map_err(Error::from)?)
    }

    /// Adds the rows of a batch in parts, and sets aside what is refused alone. It goes on where a failure has ended
    /// it: what was set aside is in `refused`, and a row that is there already changes nothing.
    async fn isolate(
        &mut self,
        batch: &Batch,
        isolation: &mut Isolation,
        refused: &mut FxHashSet<Uuid>,
        rejected: &mut RejectedFile,
    ) -> Result<(), SinkError> {
        let Self { client, partitions, insert } = self;
        isolation.keep_known_if(|known| partitions.keeps(known));
        let is_kept = |record: &&Record| partitions.keeps(record) && !refused.contains(&record.id);
        let kept: Vec<Record> = batch.records.iter().filter(is_kept).cloned().collect();
        let add = async |part: Message<'_>| {
            let rows: Vec<&Record> = part.records().iter().collect();
            let mut transaction = client.transaction().await.map_err(Error::from)?;
            add_rows(&mut transaction, insert, &rows).await?;
            Ok(transaction.commit().await.map_err(Error::from)?)
        };
        let note = |sent: SentPart<'_>| {
            if sent.is_rejected {
                refused.extend(sent.part.records().iter().map(|record| record.id));
            }
        };
        isolation.send(Message::Records(&kept), &kept, rejected, add, note).await
    }
}

/// Counts and logs the records of a batch that retention has refused.
fn note_too_old(connector: &Connector, batch: &Batch, partitions: &Partitions, rejected: &mut RejectedFile) {
    let too_old = batch.records.iter().filter(|record| !partitions.keeps(record));
    let count = too_old.clone().count();
    let oldest = too_old.map(|record| record.time).min();
    if let Some(oldest) = oldest {
        rejected.count_too_old(count as u64);
        tracing::warn!(
            records = count,
            %oldest,
            server = connector.server(),
            "records of the audit are older than the retention of the sink, and not in the database"
        );
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
async fn maintain(client: &mut Client, partitions: &mut Partitions, in_hand: &[Record]) -> Result<(), Error> {
    let Some(first_kept) = partitions.maintain(client, in_hand).await? else { return Ok(()) };
    match checkpoint_table::expire(client, first_kept).await {
        Ok(removed) => tracing::debug!(removed, "removed old audit checkpoints (retention)"),
        // Of a user who may only add to the table, it stays as it is.
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot remove old audit checkpoints; trying again in an hour"
        ),
    }
    Ok(())
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

/// Moves the position from the end of the batch before to the end of this one. The row stays locked until the
/// transaction ends: two processes never deliver at once.
async fn move_position(transaction: &Transaction<'_>, batch: &Batch) -> Result<(), SinkError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let StreamPosition { segment, offset, line, last_line, checksum } = batch.to;
    #[allow(clippy::cast_precision_loss, reason = "microseconds of this century are exact in 53 bits")]
    let complete_until = batch.complete_until.0 as f64 / 1e6;
    let journal = batch.journal.to_string();
    let records = number(batch.records.len() as u64);
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
