//! The state file: its lock, its schema, and how it is opened.
//!
//! - Readable by its owner only: the directory is made with mode 0700, the file with 0600.
//! - A committed change survives the loss of power: write-ahead log, `synchronous=FULL`.
//! - One process has the file at a time: the one that holds the [`Lock`].
//! - A file of another version is refused and left untouched.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;

use platform::disk;

use super::open_error::OpenError;
use super::{budgets, federation, key_actors, key_policies, management_tokens, org_looks, preconditions};

/// Version of the schema, in `PRAGMA user_version`: the only one that is read. The numbers below it were those of
/// builds before the first release.
const VERSION: i64 = 8;

/// - Times are microseconds since the Unix epoch. `rowid` is the order of creation.
/// - `replaced` holds the digests that keys had before their rotations, so that the use of one is recognized, and none
///   is ever given again. A key with a time in `retired` is in no list any more.
/// - A block of `usage` has the usage of keys with consecutive rows (`usage_blocks`); `last_used` and `uses` of a row
///   count until the first write-back of the key. `key_creation` holds the bucket of each person that has created keys.
/// - A user is suspended since `suspended`, by the operator if `suspended_by_operator` is 1, and a service has a
///   `responsible` person: columns that are added when the file is opened ([`ADDED_COLUMNS`]), as is the `policy` of an
///   organization, JSON, the name of a `plan`, and an own `budget`.
/// - A user's `provider` vouches for the membership, as of `person` there; `withdrawn` is the time since which it does
///   not.
/// - A session's `record` is JSON as of its creation or its last change; `chosen` and `seen`, which change later, count
///   in place of those in it. `person` bounds the sessions of one person.
/// - A ticket's `source` is the address of the visitor who caused it; none for the operator's links. `secrets` are
///   random values of this installation, by name.
const SCHEMA: &str = "
CREATE TABLE orgs (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tag TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
  created INTEGER NOT NULL, suspended INTEGER NOT NULL, concurrent INTEGER CHECK (concurrent > 0)
) STRICT;
CREATE TABLE users (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, org TEXT NOT NULL, email TEXT NOT NULL,
  permissions TEXT NOT NULL, created INTEGER NOT NULL, removed INTEGER, provider TEXT, person TEXT, withdrawn INTEGER
) STRICT;
CREATE UNIQUE INDEX users_email ON users (org, email) WHERE removed IS NULL;
CREATE TABLE keys (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest BLOB NOT NULL UNIQUE, user TEXT NOT NULL,
  name TEXT NOT NULL, imported INTEGER NOT NULL, session_quota_key INTEGER NOT NULL, created INTEGER NOT NULL,
  rotated INTEGER, previous BLOB, previous_until INTEGER, revoked INTEGER, retired INTEGER,
  requests INTEGER CHECK (requests > 0), per INTEGER CHECK (per > 0), burst INTEGER CHECK (burst > 0),
  last_used INTEGER, uses INTEGER NOT NULL CHECK (uses >= 0)
) STRICT;
CREATE INDEX keys_active ON keys (user) WHERE revoked IS NULL;
CREATE INDEX keys_revoked ON keys (revoked) WHERE revoked IS NOT NULL AND retired IS NULL;
CREATE TABLE usage (block INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE replaced (digest BLOB PRIMARY KEY, key TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX replaced_key ON replaced (key);
CREATE TABLE key_creation (
  user TEXT PRIMARY KEY, level INTEGER NOT NULL, per INTEGER NOT NULL, at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sessions (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest BLOB NOT NULL UNIQUE, record TEXT NOT NULL,
  chosen TEXT NOT NULL, seen INTEGER NOT NULL, expires INTEGER NOT NULL, person TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_person ON sessions (person);
CREATE TABLE tickets (
  digest BLOB PRIMARY KEY, content BLOB NOT NULL, expires INTEGER NOT NULL, source TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX tickets_expires ON tickets (expires);
CREATE INDEX tickets_source ON tickets (source, expires);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

/// Columns that a file of an earlier gateway may lack: table, name and type of each.
const ADDED_COLUMNS: [(&str, &str, &str); 10] = [
    ("users", "suspended", "INTEGER"),
    ("users", "responsible", "TEXT"),
    ("orgs", "policy", "TEXT"),
    ("users", "suspended_by_operator", "INTEGER"),
    ("orgs", "plan", "TEXT"),
    ("users", "plan", "TEXT"),
    ("keys", "plan", "TEXT"),
    ("orgs", "budget", "TEXT"),
    ("users", "budget", "TEXT"),
    ("keys", "budget", "TEXT"),
];

/// Stands for the path of a database in memory.
pub(super) const IN_MEMORY: &str = ":memory:";

/// The exclusive right to a state file, released on drop.
///
/// - The lock belongs to the open file and not to the process: a process that was handed a copy of the descriptor has
///   it, too.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// None once it was left to another process.
    file: Mutex<Option<File>>,
}

impl Lock {
    /// Creates the directory when it is missing, and takes the lock: a file of its own beside the database.
    pub(super) fn acquire(state: &Path) -> Result<Self, OpenError> {
        let path = lock_path(state);
        let failed = |source| OpenError::Io { path: path.clone(), source };
        create_directory(state)?;
        let file = private_file().truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, file: Mutex::new(Some(file)) }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(state.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The lock that another process has handed over with its open file.
    pub(super) fn adopt(state: &Path, file: File) -> Result<Self, OpenError> {
        let path = lock_path(state);
        let failed = |source| OpenError::Io { path: path.clone(), source };
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let handed = file.metadata().map(identity).map_err(failed)?;
        let own = std::fs::metadata(&path).map(identity).map_err(failed)?;
        if handed != own {
            return Err(OpenError::Locked(state.to_owned()));
        }
        Ok(Self { path, file: Mutex::new(Some(file)) })
    }

    /// The lock of a database in memory, which no other process can open.
    pub(super) fn of_memory() -> Self {
        Self { path: IN_MEMORY.into(), file: Mutex::new(None) }
    }

    /// A copy of the open file, which holds the lock as well.
    pub(super) fn share(&self) -> Result<File, OpenError> {
        let shared = self.file().as_ref().map_or_else(|| Err(io::ErrorKind::NotFound.into()), File::try_clone);
        shared.map_err(|source| OpenError::Io { path: self.path.clone(), source })
    }

    /// Leaves the lock to the process that has a copy of the open file.
    pub(super) fn leave(&self) {
        // Closed and not unlocked: that would unlock the copy as well.
        drop(self.file().take());
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the descriptor alone would keep the lock while a child process that is being started still has a
        // copy.
        if let Some(Err(error)) = self.file().take().map(|file| file.unlock()) {
            tracing::debug!(%error, "cannot unlock the state file; closing it does");
        }
    }
}

fn lock_path(state: &Path) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

fn create_directory(state: &Path) -> Result<(), OpenError> {
    let Some(parent) = state.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    made.map_err(|source| OpenError::Directory { path: parent.to_owned(), source })
}

/// Options for a file that is created when missing, readable by its owner only.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

/// Opens the file, and creates it when it is missing. The lock must be held.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    // Created here: SQLite would create it with the mode that the process's umask leaves.
    let file =
        private_file().truncate(false).open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    // A start reads pages of every part of the file, each by itself: from a disk that takes longer than all else.
    disk::read_ahead(&file).unwrap_or_else(|error| tracing::debug!(%error, "cannot read the state file ahead"));
    // Before SQLite has locks of the file: this would release them.
    drop(file);
    prepare(path, Connection::open(path))
}

/// Opens a database in memory, which goes with its connection.
pub(super) fn open_in_memory() -> Result<Connection, OpenError> {
    prepare(Path::new(IN_MEMORY), Connection::open_in_memory())
}

/// Prepares an open database, and creates its tables when it is new.
fn prepare(path: &Path, opened: rusqlite::Result<Connection>) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::Sqlite { path: path.to_owned(), source };
    let connection = opened.map_err(sqlite)?;
    // The lock file keeps other gateways away: any other program that has the database locked is not waited for.
    connection.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sqlite)?;
    // Zero is that of a new file.
    if ![0, VERSION].contains(&version) {
        return Err(OpenError::Version { path: path.to_owned(), found: version, known: VERSION });
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(sqlite)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    // Savepoints of a large commit would go to a temporary file, on a disk that may be full.
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(sqlite)?;
    // Pages of a large commit that were spilled into the log would be written again, with all checksums behind them.
    connection.pragma_update(None, "cache_spill", false).map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    if version == 0 {
        let create = format!("BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;");
        connection.execute_batch(&create).map_err(sqlite)?;
    }
    key_actors::create_table(&connection).map_err(sqlite)?;
    key_policies::create_table(&connection).map_err(sqlite)?;
    management_tokens::create_table(&connection).map_err(sqlite)?;
    preconditions::create_table(&connection).map_err(sqlite)?;
    federation::create_tables(&connection).map_err(sqlite)?;
    budgets::create_table(&connection).map_err(sqlite)?;
    for (table, column, kind) in ADDED_COLUMNS {
        add_column(&connection, table, column, kind).map_err(sqlite)?;
    }
    org_looks::fill(&connection).map_err(sqlite)?;
    Ok(connection)
}

/// Adds a column to a table, if the file has none. The version of the schema stays: gateways of before read the file as
/// well, and know nothing of the column.
fn add_column(connection: &Connection, table: &str, column: &str, kind: &str) -> rusqlite::Result<()> {
    let has_column = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    if connection.query_row(has_column, [table, column], |row| row.get::<_, i64>(0))? == 0 {
        connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind};"))?;
    }
    Ok(())
}
