//! Rows of the records: how they get into their table.
//!
//! Rows are copied straight into the table when all of them should be new, which costs the server least. When one
//! of them is there already, nothing of that has an effect: they are copied to a staging table, and inserted from
//! there where they are new.

use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Statement, Transaction};

use super::copy_format::{self, COLUMNS};
use crate::audit::Record;
use crate::shipping::batch::OPEN_AFTER;
use platform::postgresql::Error;

/// Staging table of a connection, and room to sort a batch in memory.
pub(super) const STAGING: &str = "SET work_mem = '32MB';
    CREATE TEMPORARY TABLE incoming (LIKE keygate.records) ON COMMIT DELETE ROWS";

/// The insertion of what is new: a row that is there already changes only from `in_progress` to its outcome.
pub(super) fn insert_statement() -> String {
    format!(
        "INSERT INTO keygate.records AS known ({COLUMNS})
         SELECT DISTINCT ON (id, time) {COLUMNS} FROM pg_temp.incoming ORDER BY id, time, outcome = 'in_progress'
         ON CONFLICT (id, time) DO UPDATE SET
             outcome = excluded.outcome, status = excluded.status, duration_us = excluded.duration_us,
             request_bytes = excluded.request_bytes, response_bytes = excluded.response_bytes, cost = excluded.cost
         WHERE known.outcome = 'in_progress' AND excluded.outcome <> 'in_progress'"
    )
}

/// Adds the rows of some records: those that are there already change nothing, or from `in_progress` to their outcomes.
pub(super) async fn add_rows(
    transaction: &mut Transaction<'_>,
    insert: &Statement,
    records: &[&Record],
) -> Result<(), Error> {
    // Delivered before, as in progress. Half of the time, because a use ends before its end is read.
    let may_be_known =
        |record: &&Record| record.duration_us.is_some_and(|us| u128::from(us) >= OPEN_AFTER.as_micros() / 2);
    let (known, new): (Vec<&Record>, Vec<&Record>) = records.iter().partition(|record| may_be_known(record));
    // Rows of an attempt that fails stay in the table's files until they are vacuumed: none is made
    // that is likely to fail.
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
