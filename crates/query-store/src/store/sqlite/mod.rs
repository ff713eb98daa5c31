//! The store in one SQLite file. Each operation is a call of `rows` or `garbage` in a transaction.
//!
//! - One thread writes, in the order of arrival (`database_thread`); some threads read (`reader_threads`), so a long
//!   read of one organization delays neither the writes nor the reads of others. Callers wait asynchronously.
//! - A write is durable when it returns: WAL with `synchronous=FULL`, and the result is sent after the commit.
//! - A read sees what was committed before it began. A page whose snapshot must be registered is read again and
//!   registered in one transaction of the writing thread. No transaction stays open between pages.
//! - Another process may use the file at the same time (`query-store seed` beside a running service): every transaction
//!   takes the write lock when it begins.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::store::history::HistoryFull;
use crate::store::{Bookmark, HistoryLimit, Page, SnapshotExpiry, StoreError};
use domain::identity::OrgId;

mod database_thread;
mod reader_threads;
pub(super) mod rows;
pub(super) mod garbage;

use database_thread::DatabaseThread;
use reader_threads::ReaderThreads;

/// Time to wait for a transaction of another process. Its transactions are as short as those of this one,
/// so a longer one hangs.
const BUSY: Duration = Duration::from_secs(5);
/// Threads that read: enough that a long read of one organization leaves others a thread.
const READERS: usize = 4;
/// Number of prepared statements that are cached: more than there are.
const STATEMENTS: usize = 32;
/// Version of the schema below, in `user_version`. A file of another version is not changed.
const SCHEMA_VERSION: i64 = 2;

/// Tables and their invariants:
/// - a version ends at most one row version (`queries_by_end` is unique), and so does it create at most one;
/// - a query has at most one current row version (`queries_by_id` is unique);
/// - `position` is the `version_created` of a query's first row version;
/// - `orgs.history` is the sum of `history_cost!` over the ended row versions of the organization;
/// - `queries_current` has the current row versions only, so that a first page passes no ended one.
const SCHEMA: &str = "
    CREATE TABLE orgs (
        number  INTEGER PRIMARY KEY,
        org     TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        history INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE queries (
        org             INTEGER NOT NULL REFERENCES orgs(number),
        id              BLOB NOT NULL,
        version_created INTEGER NOT NULL,
        version_ended   INTEGER,
        name            TEXT NOT NULL,
        sql             TEXT NOT NULL,
        created_at      INTEGER NOT NULL,
        updated_at      INTEGER NOT NULL,
        created_by      TEXT NOT NULL,
        position        INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX queries_by_position ON queries (org, position, version_created, version_ended);
    CREATE UNIQUE INDEX queries_current ON queries (org, position) WHERE version_ended IS NULL;
    CREATE UNIQUE INDEX queries_by_id ON queries (org, id) WHERE version_ended IS NULL;
    CREATE UNIQUE INDEX queries_by_end ON queries (org, version_ended) WHERE version_ended IS NOT NULL;
    CREATE TABLE snapshots (
        org        INTEGER NOT NULL REFERENCES orgs(number),
        version    INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (org, version)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX snapshots_by_expiry ON snapshots (expires_at);
";

/// SQL of the bytes that a row version counts in its organization's history ([`super::history`]).
macro_rules! history_cost {
    () => {
        "octet_length(name) + octet_length(sql) + 512"
    };
}
use history_cost;

/// A store in one SQLite file. Dropping it completes the accepted operations, then closes the file.
#[derive(Debug)]
pub struct SqliteStore {
    /// They end first: the last connection tidies the files up.
    readers: ReaderThreads,
    thread: DatabaseThread,
    /// Bound of each organization's history.
    history: HistoryLimit,
}

/// The file could not be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory could not be created.
    #[error("cannot create the directory of the database")]
    Directory(#[source] std::io::Error),
    /// The file could not be created or opened.
    #[error("cannot open the file of the database")]
    File(#[source] std::io::Error),
    /// SQLite could not open the file.
    #[error("cannot open the database")]
    Database(#[from] rusqlite::Error),
    /// The thread of the database could not be started.
    #[error("cannot start the database's thread")]
    Thread(#[source] std::io::Error),
    /// The file was written by another release.
    #[error(
        "the database has schema version {found}, and this release reads version {SCHEMA_VERSION}; use the release \
         that wrote it, or another file"
    )]
    SchemaVersion {
        /// The version in the file.
        found: i64,
    },
}

impl SqliteStore {
    /// Opens the file; creates it (mode 0600), with its directory, when there is none. Its history
    /// has the default limit.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(OpenError::Directory)?;
        }
        // SQLite gives its -wal and -shm files the mode of the database file.
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(OpenError::File)?;
        let mut connection = Connection::open(path)?;
        prepare(&mut connection)?;
        let readers = (0..READERS).map(|_| open_reader(path)).collect::<Result<Vec<_>, _>>()?;
        let readers = ReaderThreads::start(readers).map_err(OpenError::Thread)?;
        let thread = DatabaseThread::start(connection).map_err(OpenError::Thread)?;
        Ok(Self { readers, thread, history: HistoryLimit::default() })
    }

    /// Sets the bound of each organization's history.
    #[must_use]
    pub fn with_history_limit(self, history: HistoryLimit) -> Self {
        Self { history, ..self }
    }

    /// Runs an operation in a transaction of the writing thread, and returns its result once that is committed.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.thread.run(work).await
    }

    /// Runs an operation, as [`SqliteStore::write`] does, within the bound of the history.
    pub(super) async fn write_within<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Connection, HistoryLimit) -> Result<Result<T, HistoryFull>, rusqlite::Error> + Send + 'static,
    {
        let history = self.history;
        let done = self.write(move |connection| work(connection, history)).await?;
        done.map_err(|HistoryFull| StoreError::HistoryFull)
    }

    /// Runs an operation in a transaction of a reading thread.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.run(work).await
    }

    pub(super) async fn page(
        &self,
        org: OrgId,
        after: Option<Bookmark>,
        limit: usize,
        expiry: SnapshotExpiry,
    ) -> Result<Option<Page>, StoreError> {
        let read = self.read(move |connection| rows::read_page(connection, org, after, limit, expiry)).await?;
        if read.unregistered.is_none() {
            return Ok(read.page);
        }
        // Rows that were read may have been collected by the time at which its snapshot is registered.
        self.write_within(move |connection, history| rows::page(connection, org, after, limit, expiry, history)).await
    }
}

/// Configures the connection, and creates the tables when the file is new.
fn prepare(connection: &mut Connection) -> Result<(), OpenError> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match found {
        SCHEMA_VERSION => {}
        // A new file.
        0 => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        found => return Err(OpenError::SchemaVersion { found }),
    }
    Ok(transaction.commit()?)
}

/// Opens a connection that reads.
fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch("PRAGMA query_only = ON;")?;
    Ok(connection)
}
