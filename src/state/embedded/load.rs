//! Reads the state file whole, at start.

use std::time::Duration;

use rusqlite::{Connection, Row};

use crate::clock::Micros;
use crate::identity::Permission;
use crate::key::{KeyDigest, KeyId};
use crate::quota::Quota;
use crate::state::bucket::Bucket;
use crate::state::cursor_secret::CursorSecret;
use crate::state::{Defaults, Key, Org, User};

use super::directory::{Directory, StoredKey};
use super::entitlements::Secrets;
use super::sql::{count, for_each_row, invalid, micros, text, time};
use super::{retired, session_rows};

/// Reads the whole directory, with its sessions.
pub(super) fn load(connection: &Connection, defaults: Defaults) -> rusqlite::Result<Directory> {
    let keys: i64 = connection.query_row("SELECT count(*) FROM keys", [], |row| row.get(0))?;
    let directory = Directory::with_capacity(usize::try_from(keys).unwrap_or(0), defaults);
    for_each_row(connection, "SELECT * FROM orgs ORDER BY rowid", |row| org(row).map(|org| directory.add_org(org)))?;
    let users = "SELECT * FROM users ORDER BY rowid";
    for_each_row(connection, users, |row| user(row).map(|user| directory.add_user(user)))?;
    let keys = "SELECT keys.*, users.org FROM keys JOIN users ON users.id = keys.user WHERE keys.retired IS NULL";
    for_each_row(connection, keys, |row| key(row).map(|key| directory.add_key(key)))?;
    for_each_row(connection, "SELECT digest, key FROM replaced", |row| {
        let digest = KeyDigest::from_bytes(row.get("digest")?);
        text(row, "key").map(|key| directory.add_replaced_digest(digest, key))
    })?;
    retired::load(connection, &directory.retired)?;
    session_rows::load(connection, &directory.sessions)?;
    Ok(directory)
}

/// The time up to which the file has counted every use; the epoch when no use was written back yet.
pub(super) fn read_written_back_at(connection: &Connection) -> rusqlite::Result<Micros> {
    let mut statement = connection.prepare("SELECT value FROM meta WHERE name = 'written_back_at'")?;
    let mut rows = statement.query([])?;
    rows.next()?.map_or(Ok(Micros(0)), |row| row.get(0).map(micros))
}

/// The secret that the cursors of lists are sealed with; made and stored when the file has none yet.
pub(super) fn read_cursor_secret(connection: &Connection) -> rusqlite::Result<CursorSecret> {
    let fresh = CursorSecret::generate().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES ('cursors', ?1)", [fresh.as_bytes()])?;
    connection
        .query_row("SELECT value FROM secrets WHERE name = 'cursors'", [], |row| row.get(0))
        .map(CursorSecret::from_bytes)
}

/// Reads retired keys with their digests before the last rotation: the one with this id, or all of them.
pub(super) fn read_retired(
    connection: &Connection,
    id: Option<KeyId>,
) -> rusqlite::Result<Vec<(StoredKey, Vec<KeyDigest>)>> {
    let query = "SELECT keys.*, users.org FROM keys JOIN users ON users.id = keys.user
                 WHERE keys.retired IS NOT NULL AND (?1 IS NULL OR keys.id = ?1) ORDER BY keys.rowid";
    let mut query = connection.prepare(query)?;
    let mut rows = query.query([id.map(|id| id.as_str().to_owned())])?;
    let mut replaced = connection.prepare("SELECT digest FROM replaced WHERE key = ?1")?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let stored = key(row)?;
        let digests = replaced.query_map([stored.key.id.as_str()], |row| row.get(0).map(KeyDigest::from_bytes))?;
        let digests = digests.collect::<rusqlite::Result<_>>()?;
        found.push((stored, digests));
    }
    Ok(found)
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
        permissions: permissions.collect::<Result<_, _>>().map_err(|error| invalid(row, "permissions", error))?,
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
    // An overlap that was over when the rotation began is none: the replaced secret never was valid beside the new one.
    let until = key.previous_until.filter(|until| Some(*until) > key.rotated);
    Ok(Secrets {
        current: KeyDigest::from_bytes(row.get("digest")?),
        replaced: Vec::new(),
        previous: previous.map(KeyDigest::from_bytes).zip(until),
        rotated: key.rotated,
        previous_until: key.previous_until,
    })
}

fn quota(row: &Row<'_>) -> rusqlite::Result<Option<Quota>> {
    let Some(requests) = row.get("requests")? else { return Ok(None) };
    let per = Duration::from_secs(count(row, "per")?.unwrap_or_default());
    let quota = Quota { requests, per, burst: row.get("burst")?, strict: false };
    quota.validate().map(Some).map_err(|error| invalid(row, "requests", error))
}

fn bucket(row: &Row<'_>) -> rusqlite::Result<Option<(Bucket, u64)>> {
    let (level, at, per): (Option<i64>, _, _) = (row.get("level")?, time(row, "level_at")?, count(row, "level_per")?);
    Ok(level.zip(at).zip(per).map(|((level, at), per)| (Bucket { level, at }, per)))
}
