//! The index's file: a SQLite database of one version, made anew when it is of another.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::FILE;

/// Counted up whenever the tables or their meaning change. A program of before there were versions finds no column
/// `first` or `last` in `block`, and makes its own index anew, so what one version covers was never covered by another.
const VERSION: i64 = 1;
/// - `block`: which lines it is of, and when its first and last uses began.
/// - `covered`: one row, up to where the journal is indexed; it stays when the blocks before it go.
/// - `member`: the keys, users and organizations with uses in a block, and whether one of them was refused.
/// - `hour`: requests and refusals of a key. Hours are numbered from the epoch.
/// - `last`: the line of the last admitted use of a key, and, once it has ended elsewhere, that of its end.
const SCHEMA: &str = "
    BEGIN;
    CREATE TABLE block (
        id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
        earliest INTEGER, latest INTEGER);
    CREATE TABLE covered (one INTEGER PRIMARY KEY CHECK (one = 1), segment INTEGER NOT NULL, end INTEGER NOT NULL);
    CREATE TABLE member (
        id TEXT NOT NULL, block INTEGER NOT NULL, refused INTEGER NOT NULL, PRIMARY KEY (id, block)) WITHOUT ROWID;
    CREATE TABLE hour (
        org BLOB NOT NULL, key TEXT NOT NULL, hour INTEGER NOT NULL,
        requests INTEGER NOT NULL, refusals INTEGER NOT NULL, PRIMARY KEY (org, key, hour)) WITHOUT ROWID;
    CREATE TABLE last (
        org BLOB NOT NULL, key TEXT NOT NULL, use BLOB NOT NULL, begun BLOB NOT NULL, ended BLOB,
        PRIMARY KEY (org, key)) WITHOUT ROWID;
    PRAGMA user_version = 1;
    COMMIT;
";

/// Opens the index for writing; one that is new or of another version is made first.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let database = connect(path)?;
    if version(&database)? == VERSION {
        return Ok(database);
    }
    drop(database);
    make(path)
}

/// Makes the index anew, empty.
pub(crate) fn make(path: &Path) -> rusqlite::Result<Connection> {
    discard(path);
    let database = connect(path)?;
    database.execute_batch(SCHEMA)?;
    Ok(database)
}

/// SQLite gives its own files the mode of the first, so that one is made here. When it cannot be, SQLite says why.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let made = File::options().append(true).create(true).mode(0o600).open(path);
    made.map_or_else(|error| tracing::debug!(%error, "the index cannot be made"), drop);
    let database = Connection::open(path)?;
    database.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")?;
    Ok(database)
}

/// Removes the index.
pub(crate) fn discard(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let removed = std::fs::remove_file(name);
        removed.unwrap_or_else(|error| tracing::debug!(%error, "nothing of the old index to remove"));
    }
}

/// Opens the index for reading; none when it is of another version.
pub(crate) fn open_for_reading(directory: &Path) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(directory.join(FILE), flags)?;
    let known = version(&database)? == VERSION;
    Ok(known.then_some(database))
}

fn version(database: &Connection) -> rusqlite::Result<i64> {
    database.query_row("PRAGMA user_version", [], |row| row.get(0))
}
