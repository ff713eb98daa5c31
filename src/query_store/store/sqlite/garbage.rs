//! Collection of row versions that nobody can see any more, one batch at a time.
//!
//! What is decisive is the presence of a snapshot's registration, not its time: a row version goes only when no
//! registered snapshot sees it, and a page is served only from a registered snapshot. Both read the table `snapshots`
//! within their transactions, so whichever comes first, no page misses a row.

use rusqlite::{Connection, Result, named_params};

use super::rows::stored;
use crate::clock::Micros;
use crate::query_store::store::{GcBatch, GcProgress, StoreStats};

/// Forgets `batch` snapshots whose time is over. Only when no more are left, looks at the next `batch` ended row versions
/// and removes those that no snapshot sees.
pub(super) fn collect(db: &Connection, from: GcProgress, batch: usize, now: Micros) -> Result<GcBatch> {
    let snapshots = forget_snapshots(db, batch, now)?;
    if snapshots == batch {
        return Ok(GcBatch { snapshots, removed: 0, next: Some(from) });
    }
    let ended = ended_after(db, from, batch)?;
    let mut removed = 0;
    for row in &ended {
        removed += remove_unseen(db, *row)?;
    }
    let next = ended.last().filter(|_| ended.len() == batch).map(|row| row.end);
    Ok(GcBatch { snapshots, removed, next })
}

/// Counts everything.
pub(super) fn stats(db: &Connection) -> Result<StoreStats> {
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

/// An ended row version: where it is in the file, and in the order of the pass.
#[derive(Clone, Copy)]
struct Ended {
    rowid: i64,
    end: GcProgress,
}

fn forget_snapshots(db: &Connection, batch: usize, now: Micros) -> Result<usize> {
    let sql = "DELETE FROM snapshots WHERE (org, version) IN
               (SELECT org, version FROM snapshots WHERE expires_at <= :now ORDER BY expires_at LIMIT :batch)";
    db.prepare_cached(sql)?.execute(named_params! { ":now": stored(now), ":batch": bound(batch) })
}

fn ended_after(db: &Connection, from: GcProgress, batch: usize) -> Result<Vec<Ended>> {
    let sql = "SELECT rowid, org, version_ended FROM queries INDEXED BY queries_by_end
               WHERE version_ended IS NOT NULL AND (org, version_ended) > (:org, :ended)
               ORDER BY org, version_ended LIMIT :batch";
    let parameters = named_params! { ":org": from.0, ":ended": from.1, ":batch": bound(batch) };
    let read = |row: &rusqlite::Row<'_>| Ok(Ended { rowid: row.get(0)?, end: GcProgress(row.get(1)?, row.get(2)?) });
    db.prepare_cached(sql)?.query_map(parameters, read)?.collect()
}

fn remove_unseen(db: &Connection, row: Ended) -> Result<usize> {
    let sql = "DELETE FROM queries WHERE rowid = ? AND NOT EXISTS
               (SELECT 1 FROM snapshots WHERE snapshots.org = queries.org
                AND snapshots.version >= queries.version_created AND snapshots.version < queries.version_ended)";
    db.prepare_cached(sql)?.execute([row.rowid])
}

fn bound(batch: usize) -> i64 {
    i64::try_from(batch).unwrap_or(i64::MAX)
}
