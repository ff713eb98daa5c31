//! The durable copy: a SQLite file, its schema, and how it is read at start.
//!
//! - Readable by its owner only: the directory is made with mode 0700, the file with 0600.
//! - A committed change survives the loss of power: write-ahead log, `synchronous=FULL`.
//! - One process at a time: who holds the [`Lock`] has the file.
//! - A file of a newer version is refused, untouched.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, Row};

use crate::clock::Micros;
use crate::identity::Permission;
use crate::key::{KeyDigest, KeyId};
use crate::quota::Quota;
use crate::state::bucket::Bucket;
use crate::state::{Key, Org, User};

use super::directory::{Directory, StoredKey};
use super::grant::Secrets;
use super::live::Usage;
use super::{OpenError, Settings, session_rows};

/// The steps of the schema, each from one version to the next; the first begins with an empty file. The version of a
/// file is how many of them it has taken, kept in `PRAGMA user_version`. What was released is never changed.
const STEPS: [&str; 2] = [DIRECTORY, SESSIONS];
/// The version that all steps lead to.
const VERSION: i64 = STEPS.len() as i64;

/// Times are microseconds since the Unix epoch. `rowid` is the order of creation. What a key has besides its record is
/// at its end: the bucket's level in units of `1/level_per` tokens, as `level_at`. `replaced` holds the digests that
/// keys had before their rotations, so that a use of one is known for what it is, and none is ever given again.
const DIRECTORY: &str = "
CREATE TABLE orgs (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tag TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
  created INTEGER NOT NULL, suspended INTEGER NOT NULL, concurrent INTEGER CHECK (concurrent > 0)
) STRICT;
CREATE TABLE users (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, org TEXT NOT NULL, email TEXT NOT NULL,
  permissions TEXT NOT NULL, created INTEGER NOT NULL, removed INTEGER
) STRICT;
CREATE UNIQUE INDEX users_email ON users (org, email) WHERE removed IS NULL;
CREATE TABLE keys (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest BLOB NOT NULL UNIQUE, user TEXT NOT NULL,
  name TEXT NOT NULL, imported INTEGER NOT NULL, created INTEGER NOT NULL,
  rotated INTEGER, previous BLOB, previous_until INTEGER, revoked INTEGER,
  requests INTEGER CHECK (requests > 0), per INTEGER CHECK (per > 0), burst INTEGER CHECK (burst > 0),
  level INTEGER CHECK (level >= 0), level_per INTEGER CHECK (level_per > 0), level_at INTEGER,
  last_used INTEGER, uses INTEGER NOT NULL CHECK (uses >= 0)
) STRICT;
CREATE TABLE replaced (digest BLOB PRIMARY KEY, key TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

/// `seat` marks session quota keys. A session's `record` is JSON; what
/// changes about it has columns of its own, which count.
const SESSIONS: &str = "
ALTER TABLE keys ADD COLUMN seat INTEGER NOT NULL DEFAULT 0;
CREATE TABLE sessions (
  rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest BLOB NOT NULL UNIQUE, record TEXT NOT NULL,
  chosen TEXT NOT NULL, seen INTEGER NOT NULL, expires INTEGER NOT NULL
) STRICT;
CREATE TABLE tickets (
  digest BLOB PRIMARY KEY, content BLOB NOT NULL, expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tickets_expires ON tickets (expires);
";

/// The exclusive right to a state file, given back on drop.
#[derive(Debug)]
pub(super) struct Lock {
    /// Held open: the lock lives as long as the descriptor.
    _file: File,
}

impl Lock {
    /// Makes the directory when it is missing, and takes the lock.
    pub(super) fn take(state: &Path) -> Result<Self, OpenError> {
        let mut path = state.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |source| OpenError::Io { path: path.clone(), source };
        make_directory(state).map_err(failed)?;
        let file = private().truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(state.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

fn make_directory(state: &Path) -> std::io::Result<()> {
    match state.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => DirBuilder::new().recursive(true).mode(0o700).create(parent),
        None => Ok(()),
    }
}

/// Opens for reading and writing, and makes what is missing readable by its owner only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

/// Opens the file, and makes it when it is missing. The lock must be held.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    private().truncate(false).open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let sqlite = |source| OpenError::Sqlite { path: path.to_owned(), source };
    let connection = Connection::open(path).map_err(sqlite)?;
    // The lock file keeps other gateways away: whoever else has the database locked is not worth waiting for.
    connection.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sqlite)?;
    if version > VERSION {
        return Err(OpenError::Newer { path: path.to_owned(), found: version, known: VERSION });
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(sqlite)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    let taken = usize::try_from(version).unwrap_or_default();
    if taken < STEPS.len() {
        let steps = STEPS[taken..].concat();
        connection
            .execute_batch(&format!("BEGIN IMMEDIATE; {steps} PRAGMA user_version = {VERSION}; COMMIT;"))
            .map_err(sqlite)?;
    }
    Ok(connection)
}

/// Reads the whole directory.
pub(super) fn load(connection: &Connection, settings: &Settings) -> rusqlite::Result<Directory> {
    let keys: i64 = connection.query_row("SELECT count(*) FROM keys", [], |row| row.get(0))?;
    let keys = usize::try_from(keys).unwrap_or(0);
    let directory = Directory::with_capacity(keys, settings.defaults());
    each(connection, "SELECT * FROM orgs ORDER BY rowid", |row| org(row).map(|org| directory.add_org(org)))?;
    each(connection, "SELECT * FROM users ORDER BY rowid", |row| user(row).map(|user| directory.add_user(user)))?;
    let keys = "SELECT keys.*, users.org FROM keys JOIN users ON users.id = keys.user ORDER BY keys.rowid";
    each(connection, keys, |row| key(row).map(|key| directory.add_key(key)))?;
    each(connection, "SELECT digest, key FROM replaced", |row| {
        let digest = KeyDigest::from_bytes(row.get("digest")?);
        text(row, "key").map(|key| directory.add_replaced_digest(digest, key))
    })?;
    session_rows::load(connection, &directory.sessions)?;
    Ok(directory)
}

/// Up to when the file knows of every use.
pub(super) fn written_back_at(connection: &Connection) -> rusqlite::Result<Micros> {
    let mut statement = connection.prepare("SELECT value FROM meta WHERE name = 'written_back_at'")?;
    let mut rows = statement.query([])?;
    rows.next()?.map_or(Ok(Micros(0)), |row| row.get(0).map(micros))
}

/// Writes back what uses changed about keys, all of it or none. With `at`, the file then knows of every use up to it.
pub(super) fn write_back(
    connection: &mut Connection,
    used: impl IntoIterator<Item = (KeyId, Usage)>,
    at: Option<Micros>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut update = transaction.prepare_cached(
            "UPDATE keys SET level = ?2, level_per = ?3, level_at = ?4, last_used = ?5, uses = ?6 WHERE id = ?1",
        )?;
        for (key, usage) in used {
            let Usage { bucket, per_us, last_used, uses } = usage;
            let (level, at) = (integer(bucket.level), integer(bucket.at.0));
            let last_used = last_used.map(|at| integer(at.0));
            update.execute((key.as_str(), level, integer(per_us), at, last_used, integer(uses)))?;
        }
    }
    if let Some(at) = at {
        transaction.execute("INSERT OR REPLACE INTO meta VALUES ('written_back_at', ?1)", [integer(at.0)])?;
    }
    transaction.commit()
}

/// A count or time as SQLite stores it; what is beyond is as good as forever.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn micros(value: i64) -> Micros {
    Micros(u64::try_from(value).unwrap_or(0))
}

pub(super) fn each(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

fn org(row: &Row<'_>) -> rusqlite::Result<Org> {
    Ok(Org {
        id: text(row, "id")?,
        tag: text(row, "tag")?,
        name: row.get("name")?,
        created: time(row, "created")?.unwrap_or_default(),
        suspended: row.get("suspended")?,
        concurrent: row.get("concurrent")?,
    })
}

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    let permissions: String = row.get("permissions")?;
    let permissions = permissions.split(',').filter(|permission| !permission.is_empty()).map(str::parse::<Permission>);
    Ok(User {
        id: text(row, "id")?,
        org: text(row, "org")?,
        email: row.get("email")?,
        permissions: permissions.collect::<Result<_, _>>().map_err(|error| unreadable(row, "permissions", error))?,
        created: time(row, "created")?.unwrap_or_default(),
        removed: time(row, "removed")?,
    })
}

fn key(row: &Row<'_>) -> rusqlite::Result<StoredKey> {
    let key = Key {
        id: text(row, "id")?,
        org: text(row, "org")?,
        user: text(row, "user")?,
        name: row.get("name")?,
        imported: row.get("imported")?,
        session_quota_key: row.get("seat")?,
        created: time(row, "created")?.unwrap_or_default(),
        rotated: time(row, "rotated")?,
        previous_until: time(row, "previous_until")?,
        revoked: time(row, "revoked")?,
        quota: quota(row)?,
        last_used: time(row, "last_used")?,
        uses: count(row, "uses")?.unwrap_or_default(),
    };
    let secrets = secrets(row, &key)?;
    Ok(StoredKey { key, secrets, bucket: bucket(row)? })
}

fn secrets(row: &Row<'_>, key: &Key) -> rusqlite::Result<Secrets> {
    let previous: Option<[u8; 32]> = row.get("previous")?;
    let until = key.previous_until.filter(|until| Some(*until) > key.rotated);
    Ok(Secrets {
        current: KeyDigest::from_bytes(row.get("digest")?),
        previous: previous.map(KeyDigest::from_bytes).zip(until),
        rotated: key.rotated,
        previous_until: key.previous_until,
    })
}

fn quota(row: &Row<'_>) -> rusqlite::Result<Option<Quota>> {
    let Some(requests) = row.get("requests")? else { return Ok(None) };
    let per = Duration::from_secs(count(row, "per")?.unwrap_or_default());
    let quota = Quota { requests, per, burst: row.get("burst")? };
    quota.checked().map(Some).map_err(|error| unreadable(row, "requests", error))
}

fn bucket(row: &Row<'_>) -> rusqlite::Result<Option<(Bucket, u64)>> {
    let (level, at, per) = (count(row, "level")?, time(row, "level_at")?, count(row, "level_per")?);
    Ok(level.zip(at).zip(per).map(|((level, at), per)| (Bucket { level, at }, per)))
}

pub(super) fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Micros>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(micros))
}

fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<u64>> {
    Ok(time(row, column)?.map(|count| count.0))
}

/// A column in the text form of its type.
pub(super) fn text<T>(row: &Row<'_>, column: &'static str) -> rusqlite::Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text = row.get_ref(column)?.as_str().map_err(|error| unreadable(row, column, error))?;
    text.parse().map_err(|error| unreadable(row, column, error))
}

/// The error for a value that the file should not have.
pub(super) fn unreadable(
    row: &Row<'_>,
    column: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    let index = row.as_ref().column_index(column).unwrap_or(usize::MAX);
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}
