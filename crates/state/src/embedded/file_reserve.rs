//! Space that the state file keeps for itself, so that a revocation can be committed on a full disk.
//!
//! - The write-ahead log is allocated in advance, further than it grows between two checkpoints; it is kept when the
//!   file is closed, so that a gateway also starts on a full disk.
//! - The database has spare pages, so that neither a commit nor a checkpoint makes the file grow.
//! - While there are no new spare pages to be had, the first half of them is for changes that add records, a part of
//!   the rest for the usage of keys, and the last part for changes that withdraw something.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ffi};

use platform::disk;

/// Bytes allocated for the write-ahead log. It is checkpointed at 1000 pages, 4 MiB; as much again is for what is
/// written when that is delayed.
const LOG_SPACE: u64 = 8 << 20;
/// Spare pages of the database: 1 MiB.
const SPARE_PAGES: u64 = 256;
/// Spare pages that are added beyond these at once, at most: 2 MiB. A filler with them has room in the write-ahead log.
const MAX_GROWTH: u64 = 512;
/// Part of the file's pages that is added, up to [`MAX_GROWTH`]: a filler is written once for many commits.
const GROWTH: u64 = 16;
/// Spare pages that changes that add records leave.
const LEFT_BY_ADDITIONS: u64 = SPARE_PAGES / 2;
/// Spare pages that the usage of keys leaves.
const LEFT_BY_USAGE: u64 = SPARE_PAGES / 4;
/// Bytes that a filler may take beside its content: pages of the table and of the schema.
const FILLER_SLACK: u64 = 64 << 10;
/// Pause between two attempts to add spare pages that have failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The purpose of a write, by which the spare pages that it may use are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// A change that adds a record.
    Addition,
    /// The usage of keys.
    Usage,
}

/// The space that a state file keeps.
#[derive(Debug)]
pub(super) struct FileReserve {
    log: PathBuf,
    /// Pages of the database that are in the file itself, not only in the write-ahead log.
    stored_pages: u64,
    /// No attempt to add spare pages before this time: the last one has failed.
    retry_at: Option<Instant>,
}

impl FileReserve {
    /// Allocates the space of an open state file, as far as there is any.
    pub(super) fn new(path: &Path, connection: &Connection) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let mut reserve = Self { log: PathBuf::from(log), stored_pages: 0, retry_at: None };
        reserve.allocate_log();
        if let Err(error) = reserve.replenish(connection) {
            tracing::warn!(%error, path = %path.display(),
                "cannot keep space in the state file for a full disk; trying again");
        }
        reserve
    }

    /// No space: that of a database in memory, which has neither a file nor a log.
    pub(super) fn of_memory() -> Self {
        Self { log: PathBuf::new(), stored_pages: 0, retry_at: None }
    }

    fn is_of_memory(&self) -> bool {
        self.log.as_os_str().is_empty()
    }

    /// Checks that there are spare pages for a demand, and adds some when there are too few.
    ///
    /// # Errors
    /// When there are too few, and none can be added: the disk is full.
    pub(super) fn check(&mut self, connection: &Connection, demand: Demand) -> rusqlite::Result<()> {
        if self.is_of_memory() {
            return Ok(());
        }
        let failed = match self.retry_at.filter(|retry_at| Instant::now() < *retry_at) {
            Some(_) => Some(disk_full()),
            None => self.replenish(connection).err(),
        };
        let Some(error) = failed else { return Ok(()) };
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY_DELAY);
        let left = if demand == Demand::Addition { LEFT_BY_ADDITIONS } else { LEFT_BY_USAGE };
        // Pages that are only in the log cannot be checkpointed on a full disk, and the log must not grow for good.
        let is_stored = pages(connection, "page_count")? <= self.stored_pages;
        if is_stored && pages(connection, "freelist_count")? > left { Ok(()) } else { Err(error) }
    }

    /// Moves all pages from the log into the file, and adds spare pages when there are too few.
    fn replenish(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.retry_at = None;
        // Before anything is added: pages that a full disk keeps in the log would be joined by as many with each
        // attempt, until the log has no room for a revocation.
        if pages(connection, "page_count")? > self.stored_pages {
            self.checkpoint(connection)?;
        }
        if pages(connection, "freelist_count")? < SPARE_PAGES {
            // Pages become spare when a table is dropped. They are written before, because SQLite leaves a hole in the
            // file in place of a spare page that never had content.
            let filler = self.choose_filler(connection)?;
            connection
                .execute_batch(&format!(
                    "DROP TABLE IF EXISTS filler; BEGIN IMMEDIATE; CREATE TABLE filler (content BLOB);
                 INSERT INTO filler VALUES (zeroblob({filler})); COMMIT"
                ))
                .inspect_err(|_| drop(connection.execute_batch("ROLLBACK")))?;
            self.checkpoint(connection)?;
            connection.execute_batch("DROP TABLE filler")?;
        }
        Ok(())
    }

    /// The bytes of the next filler: pages for a while of growth, or without those on a disk that has no room for them.
    ///
    /// Fails when the file system has less free space than the pages of a filler take. Written all the same, they would
    /// stay in the log, and [`FileReserve::check`] would refuse the spare pages that are left.
    fn choose_filler(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let page = pages(connection, "page_size")?;
        let growth = (pages(connection, "page_count")? / GROWTH).min(MAX_GROWTH);
        let space = disk::volume_space(&self.log).map_or(u64::MAX, |space| space.free);
        let fillers = [SPARE_PAGES + 1 + growth, SPARE_PAGES + 1].map(|count| count * page);
        fillers.into_iter().find(|filler| space >= filler + FILLER_SLACK).ok_or_else(disk_full)
    }

    fn checkpoint(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let count = pages(connection, "page_count")?;
        let busy: bool = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(0))?;
        if !busy {
            self.stored_pages = count;
        }
        Ok(())
    }

    /// Allocates the write-ahead log, which exists while the database is open.
    fn allocate_log(&self) {
        let allocated =
            OpenOptions::new().write(true).open(&self.log).and_then(|log| disk::allocate(&log, 0, LOG_SPACE));
        match allocated {
            Ok(true) => {}
            Ok(false) => tracing::info!(path = %self.log.display(),
                "the file system cannot allocate in advance: on a full disk, changes of the state may fail"),
            // A log that is allocated already is not allocated again on some file systems when the disk is full.
            Err(error) if disk::is_out_of_space(&error) => {
                tracing::debug!(%error, "cannot allocate the write-ahead log")
            }
            Err(error) => tracing::warn!(%error, path = %self.log.display(), "cannot allocate the write-ahead log"),
        }
    }

    /// Closes the database, and keeps the space of its write-ahead log, which is empty then.
    pub(super) fn close(&self, connection: Connection) {
        if self.is_of_memory() {
            return;
        }
        let emptied = connection
            // SQLite removes the log when it closes a database, unless it leaves out the checkpoint.
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .and_then(|_| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        if let Err(error) = emptied {
            tracing::debug!(%error, "the write-ahead log of the state keeps its content; the next start reads it");
        }
        drop(connection);
        self.allocate_log();
    }
}

fn disk_full() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None)
}

/// A number of pages, or their size, by the name of its pragma.
fn pages(connection: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

#[cfg(test)]
mod tests {
    use super::super::state_file;
    use super::*;

    #[test]
    fn spare_pages_are_in_the_file_and_are_replenished() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let connection = state_file::open(&path).unwrap();
        let mut reserve = FileReserve::new(&path, &connection);
        let stored = |count| std::fs::metadata(&path).unwrap().len() >= count * 4096;
        assert!(pages(&connection, "freelist_count").unwrap() >= SPARE_PAGES);
        assert!(stored(pages(&connection, "page_count").unwrap()));
        connection.execute_batch("CREATE TABLE growth (x); INSERT INTO growth VALUES (zeroblob(500000))").unwrap();
        assert!(pages(&connection, "freelist_count").unwrap() < SPARE_PAGES);
        reserve.check(&connection, Demand::Addition).unwrap();
        assert!(pages(&connection, "freelist_count").unwrap() >= SPARE_PAGES);
        assert!(stored(pages(&connection, "page_count").unwrap()));
        reserve.close(connection);
        assert_eq!(std::fs::metadata(directory.path().join("state.db-wal")).unwrap().len(), 0);
        // Nothing is lost with the log.
        std::fs::remove_file(directory.path().join("state.db-wal")).unwrap();
        let connection = state_file::open(&path).unwrap();
        assert_eq!(connection.query_row("SELECT count(*) FROM growth", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }

    #[test]
    fn large_file_gets_more_spare_pages_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let connection = state_file::open(&path).unwrap();
        let mut reserve = FileReserve::new(&path, &connection);
        let spare = || pages(&connection, "freelist_count").unwrap();
        assert!(spare() < SPARE_PAGES + MAX_GROWTH / 2);
        let growth = MAX_GROWTH * GROWTH * 4096;
        connection
            .execute_batch(&format!("CREATE TABLE growth (x); INSERT INTO growth VALUES (zeroblob({growth}))"))
            .unwrap();
        reserve.check(&connection, Demand::Addition).unwrap();
        assert!(spare() >= SPARE_PAGES + MAX_GROWTH, "{}", spare());
    }
}
