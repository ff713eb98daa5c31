//! A SQLite file as the source of a copy: all of its records, in batches, as of one moment.
//!
//! - The file is locked against writes for as long as the source exists. A service that runs on it
//!   fails its writes then.
//! - The file is not changed, and not created.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};

use super::SCHEMA_VERSION;
use crate::store::bound;
use crate::store::records::{OrgRecord, ROW_VERSION_COLUMNS, RowVersionRecord, SnapshotRecord, StoreTotals};

/// The file cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopySourceError {
    /// SQLite cannot read the file, or another process is writing it.
    #[error("cannot read the database")]
    Database(#[from] rusqlite::Error),
    /// The file was written by another release, or by another program.
    #[error(
        "the database has schema version {found}, and this release reads version {SCHEMA_VERSION}; use the release \
         that wrote it"
    )]
    SchemaVersion {
        /// The version in the file.
        found: i64,
    },
}

/// A locked file.
#[derive(Debug)]
pub struct CopySource {
    connection: Connection,
}

impl CopySource {
    /// Opens and locks a file.
    ///
    /// # Errors
    /// [`CopySourceError`].
    pub fn open(path: &Path) -> Result<Self, CopySourceError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(super::BUSY)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        match connection.query_row("PRAGMA user_version", [], |row| row.get(0))? {
            SCHEMA_VERSION => Ok(Self { connection }),
            found => Err(CopySourceError::SchemaVersion { found }),
        }
    }

    /// Counts everything, in time proportional to its size.
    ///
    /// # Errors
    /// [`CopySourceError`].
    pub fn totals(&self) -> Result<StoreTotals, CopySourceError> {
        let sql = "SELECT (SELECT count(*) FROM orgs), (SELECT coalesce(sum(version), 0) FROM orgs),
                          count(*) FILTER (WHERE version_ended IS NULL), count(version_ended),
                          coalesce(sum(length(CAST(name AS BLOB)) + length(CAST(sql AS BLOB))), 0),
                          (SELECT count(*) FROM snapshots)
                   FROM queries";
        Ok(self.connection.query_row(sql, [], |row| {
            Ok(StoreTotals {
                orgs: row.get(0)?,
                versions: row.get(1)?,
                current: row.get(2)?,
                ended: row.get(3)?,
                bytes: row.get(4)?,
                snapshots: row.get(5)?,
            })
        })?)
    }

    /// Reads at most `limit` organizations with a number above `after`.
    ///
    /// # Errors
    /// [`CopySourceError`].
    pub fn orgs(&self, after: i64, limit: usize) -> Result<Vec<OrgRecord>, CopySourceError> {
        let sql = "SELECT number, org, version FROM orgs WHERE number > ? ORDER BY number LIMIT ?";
        let read = |row: &Row<'_>| Ok(OrgRecord { number: row.get(0)?, org: row.get(1)?, version: row.get(2)? });
        self.read(sql, (after, bound(limit)), read)
    }

    /// Reads at most `limit` row versions after one of them, in the order of pages: a target that keeps this order has
    /// the rows of a page beside each other.
    ///
    /// # Errors
    /// [`CopySourceError`].
    pub fn row_versions(
        &self,
        after: Option<&RowVersionRecord>,
        limit: usize,
    ) -> Result<Vec<RowVersionRecord>, CopySourceError> {
        let sql = format!(
            "SELECT {ROW_VERSION_COLUMNS} FROM queries WHERE (org, position, version_created) > (?, ?, ?)
             ORDER BY org, position, version_created LIMIT ?"
        );
        let (org, position, created) = after.map_or((0, 0, 0), |row| (row.org, row.position, row.version_created));
        self.read(&sql, (org, position, created, bound(limit)), read_row_version)
    }

    /// Reads at most `limit` snapshots after one of them.
    ///
    /// # Errors
    /// [`CopySourceError`].
    pub fn snapshots(
        &self,
        after: Option<&SnapshotRecord>,
        limit: usize,
    ) -> Result<Vec<SnapshotRecord>, CopySourceError> {
        let sql = "SELECT org, version, expires_at FROM snapshots WHERE (org, version) > (?, ?)
                   ORDER BY org, version LIMIT ?";
        // Version 0 is that of an organization without writes, which has no snapshots.
        let (org, version) = after.map_or((0, -1), |snapshot| (snapshot.org, snapshot.version));
        let read =
            |row: &Row<'_>| Ok(SnapshotRecord { org: row.get(0)?, version: row.get(1)?, expires_at: row.get(2)? });
        self.read(sql, (org, version, bound(limit)), read)
    }

    fn read<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, CopySourceError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(parameters, read)?.collect::<Result<_, _>>()?;
        Ok(rows)
    }
}

/// Reads the columns of [`ROW_VERSION_COLUMNS`].
fn read_row_version(row: &Row<'_>) -> Result<RowVersionRecord, rusqlite::Error> {
    Ok(RowVersionRecord {
        org: row.get(0)?,
        position: row.get(1)?,
        version_created: row.get(2)?,
        version_ended: row.get(3)?,
        id: uuid::Uuid::from_bytes(row.get(4)?),
        name: row.get(5)?,
        sql: row.get(6)?,
        created_at: row.get(7)?,
        updated_at: row.get(8)?,
        created_by: row.get(9)?,
    })
}
