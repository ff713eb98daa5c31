//! Garbage collection: deletes row versions that no snapshot can see, one batch at a time.
//!
//! - One collector works at a time, by an advisory lock. A batch that finds another one at work ends its pass: the
//!   other one does the same.
//! - The registration of a snapshot decides, not its expiry, as in the SQLite engine. A batch sees every registration
//!   that was committed before the row version was ended, and so every one whose snapshot sees the row (`pages`).
//! - A deleted row version leaves its organization's history in the same statement.
//! - An expired registration that a page is extending meanwhile is not deleted: its row is locked and then read again.

use deadpool_postgres::{Client, Transaction};

use super::error::PostgresqlError;
use crate::store::{GcBatch, GcProgress, StoreStats, bound, stored_time};
use domain::clock::Micros;

/// Advisory lock of the collector at work: arbitrary, and the same in every release.
const LOCK: i64 = 7_163_889_502;

/// Deletes up to `batch` expired snapshots. When no more of these are left, examines the next `batch` ended row
/// versions and deletes those that no snapshot sees.
pub(in crate::store) async fn collect(
    client: &mut Client,
    from: GcProgress,
    batch: usize,
    now: Micros,
) -> Result<GcBatch, PostgresqlError> {
    let transaction = client.transaction().await?;
    let lock = transaction.prepare_cached("SELECT pg_try_advisory_xact_lock($1)").await?;
    if !transaction.query_one(&lock, &[&LOCK]).await?.try_get(0)? {
        return Ok(GcBatch { snapshots: 0, removed: 0, next: None });
    }
    let snapshots = delete_expired_snapshots(&transaction, batch, now).await?;
    // Expired snapshots that are left would still keep row versions: they go first. In a transaction of
    // their own, because a first page locks its organization before the registration, and collecting rows
    // locks organizations, too.
    let done = if snapshots > 0 {
        GcBatch { snapshots, removed: 0, next: Some(from) }
    } else {
        delete_unseen(&transaction, from, batch).await?
    };
    transaction.commit().await?;
    Ok(done)
}

/// Counts the rows of the store.
pub(in crate::store) async fn stats(client: &Client) -> Result<StoreStats, PostgresqlError> {
    let sql = "SELECT (SELECT count(*) FROM query_store.queries WHERE version_ended = 9223372036854775807),
                      (SELECT count(*) FROM query_store.queries WHERE version_ended < 9223372036854775807),
                      (SELECT count(*) FROM query_store.snapshots)";
    let row = client.query_one(sql, &[]).await?;
    let count = |column: usize| -> Result<u64, PostgresqlError> {
        u64::try_from(row.try_get::<_, i64>(column)?).map_err(PostgresqlError::unreadable)
    };
    Ok(StoreStats { current: count(0)?, ended: count(1)?, snapshots: count(2)? })
}

async fn delete_expired_snapshots(
    transaction: &Transaction<'_>,
    batch: usize,
    now: Micros,
) -> Result<usize, PostgresqlError> {
    // The rows are locked before they are chosen, so that one that was extended meanwhile is not.
    let sql = "WITH expired AS MATERIALIZED (
                   SELECT e.org, e.version FROM query_store.snapshots AS e WHERE e.expires_at <= $1
                   ORDER BY e.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
               DELETE FROM query_store.snapshots AS s USING expired AS e
               WHERE s.org = e.org AND s.version = e.version AND s.expires_at <= $1";
    let statement = transaction.prepare_cached(sql).await?;
    let deleted = transaction.execute(&statement, &[&stored_time(now), &bound(batch)]).await?;
    Ok(usize::try_from(deleted).unwrap_or(usize::MAX))
}

async fn delete_unseen(
    transaction: &Transaction<'_>,
    from: GcProgress,
    batch: usize,
) -> Result<GcBatch, PostgresqlError> {
    let sql = "WITH ended AS MATERIALIZED (
                   SELECT r.org, r.position, r.version_created, r.version_ended FROM query_store.queries AS r
                   WHERE r.version_ended < 9223372036854775807 AND (r.org, r.version_ended) > ($1::bigint, $2::bigint)
                   ORDER BY r.org, r.version_ended LIMIT $3::bigint),
               removed AS (
                   DELETE FROM query_store.queries AS q USING ended AS e
                   WHERE q.org = e.org AND q.position = e.position
                     AND q.version_created = e.version_created AND q.version_ended = e.version_ended
                     AND NOT EXISTS (SELECT FROM query_store.snapshots AS s WHERE s.org = e.org
                                     AND s.version >= e.version_created AND s.version < e.version_ended)
                   RETURNING q.org, query_store.history_cost(q) AS cost),
               freed AS (
                   UPDATE query_store.orgs AS o SET history = o.history - f.bytes
                   FROM (SELECT r.org, sum(r.cost)::bigint AS bytes FROM removed AS r GROUP BY r.org) AS f
                   WHERE o.number = f.org)
               SELECT org, version_ended, (SELECT count(*) FROM removed), (SELECT count(*) FROM ended)
               FROM ended ORDER BY org DESC, version_ended DESC LIMIT 1";
    let statement = transaction.prepare_cached(sql).await?;
    let last = transaction.query_opt(&statement, &[&from.0, &from.1, &bound(batch)]).await?;
    let Some(last) = last else { return Ok(GcBatch { snapshots: 0, removed: 0, next: None }) };
    let removed = usize::try_from(last.try_get::<_, i64>(2)?).map_err(PostgresqlError::unreadable)?;
    let examined: i64 = last.try_get(3)?;
    let next = GcProgress(last.try_get(0)?, last.try_get(1)?);
    Ok(GcBatch { snapshots: 0, removed, next: (examined == bound(batch)).then_some(next) })
}
