//! The database file of the index: its schema, its opening, and the point up to which it covers the journal.
//!
//! It is written by one thread of the process that has the journal. Readers, also in other processes, see what the last
//! transaction has left, and wait for no lock (a write-ahead log).

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, OptionalExtension as _, ffi};

use crate::audit::format::segment::Point;
use domain::clock::Micros;

/// Name of the file in the journal's directory.
pub(crate) const FILE: &str = "index.db";

/// Version of the schema, counted up whenever the tables or their meaning change. An index of another version is built
/// again.
const VERSION: i64 = 7;
/// - `segment`, `part`: the parts of a segment in which ids occur ([`super::segment_parts`]).
/// - `covered`: one row, the point up to which the usage of the journal is added up, the time from which on it has all
///   of it, and the number of damaged lines that it lacks. They stay when segments are removed.
/// - `usage`: sums of an organization in an hour, of the keys of one part or of the routes ([`super::usage_rows`]), and
///   their checksum. Hours are numbered from the epoch; those of a day that is over are together in its first one.
/// - `last`: the line of the last admitted or refused use of a key and, once it has ended in a line of its own, that
///   line; its id while it is open.
const SCHEMA: &str = "
    BEGIN;
    CREATE TABLE segment (
        number INTEGER PRIMARY KEY, length INTEGER NOT NULL, part INTEGER NOT NULL, times BLOB NOT NULL,
        crc INTEGER NOT NULL);
    CREATE TABLE part (
        place INTEGER PRIMARY KEY, next INTEGER NOT NULL, sets BLOB NOT NULL, crc INTEGER NOT NULL);
    CREATE TABLE covered (
        one INTEGER PRIMARY KEY CHECK (one = 1), segment INTEGER NOT NULL, end INTEGER NOT NULL,
        since INTEGER NOT NULL, damaged INTEGER NOT NULL);
    CREATE TABLE usage (
        org BLOB NOT NULL, part INTEGER NOT NULL, hour INTEGER NOT NULL, sums BLOB NOT NULL, crc INTEGER NOT NULL,
        PRIMARY KEY (org, part, hour));
    CREATE TABLE last (
        org BLOB NOT NULL, key TEXT NOT NULL, refused INTEGER NOT NULL, begun BLOB NOT NULL, ended BLOB, open BLOB,
        PRIMARY KEY (org, key, refused)) WITHOUT ROWID;
    PRAGMA user_version = 7;
    COMMIT;
";

/// Opens the index for writing; creates it anew when there is none or it has another version.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let database = connect(path)?;
    let found = version(&database)?;
    if found == VERSION {
        return Ok(database);
    }
    // A new file has version 0.
    if found != 0 {
        tracing::warn!(found, expected = VERSION, path = %path.display(),
            "the index of the audit journal has another version, and is built again without removed segments");
    }
    drop(database);
    create(path)
}

/// Replaces the index by an empty one.
pub(crate) fn create(path: &Path) -> rusqlite::Result<Connection> {
    delete(path);
    let database = connect(path)?;
    database.execute_batch(SCHEMA)?;
    Ok(database)
}

/// Checks the structure of all tables. Values of parts and sums have checksums.
///
/// # Errors
/// If it is damaged, or cannot be read.
pub(crate) fn check(database: &Connection) -> rusqlite::Result<()> {
    let found: String = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(damage(&found)) }
}

/// Forgets the usage; the parts of segments stay.
pub(crate) fn clear_usage(database: &Connection) -> rusqlite::Result<()> {
    database.execute_batch("BEGIN; DELETE FROM usage; DELETE FROM last; DELETE FROM covered; COMMIT;")
}

/// True when an error says that the index is damaged, and not that it cannot be read now.
pub(crate) fn is_damage(error: &Error) -> bool {
    use ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
    // With a changed byte in the schema, a statement that names a table is an error of an unknown kind.
    !matches!(error, Error::SqliteFailure(failure, _)
        if !matches!(failure.code, DatabaseCorrupt | NotADatabase | Unknown))
}

/// True when an error says that there is no space on the disk.
pub(crate) fn is_out_of_space(error: &Error) -> bool {
    // Shared memory is a file, too.
    matches!(error, Error::SqliteFailure(failure, _) if failure.code == ErrorCode::DiskFull
        || failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE)
}

/// True when a database has the tables of this version.
pub(crate) fn is_current(database: &Connection) -> rusqlite::Result<bool> {
    Ok(version(database)? == VERSION)
}

/// Opens the file of a database for writing; makes an empty one where there is none.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // SQLite gives its -wal and -shm files the mode of the database file, so this file is created here with mode 0600.
    // When that fails, opening the connection fails too, with SQLite's own message.
    let created = File::options().append(true).create(true).mode(0o600).open(path);
    created.map_or_else(|error| tracing::debug!(%error, "cannot create the index of the audit journal"), drop);
    let database = Connection::open(path)?;
    // NORMAL may lose the last transactions at a power cut, never consistency: the index then covers less.
    database.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")?;
    Ok(database)
}

/// Empties the write-ahead log, which would stay as large as the largest transaction: it counts as the journal's.
pub(crate) fn shrink_log(database: &Connection) {
    let emptied = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    emptied.unwrap_or_else(|error| tracing::debug!(%error, "cannot empty the log of the index of the audit journal"));
}

/// Deletes the files of the index.
pub(crate) fn delete(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let removed = std::fs::remove_file(name);
        removed.unwrap_or_else(|error| tracing::debug!(%error, "no file of the old index to delete"));
    }
}

/// Opens the index for reading; `None` when it has another version.
///
/// # Errors
/// If there is no index, or it is damaged.
pub(crate) fn open_for_reading(directory: &Path) -> rusqlite::Result<Option<Connection>> {
    open_file_for_reading(&directory.join(FILE))
}

/// Opens a file with the tables of an index for reading, as [`open_for_reading`] does.
pub(crate) fn open_file_for_reading(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |name: &Path, flags| {
        let database = Connection::open_with_flags(name, flags)?;
        Ok(is_current(&database)?.then_some(database))
    };
    match open(path, flags) {
        // The memory that readers share is a file as well, for which a full disk has no room. Where nothing is
        // in a log, the database is whole, and on a full disk nothing is written to it.
        Err(error) if is_out_of_space(&error) && !has_log(path) => {
            open(Path::new(&unchanging(path)), flags | OpenFlags::SQLITE_OPEN_URI)
        }
        opened => opened,
    }
}

/// Returns whether there is anything in a write-ahead log.
fn has_log(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    std::fs::metadata(name).is_ok_and(|log| log.len() > 0)
}

/// The name of a database that no process changes (<https://www.sqlite.org/uri.html>).
fn unchanging(path: &Path) -> String {
    let escaped = path.as_os_str().as_bytes().iter().map(|byte| match byte {
        b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}

fn version(database: &Connection) -> rusqlite::Result<i64> {
    database.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Loads the point up to which the index covers the journal; `None` before the first block.
pub(crate) fn load_covered(database: &Connection) -> rusqlite::Result<Option<Point>> {
    let point = |row: &rusqlite::Row<'_>| {
        Ok(Point { segment: row.get::<_, i64>(0)?.cast_unsigned(), offset: row.get::<_, i64>(1)?.cast_unsigned() })
    };
    database.query_row("SELECT segment, end FROM covered", [], point).optional()
}

/// Stores the point up to which the index covers the journal, and adds damaged lines; `since` stays that of the first
/// call.
pub(crate) fn store_covered(database: &Connection, point: Point, since: Micros, damaged: u64) -> rusqlite::Result<()> {
    let numbers = [point.segment, point.offset, since.0, damaged].map(u64::cast_signed);
    let sql = "INSERT INTO covered (one, segment, end, since, damaged) VALUES (1, ?1, ?2, ?3, ?4)
               ON CONFLICT DO UPDATE SET segment = excluded.segment, end = excluded.end,
                   damaged = damaged + excluded.damaged";
    database.execute(sql, numbers).map(drop)
}

/// The time from which on all usage is added up, and the number of damaged lines that are not.
pub(super) fn load_completeness(database: &Connection) -> rusqlite::Result<(Micros, u64)> {
    database.query_row("SELECT since, damaged FROM covered", [], |row| {
        Ok((Micros(row.get::<_, i64>(0)?.cast_unsigned()), row.get::<_, i64>(1)?.cast_unsigned()))
    })
}

/// Notes that the usage before a time was deleted, or is missing.
pub(super) fn advance_since(database: &Connection, since: Micros) -> rusqlite::Result<()> {
    database.execute("UPDATE covered SET since = max(since, ?1)", [since.0.cast_signed()]).map(drop)
}

/// An error that says that a read was abandoned.
pub(crate) fn interrupted() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None)
}

/// An error that says that a value is damaged.
pub(super) fn damage(what: &str) -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(what.to_owned()))
}
