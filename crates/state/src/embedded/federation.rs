//! Federation rules, the tokens that were exchanged by them, and the ends of their keys.
//!
//! - Rules are in memory, too, so that they are found while another process has the file.
//! - Tokens are in the file only: an exchange writes one, in the transaction that creates its key, and reads none else.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::retired::KEYS_PER_ROUND;
use super::sql::{classify_error, execute, for_each_row, integer, invalid, micros, text};
use super::{Embedded, key_policies};
use crate::bucket::Bucket;
use crate::federation::{EXCHANGES, LISTED_AFTER_END, REMEMBERED};
use crate::{Change, ChangeError, FederationExchange, FederationRule, RuleChange};
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

/// The tables, made when the file is opened. The version of the schema stays: gateways of before read the file as well,
/// and know of no rules.
///
/// - `level` and `at` are the bucket of the rule's exchanges, none before the first one.
/// - A key of a rule is in `federation_keys` until it leaves the lists, at `leaves`.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS federation_rules (
  org TEXT NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL, level INTEGER, at INTEGER, PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS federation_tokens (
  org TEXT NOT NULL, rule TEXT NOT NULL, token BLOB NOT NULL, expires INTEGER NOT NULL, PRIMARY KEY (org, rule, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS federation_tokens_expires ON federation_tokens (expires);
CREATE TABLE IF NOT EXISTS federation_keys (key TEXT PRIMARY KEY, leaves INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS federation_keys_leaves ON federation_keys (leaves);
";

/// The rules of all organizations, in memory.
#[derive(Default)]
pub(crate) struct FederationRules(RwLock<BTreeMap<OrgId, BTreeMap<String, FederationRule>>>);

impl FederationRules {
    /// The rule of an organization with this name.
    pub(crate) fn find(&self, org: OrgId, name: &str) -> Option<FederationRule> {
        self.0.read().get(&org)?.get(name).cloned()
    }

    /// The rules of an organization, by their names.
    pub(crate) fn list(&self, org: OrgId) -> Vec<FederationRule> {
        self.0.read().get(&org).map(|rules| rules.values().cloned().collect()).unwrap_or_default()
    }

    /// Makes a committed change effective.
    pub(super) fn apply(&self, change: RuleChange) {
        match change {
            RuleChange::Create(rule) => self.add(*rule),
            RuleChange::Remove { org, name } => {
                self.0.write().get_mut(&org).and_then(|rules| rules.remove(&name));
            }
        }
    }

    fn add(&self, rule: FederationRule) {
        self.0.write().entry(rule.org).or_default().insert(rule.name.clone(), rule);
    }
}

impl Embedded {
    /// The federation rules.
    pub(crate) fn federation_rules(&self) -> &FederationRules {
        &self.directory.federation
    }
}

/// Makes the tables, if the file has none.
pub(super) fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)
}

/// Reads all rules.
pub(super) fn load(connection: &Connection, rules: &FederationRules) -> rusqlite::Result<()> {
    for_each_row(connection, "SELECT record FROM federation_rules", |row| {
        let rule = serde_json::from_str(&row.get::<_, String>("record")?);
        rules.add(rule.map_err(|error| invalid(row, "record", error))?);
        Ok(())
    })
}

/// Writes a change of the rules.
pub(super) fn change_rule(sql: &Connection, change: &RuleChange) -> Result<(), ChangeError> {
    match change {
        RuleChange::Create(rule) => insert_rule(sql, rule),
        RuleChange::Remove { org, name } => {
            let remove = "DELETE FROM federation_rules WHERE org = ?1 AND name = ?2";
            match execute(sql, remove, params![org.to_string(), name])? {
                0 => Err(ChangeError::NoFederationRule(name.clone())),
                _ => Ok(()),
            }
        }
    }
}

/// Writes a rule of a new name.
pub(super) fn insert_rule(sql: &Connection, rule: &FederationRule) -> Result<(), ChangeError> {
    let insert = "INSERT INTO federation_rules (org, name, record) VALUES (?1, ?2, ?3)";
    execute(sql, insert, params![rule.org.to_string(), rule.name, rule.to_json()]).map(drop)
}

/// Records an exchange for which a key is created: its token, once, and one of the exchanges of its rule.
pub(super) fn record_exchange(
    sql: &Connection,
    exchange: &FederationExchange,
    change: &Change,
) -> Result<(), ChangeError> {
    let FederationExchange { rule, at, .. } = exchange;
    let bucket = read_bucket(sql, rule)?.unwrap_or_else(|| Bucket::full(EXCHANGES, *at));
    remember_token(sql, exchange)?;
    let taken = bucket.try_take(EXCHANGES, 1, *at).map_err(|wait_us| ChangeError::ExchangeLimited { wait_us })?;
    let update = "UPDATE federation_rules SET level = ?3, at = ?4 WHERE org = ?1 AND name = ?2";
    execute(sql, update, params![rule.org.to_string(), rule.name, taken.level, integer(taken.at.0)])?;
    let Change::CreateKey { key, .. } = change.as_made() else { return Ok(()) };
    let leaves = integer(exchange.expires.after(LISTED_AFTER_END).0);
    execute(sql, "INSERT INTO federation_keys VALUES (?1, ?2)", params![key.id.as_str(), leaves]).map(drop)
}

/// The bucket of a rule that is still as it was read; none before its first exchange.
fn read_bucket(sql: &Connection, rule: &FederationRule) -> Result<Option<Bucket>, ChangeError> {
    let query = "SELECT level, at FROM federation_rules WHERE org = ?1 AND name = ?2 AND record = ?3";
    let mut query = sql.prepare_cached(query).map_err(classify_error)?;
    let read = query.query_row(params![rule.org.to_string(), rule.name, rule.to_json()], |row| {
        let level: Option<i64> = row.get(0)?;
        let at: Option<i64> = row.get(1)?;
        Ok(level.zip(at).map(|(level, at)| Bucket { level, at: micros(at) }))
    });
    let found = read.optional().map_err(classify_error)?;
    found.ok_or_else(|| ChangeError::NoFederationRule(rule.name.clone()))
}

/// Remembers a token, and forgets those whose time is over.
fn remember_token(sql: &Connection, exchange: &FederationExchange) -> Result<(), ChangeError> {
    let FederationExchange { rule, token, at, .. } = exchange;
    execute(sql, "DELETE FROM federation_tokens WHERE expires <= ?1", [integer(at.0)])?;
    let insert = "INSERT OR IGNORE INTO federation_tokens (org, rule, token, expires) VALUES (?1, ?2, ?3, ?4)";
    let expires = integer(at.after(REMEMBERED).0);
    match execute(sql, insert, params![rule.org.to_string(), rule.name, token.as_bytes(), expires])? {
        0 => Err(ChangeError::TokenReplayed),
        _ => Ok(()),
    }
}

/// Marks keys of rules as retired that ended long enough ago, and as revoked at their ends; a round of them at most.
/// Returns them. A key whose end was put off leaves the lists later.
pub(super) fn retire_ended(connection: &mut Connection, now: Micros) -> rusqlite::Result<Vec<KeyId>> {
    let transaction = connection.transaction()?;
    let mut retired = Vec::new();
    for key in read_ended(&transaction, now)? {
        let end = key_policies::read(&transaction, key)?.and_then(|policy| policy.expires);
        let leaves = end.map(|end| end.after(LISTED_AFTER_END));
        if let Some(later) = leaves.filter(|leaves| *leaves > now) {
            let update = "UPDATE federation_keys SET leaves = ?2 WHERE key = ?1";
            transaction.execute(update, params![key.as_str(), integer(later.0)])?;
            continue;
        }
        // Without an end it is a key like others.
        if let Some(end) = end {
            let update = "UPDATE keys SET retired = ?2, revoked = ifnull(revoked, ?3) WHERE id = ?1";
            transaction.execute(update, params![key.as_str(), integer(now.0), integer(end.0)])?;
            retired.push(key);
        }
        transaction.execute("DELETE FROM federation_keys WHERE key = ?1", [key.as_str()])?;
    }
    transaction.commit()?;
    Ok(retired)
}

fn read_ended(sql: &Connection, now: Micros) -> rusqlite::Result<Vec<KeyId>> {
    let query = "SELECT key AS id FROM federation_keys WHERE leaves <= ?1 ORDER BY leaves LIMIT ?2";
    let mut query = sql.prepare_cached(query)?;
    let mut rows = query.query(params![integer(now.0), KEYS_PER_ROUND])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(text(row, "id")?);
    }
    Ok(keys)
}
