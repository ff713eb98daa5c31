//! Management tokens: in memory, where calls find them, and durable in the state file.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Embedded;
use super::sql::{classify_error, execute, for_each_row, integer, invalid, micros};
use crate::ChangeError;
use crate::management_tokens::{MAX_TOKENS, MAX_TOKENS_OF_ORG, descendants, earliest_revoked};
use domain::clock::{self, Micros};
use domain::management_token::{ManagementToken, TokenId, TokenUse};

/// The tables, made when the file is opened. The version of the schema stays: gateways of before read the file as well,
/// and know no tokens.
///
/// - A `record` is JSON. Those whose time `expires` is over are removed when another token is created, and where there
///   is no room the one that was revoked first.
/// - Last uses have a table of their own: the record of a token does not change with them.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS management_tokens (
  id TEXT PRIMARY KEY, record TEXT NOT NULL, expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS management_token_uses (
  id TEXT PRIMARY KEY, record TEXT NOT NULL, expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// All tokens. Only the writer changes them, after the change was committed.
#[derive(Default)]
pub(super) struct ManagementTokens {
    records: RwLock<BTreeMap<TokenId, ManagementToken>>,
    /// Last uses, and when the tokens expire.
    uses: RwLock<BTreeMap<TokenId, (TokenUse, Micros)>>,
}

/// Makes the tables, if the file has none.
pub(super) fn create_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)
}

/// Reads all tokens into memory.
pub(super) fn load(connection: &Connection, tokens: &ManagementTokens) -> rusqlite::Result<()> {
    for_each_token(connection, |token| drop(tokens.records.write().insert(token.id, token)))?;
    for_each_row(connection, "SELECT id, record, expires FROM management_token_uses", |row| {
        let (id, record): (String, String) = (row.get("id")?, row.get("record")?);
        let id = id.parse().map_err(|error| invalid(row, "id", error))?;
        let last = serde_json::from_str(&record).map_err(|error| invalid(row, "record", error))?;
        tokens.set_use(id, last, micros(row.get("expires")?));
        Ok(())
    })
}

fn for_each_token(sql: &Connection, mut use_token: impl FnMut(ManagementToken)) -> rusqlite::Result<()> {
    for_each_row(sql, "SELECT record FROM management_tokens", |row| {
        let record: String = row.get("record")?;
        use_token(serde_json::from_str(&record).map_err(|error| invalid(row, "record", error))?);
        Ok(())
    })
}

/// Creates a token, where its organization has room for it.
pub(super) fn create_in_room(sql: &Connection, token: &ManagementToken) -> Result<(), ChangeError> {
    require_room(sql, token)?;
    create(sql, token, token.created)
}

/// Requires that the organization of a new token has fewer live ones than it may have.
fn require_room(sql: &Connection, token: &ManagementToken) -> Result<(), ChangeError> {
    let Some(org) = token.org else { return Ok(()) };
    let live = "SELECT count(*) FROM management_tokens WHERE expires > ?1 AND record ->> '$.org' = ?2
                AND record ->> '$.revoked' IS NULL";
    let count: i64 = sql
        .prepare_cached(live)
        .and_then(|mut count| count.query_row(params![integer(token.created.0), org.to_string()], |row| row.get(0)))
        .map_err(classify_error)?;
    if count < i64::from(MAX_TOKENS_OF_ORG) { Ok(()) } else { Err(ChangeError::TooManyTokens(MAX_TOKENS_OF_ORG)) }
}

/// Creates a token, and removes those that have expired.
pub(super) fn create(sql: &Connection, token: &ManagementToken, now: Micros) -> Result<(), ChangeError> {
    execute(sql, "DELETE FROM management_tokens WHERE expires <= ?1", [integer(now.0)])?;
    let count: i64 = sql
        .prepare_cached("SELECT count(*) FROM management_tokens")
        .and_then(|mut count| count.query_row([], |row| row.get(0)))
        .map_err(classify_error)?;
    if count >= i64::from(MAX_TOKENS) {
        let tokens = read_all(sql)?;
        let oldest = earliest_revoked(&tokens).ok_or(ChangeError::TooManyTokens(MAX_TOKENS))?;
        execute(sql, "DELETE FROM management_tokens WHERE id = ?1", [oldest.id.as_str()])?;
    }
    let row = params![token.id.as_str(), record(token), integer(token.expires.0)];
    execute(sql, "INSERT INTO management_tokens (id, record, expires) VALUES (?1, ?2, ?3)", row).map(drop)
}

/// Revokes a token and its descendants. Of several revocations the first stands.
pub(super) fn revoke(sql: &Connection, id: TokenId, at: Micros) -> Result<(), ChangeError> {
    find(sql, id)?.ok_or(ChangeError::NoToken(id))?;
    let tokens = read_all(sql)?;
    let ended = descendants(&tokens, id);
    for mut token in tokens.into_iter().filter(|token| token.id == id || ended.contains(&token.id)) {
        token.revoked = token.revoked.or(Some(at));
        let update = "UPDATE management_tokens SET record = ?2 WHERE id = ?1";
        execute(sql, update, [token.id.as_str(), &record(&token)])?;
    }
    Ok(())
}

/// Writes the last use of a token, and removes those of tokens that have expired.
pub(super) fn write_use(sql: &Connection, id: TokenId, last: &TokenUse, expires: Micros) -> Result<(), ChangeError> {
    execute(sql, "DELETE FROM management_token_uses WHERE expires <= ?1", [integer(last.time.0)])?;
    let record = serde_json::to_string(last).expect("a use is a time and text");
    let replace = "INSERT OR REPLACE INTO management_token_uses (id, record, expires) VALUES (?1, ?2, ?3)";
    execute(sql, replace, params![id.as_str(), record, integer(expires.0)]).map(drop)
}

/// Requires that a token is live: a program makes no change after the revocation and the expiry of its token.
pub(super) fn require_live(sql: &Connection, id: TokenId) -> Result<(), ChangeError> {
    let is_live = find(sql, id)?.is_some_and(|token| token.is_live(clock::now()));
    if is_live { Ok(()) } else { Err(ChangeError::TokenEnded(id)) }
}

/// All tokens as the file has them, also with the changes before this one in the same transaction.
fn read_all(sql: &Connection) -> Result<Vec<ManagementToken>, ChangeError> {
    let mut tokens = Vec::new();
    for_each_token(sql, |token| tokens.push(token)).map_err(classify_error)?;
    Ok(tokens)
}

/// The token as the file has it, also with the changes before this one in the same transaction.
fn find(sql: &Connection, id: TokenId) -> Result<Option<ManagementToken>, ChangeError> {
    let mut query = sql.prepare_cached("SELECT record FROM management_tokens WHERE id = ?1").map_err(classify_error)?;
    let parse = |row: &rusqlite::Row<'_>| {
        let record: String = row.get("record")?;
        serde_json::from_str(&record).map_err(|error| invalid(row, "record", error))
    };
    query.query_row([id.as_str()], parse).optional().map_err(classify_error)
}

fn record(token: &ManagementToken) -> String {
    serde_json::to_string(token).expect("a token is text, numbers and lists of them")
}

impl ManagementTokens {
    /// Adds a token that was created, and removes those that have expired, or one that gives way to it.
    pub(super) fn add(&self, token: ManagementToken, now: Micros) {
        let mut tokens = self.records.write();
        tokens.retain(|_, other| other.expires > now);
        // As in the file.
        if tokens.len() >= MAX_TOKENS as usize
            && let Some(oldest) = earliest_revoked(tokens.values()).map(|token| token.id)
        {
            tokens.remove(&oldest);
        }
        tokens.insert(token.id, token);
    }

    /// Sets the last use of a token, and removes those of tokens that have expired, as in the file.
    pub(super) fn set_use(&self, token: TokenId, last: TokenUse, expires: Micros) {
        let mut uses = self.uses.write();
        uses.retain(|_, (_, expires)| *expires > last.time);
        uses.insert(token, (last, expires));
    }

    /// Revokes a token and its descendants, as the file has.
    pub(super) fn revoke(&self, token: TokenId, at: Micros) {
        let mut tokens = self.records.write();
        let ended = descendants(tokens.values(), token);
        for id in ended.iter().chain([&token]) {
            if let Some(token) = tokens.get_mut(id) {
                token.revoked = token.revoked.or(Some(at));
            }
        }
    }
}

impl Embedded {
    /// The token with this id. See [`crate::State::management_token`].
    pub fn management_token(&self, id: TokenId) -> Option<ManagementToken> {
        self.directory.management_tokens.records.read().get(&id).cloned()
    }

    /// All tokens. See [`crate::State::management_tokens`].
    pub fn management_tokens(&self) -> Vec<ManagementToken> {
        self.directory.management_tokens.records.read().values().cloned().collect()
    }

    /// The last uses of tokens, in their order. See [`crate::State::token_uses`].
    pub fn token_uses(&self, tokens: &[TokenId]) -> Vec<Option<TokenUse>> {
        let uses = self.directory.management_tokens.uses.read();
        tokens.iter().map(|id| uses.get(id).map(|(last, _)| last.clone())).collect()
    }
}
