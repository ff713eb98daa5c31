//! Garbage collection: deletes row versions that no snapshot can see, one batch at a time.
//!
//! The registration of a snapshot decides, not its expiry: a row version is deleted only when no registered snapshot
//! sees it, and a page is served only from a registered snapshot. Both read the table `snapshots` within their
//! transactions, so no page misses a row, in whichever order they run.

use rusqlite::{Connection, OptionalExtension as _, Result, named_params};

use super::history_cost;
use crate::store::{GcBatch, GcProgress, StoreStats, bound, stored_time};
use domain::clock::Micros;

/// Deletes up to `batch` expired snapshots. When no more of these are left, examines the next `batch` ended row
/// versions and deletes those that no snapshot sees.
pub(in crate::store) fn collect(db: &Connection, from: GcProgress, batch: usize, now: Micros) -> Result<GcBatch> {
    let snapshots = delete_expired_snapshots(db, batch, now)?;
    // Expired snapshots that are left would still keep row versions: they go first.
    if snapshots == batch {
        return Ok(GcBatch { snapshots, removed: 0, next: Some(from) });
    }
    let ended = ended_after(db, from, batch)?;
    let mut removed = 0;
    for row in &ended {
        removed += delete_unseen(db, *row)?;
    }
    let next = ended.last().filter(|_| ended.len() == batch).map(|row| row.end);
    Ok(GcBatch { snapshots, removed, next })
}

/// Counts the rows of the store.
pub(in crate::store) fn stats(db: &Connection) -> Result<StoreStats> {
    let count = |sql: &str| -> Result<u64> {
        let count: i64 = db.query_row(sql, [], |row| row.get(0))?;
        Ok(u64::try_from(count).expect("a count is not negative"))
    };
    Ok(StoreStats {
        current: count("SELECT count(*) FROM queries WHERE version_ended IS NULL")?,
        ended: count("SELECT count(*) FROM queries WHERE version_ended IS NOT NULL")?,
        snapshots: count("SELECT count(*) FROM snapshots")?,
    })
}

/// An ended row version, by its row and by its place in the order of the pass.
#[derive(Clone, Copy)]
struct EndedRow {
    rowid: i64,
    end: GcProgress,
}

fn delete_expired_snapshots(db: &Connection, batch: usize, now: Micros) -> Result<usize> {
    let sql = "DELETE FROM snapshots WHERE (org, version) IN
               (SELECT org, version FROM snapshots WHERE expires_at <= :now ORDER BY expires_at LIMIT :batch)";
    db.prepare_cached(sql)?.execute(named_params! { ":now": stored_time(now), ":batch": bound(batch) })
}

fn ended_after(db: &Connection, from: GcProgress, batch: usize) -> Result<Vec<EndedRow>> {
    let sql = "SELECT rowid, org, version_ended FROM queries INDEXED BY queries_by_end
               WHERE version_ended IS NOT NULL AND (org, version_ended) > (:org, :ended)
               ORDER BY org, version_ended LIMIT :batch";
    let parameters = named_params! { ":org": from.0, ":ended": from.1, ":batch": bound(batch) };
    let read = |row: &rusqlite::Row<'_>| Ok(EndedRow { rowid: row.get(0)?, end: GcProgress(row.get(1)?, row.get(2)?) });
    db.prepare_cached(sql)?.query_map(parameters, read)?.collect()
}

/// Deletes a row version unless a snapshot sees it, and takes it out of its organization's history. Returns the
/// number of rows deleted.
fn delete_unseen(db: &Connection, row: EndedRow) -> Result<usize> {
    let sql = concat!(
        "DELETE FROM queries WHERE rowid = ? AND NOT EXISTS
         (SELECT 1 FROM snapshots WHERE snapshots.org = queries.org
          AND snapshots.version >= queries.version_created AND snapshots.version < queries.version_ended)
         RETURNING org, ",
        history_cost!()
    );
    let deleted: Option<(i64, i64)> =
        db.prepare_cached(sql)?.query_row([row.rowid], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((org, cost)) = deleted else { return Ok(0) };
    db.prepare_cached("UPDATE orgs SET history = history - ? WHERE number = ?")?.execute((cost, org))
}
