//! Identity of the embedded state: rows of its file, written in the transaction of each change; and the file itself,
//! which may be removed or replaced while it is open.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension as _};

use super::operation::{Operation, Request};
use crate::ChangeError;
use crate::identity::{IdentityGuard, StateIdentity};
use domain::clock::{self, Micros};

/// Reads the identity; makes and stores one when the file has none yet.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<StateIdentity> {
    let Some(id) = read_text(connection, "identity")? else {
        let fresh = StateIdentity::generate().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        return write(connection, &fresh).map(|()| fresh);
    };
    let replaces = read_text(connection, "replaces")?;
    Ok(StateIdentity {
        id: id.parse().map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?,
        changes: read_number(connection, "changes")?,
        changed: Micros(read_number(connection, "changed")?),
        replaces: StateIdentity::parse_replaces(&replaces.unwrap_or_default()),
    })
}

/// Writes a whole identity.
pub(super) fn write(connection: &Connection, identity: &StateIdentity) -> rusqlite::Result<()> {
    let mut secret = connection.prepare_cached("INSERT OR REPLACE INTO secrets (name, value) VALUES (?1, ?2)")?;
    secret.execute(("identity", identity.id.as_str().as_bytes()))?;
    secret.execute(("replaces", identity.replaces_text().as_bytes()))?;
    write_last_change(connection, identity)
}

/// Writes the number and the time of the last change.
fn write_last_change(connection: &Connection, identity: &StateIdentity) -> rusqlite::Result<()> {
    let mut meta = connection.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
    meta.execute(("changes", identity.changes.cast_signed()))?;
    meta.execute(("changed", identity.changed.0.cast_signed())).map(drop)
}

fn read_text(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let query = "SELECT CAST(value AS TEXT) FROM secrets WHERE name = ?1";
    connection.query_row(query, [name], |row| row.get(0)).optional()
}

fn read_number(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let number: Option<i64> =
        connection.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0)).optional()?;
    Ok(number.unwrap_or(0).cast_unsigned())
}

/// Identity of the state that the thread writes, and its files.
pub(super) struct StateIdentityWatch {
    pub(super) guard: Arc<IdentityGuard>,
    /// As the file has it.
    pub(super) identity: StateIdentity,
    pub(super) files: OpenFiles,
}

impl StateIdentityWatch {
    /// Follows the wall clock, looks at the files, and keeps what is remembered beside the journal. To be called each
    /// second.
    pub(super) fn tick(&self) {
        clock::follow_wall();
        self.guard.set_file_replaced(self.files.are_replaced());
        self.guard.save();
    }

    /// Refuses operations while the state is not the true one: nothing is acknowledged that would not be kept. One
    /// whose file was removed or replaced cannot even be accepted.
    pub(super) fn refuse(&self, requests: &mut Vec<Request>) {
        let are_replaced = self.files.are_replaced();
        self.guard.set_file_replaced(are_replaced);
        if !self.guard.is_broken() {
            return;
        }
        let refused = |request: &mut Request| are_replaced || !request.operation.is_accept();
        for Request { reply, .. } in requests.extract_if(.., refused) {
            let _ = reply.send(Err(ChangeError::lost()));
        }
    }

    /// Writes the number of the last change, if the operations made one, and returns the identity that is committed.
    pub(super) fn count<'a>(
        &self,
        sql: &Connection,
        made: impl Iterator<Item = &'a Operation>,
    ) -> rusqlite::Result<StateIdentity> {
        let mut identity = self.identity.clone();
        identity.changes += made.filter(|operation| operation.is_counted()).count() as u64;
        if identity.changes > self.identity.changes {
            identity.changed = clock::now();
            write_last_change(sql, &identity)?;
        }
        Ok(identity)
    }

    /// Notes the identity that was committed.
    pub(super) fn set(&mut self, identity: StateIdentity) {
        self.guard.observe(Some(identity.clone()), Instant::now());
        self.identity = identity;
    }
}

impl Drop for StateIdentityWatch {
    fn drop(&mut self) {
        self.guard.save();
    }
}

/// The files of an open state: the database and its write-ahead log, each with its device and inode.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Vec<(PathBuf, (u64, u64))>);

impl OpenFiles {
    /// The files as they are now; the write-ahead log only if there is one yet.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        let log = inode(&log).ok().map(|inode| (log, inode));
        Ok(Self([(path.to_owned(), inode(path)?)].into_iter().chain(log).collect()))
    }

    /// Returns whether one of them was removed or replaced. An error other than that says nothing.
    pub(super) fn are_replaced(&self) -> bool {
        self.0.iter().any(|(file, open)| match inode(file) {
            Ok(found) => found != *open,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
