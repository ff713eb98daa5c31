//! Actors of keys in the state file, in a table of their own: neither the start of a gateway nor a decision reads it.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::Embedded;
use super::sql::{execute, integer, micros, text};
use crate::{ActorName, ChangeError, KeyActors, KeyEvent};
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

/// The table, made when the file is opened. The version of the schema stays: gateways of before read the file as well,
/// and write keys without actors.
///
/// - `key` is the row of the key. An actor is named for a change at the time `at` alone.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS key_actors (
  key INTEGER NOT NULL, event TEXT NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL, PRIMARY KEY (key, event)
) STRICT, WITHOUT ROWID;
";

/// Makes the table, if the file has none.
pub(super) fn create_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)
}

/// Records the actors of a key that is imported, and written already.
pub(super) fn record_all(sql: &Connection, key: KeyId, actors: &KeyActors) -> Result<(), ChangeError> {
    actors.iter().try_for_each(|(event, at, actor)| record(sql, (key, event, at), actor))
}

/// Records the actor of a change that is written already. Of several revocations the first stands.
pub(super) fn record(
    sql: &Connection,
    (key, event, at): (KeyId, KeyEvent, Micros),
    actor: &ActorName,
) -> Result<(), ChangeError> {
    let insert = match event {
        KeyEvent::Revoked => "INSERT OR IGNORE INTO key_actors SELECT rowid, ?2, ?3, ?4 FROM keys WHERE id = ?1",
        KeyEvent::Created | KeyEvent::Rotated => {
            "INSERT OR REPLACE INTO key_actors SELECT rowid, ?2, ?3, ?4 FROM keys WHERE id = ?1"
        }
    };
    execute(sql, insert, params![key.as_str(), event.name(), integer(at.0), actor.as_str()]).map(drop)
}

fn read(sql: &Connection, key: KeyId) -> rusqlite::Result<KeyActors> {
    let query = "SELECT event, at, actor FROM key_actors WHERE key = (SELECT rowid FROM keys WHERE id = ?1)";
    let mut query = sql.prepare_cached(query)?;
    let mut rows = query.query([key.as_str()])?;
    let mut actors = KeyActors::default();
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str()?;
        if let Some(event) = KeyEvent::ALL.into_iter().find(|event| event.name() == name) {
            actors.record(event, micros(row.get(1)?), ActorName::new(row.get::<_, String>(2)?));
        }
    }
    Ok(actors)
}

fn read_created_by(sql: &Connection, org: OrgId, makers: &BTreeSet<ActorName>) -> rusqlite::Result<Vec<KeyId>> {
    let query = "SELECT keys.id, actor FROM key_actors JOIN keys ON keys.rowid = key_actors.key
                 JOIN users ON users.id = keys.user
                 WHERE event = 'created' AND at = keys.created AND keys.revoked IS NULL AND users.org = ?1";
    let mut query = sql.prepare_cached(query)?;
    let mut rows = query.query([org.to_string()])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        if makers.contains(&ActorName::new(row.get::<_, String>("actor")?)) {
            keys.push(text(row, "id")?);
        }
    }
    Ok(keys)
}

impl Embedded {
    /// The keys that actors created. See [`crate::State::keys_created_by`]. None are known when the file cannot be
    /// read.
    pub(crate) async fn keys_created_by(&self, org: OrgId, makers: &BTreeSet<ActorName>) -> Vec<KeyId> {
        let makers = makers.clone();
        self.writer.read(move |sql| read_created_by(sql, org, &makers)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the actors of keys from the state file");
            Vec::new()
        })
    }

    /// The actors of keys, in their order.
    ///
    /// # Errors
    /// SQLite failed, or the state is closed.
    pub(crate) async fn read_key_actors(&self, keys: &[KeyId]) -> rusqlite::Result<Vec<KeyActors>> {
        let keys = keys.to_vec();
        self.writer.read(move |sql| keys.iter().map(|key| read(sql, *key)).collect()).await
    }

    /// The same for management. None are known when the file cannot be read: keys are shown all the same.
    pub(crate) async fn key_actors(&self, keys: &[KeyId]) -> Vec<KeyActors> {
        let read = self.read_key_actors(keys).await.unwrap_or_else(|error| {
            // Once another process has the file, keys are still shown from memory.
            if !matches!(error, rusqlite::Error::InvalidQuery) {
                tracing::error!(%error, "cannot read the actors of keys from the state file");
            }
            Vec::new()
        });
        if read.len() == keys.len() { read } else { vec![KeyActors::default(); keys.len()] }
    }
}
