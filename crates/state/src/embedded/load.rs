//! Reads the state file whole, at start.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::cursor_secret::CursorSecret;
use crate::{Defaults, Key, Org, OrgPolicy, User};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::key::{KeyDigest, KeyId, OrgTag};

use super::directory::Directory;
use super::key::StoredKey;
use super::sql::{Columns, for_each_row, invalid, micros, optional_text, text, time};
use super::{budgets, federation, key_policies, load_keys, management_tokens, retired, session_rows, usage_blocks};

/// The columns of a user, in the order in which [`user`] reads them.
const USER_COLUMNS: &str = "id, org, email, permissions, created, removed, withdrawn, suspended, \
                            coalesce(suspended_by_operator, 0), responsible, plan, budget, provider, person";

/// Reads the whole directory, with its sessions.
pub(super) fn load(path: &Path, connection: &Connection, defaults: Defaults) -> rusqlite::Result<Directory> {
    // Rows are numbered from 1, and none is removed. Counted, they would be a whole index to read. Retired keys have
    // room, too.
    let keys: Option<i64> = connection.query_row("SELECT max(rowid) FROM keys", [], |row| row.get(0))?;
    let directory = Directory::with_capacity(usize::try_from(keys.unwrap_or(0)).unwrap_or(0), defaults);
    for_each_row(connection, "SELECT * FROM orgs ORDER BY rowid", |row| org(row).map(|org| directory.add_org(org)))?;
    let users = format!("SELECT {USER_COLUMNS} FROM users ORDER BY rowid");
    for_each_row(connection, &users, |row| user(row).map(|user| directory.add_user(user)))?;
    load_keys::load(path, connection, &directory)?;
    key_policies::for_each(connection, |key, policy| directory.set_policy(key, Some(Box::new(policy))))?;
    for_each_row(connection, "SELECT digest, key FROM replaced", |row| {
        let digest = KeyDigest::from_bytes(row.get("digest")?);
        text(row, "key").map(|key| directory.add_replaced_digest(digest, key))
    })?;
    retired::load_replaced(connection, &directory.retired)?;
    session_rows::load(connection, &directory.sessions)?;
    management_tokens::load(connection, &directory.management_tokens)?;
    federation::load(connection, &directory.federation)?;
    budgets::load(connection, &directory.budgets)?;
    Ok(directory)
}

/// The time up to which the file has counted every use; the epoch when no use was written back yet.
pub(super) fn read_written_back_at(connection: &Connection) -> rusqlite::Result<Micros> {
    let mut statement = connection.prepare("SELECT value FROM meta WHERE name = 'written_back_at'")?;
    let mut rows = statement.query([])?;
    rows.next()?.map_or(Ok(Micros(0)), |row| row.get(0).map(micros))
}

/// The number of the journal's line up to which the file has counted every use; `None` when it is not known.
pub(super) fn read_written_back_line(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let mut statement = connection.prepare("SELECT value FROM meta WHERE name = 'written_back_line'")?;
    let mut rows = statement.query([])?;
    rows.next()?.map(|row| row.get::<_, i64>(0).map(i64::cast_unsigned)).transpose()
}

/// The secret that the cursors of lists are sealed with; made and stored when the file has none yet.
pub(super) fn read_cursor_secret(connection: &Connection) -> rusqlite::Result<CursorSecret> {
    let fresh = CursorSecret::generate().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES ('cursors', ?1)", [fresh.as_bytes()])?;
    connection
        .query_row("SELECT value FROM secrets WHERE name = 'cursors'", [], |row| row.get(0))
        .map(CursorSecret::from_bytes)
}

/// Reads one organization.
pub(super) fn read_org(connection: &Connection, id: OrgId) -> rusqlite::Result<Option<Org>> {
    connection.prepare_cached("SELECT * FROM orgs WHERE id = ?1")?.query_row([id.to_string()], org).optional()
}

/// Reads one user, also one that was removed.
pub(super) fn read_user(connection: &Connection, id: UserId) -> rusqlite::Result<Option<User>> {
    let query = format!("SELECT {USER_COLUMNS} FROM users WHERE id = ?1");
    connection.prepare_cached(&query)?.query_row([id.to_string()], user).optional()
}

/// Reads one key, also a retired one. Its usage is that of its row, which may be old.
pub(super) fn read_key(connection: &Connection, id: KeyId) -> rusqlite::Result<Option<Key>> {
    // Not joins: SQLite plans those anew for every value.
    let query = format!(
        "SELECT {}, (SELECT org FROM users WHERE users.id = keys.user) AS org,
           (SELECT policy FROM key_policies WHERE key = keys.id) AS policy FROM keys WHERE id = ?1",
        load_keys::COLUMNS
    );
    let mut query = connection.prepare_cached(&query)?;
    let mut rows = query.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let org: OrgId = text(row, "org")?;
    let Some(stored) = load_keys::key(row, None, |_| Some(org))? else { return Ok(None) };
    let policy: Option<String> = row.get("policy")?;
    Ok(Some(Key { policy: policy.map(|policy| key_policies::parse(&policy).map(Box::new)).transpose()?, ..stored.key }))
}

/// Reads the retired key with this id, and its digests before the last rotation.
pub(super) fn read_retired(
    connection: &Connection,
    id: KeyId,
) -> rusqlite::Result<Option<(StoredKey, Vec<KeyDigest>)>> {
    let query = format!(
        "SELECT {}, users.org, usage.content FROM keys JOIN users ON users.id = keys.user
           LEFT JOIN usage ON usage.block = keys.rowid / {}
          WHERE keys.retired IS NOT NULL AND keys.id = ?1",
        load_keys::COLUMNS,
        usage_blocks::KEYS_PER_BLOCK
    );
    let mut query = connection.prepare(&query)?;
    let mut rows = query.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let Some(mut stored) = retired_key(row)? else { return Ok(None) };
    stored.key.policy = key_policies::read(connection, id)?;
    let mut replaced = connection.prepare("SELECT digest FROM replaced WHERE key = ?1")?;
    let digests = replaced.query_map([id.as_str()], |row| row.get(0).map(KeyDigest::from_bytes))?;
    let digests = digests.collect::<rusqlite::Result<_>>()?;
    Ok(Some((stored, digests)))
}

/// The ids of the retired keys of an organization, in their order.
pub(super) fn read_retired_ids(connection: &Connection, tag: OrgTag) -> rusqlite::Result<Vec<KeyId>> {
    let query = "SELECT id FROM keys WHERE retired IS NOT NULL AND id BETWEEN ?1 AND ?1 || '~' ORDER BY id";
    let mut query = connection.prepare_cached(query)?;
    let mut rows = query.query([tag.as_str()])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(text(row, "id")?);
    }
    Ok(ids)
}

fn retired_key(row: &Row<'_>) -> rusqlite::Result<Option<StoredKey>> {
    let org: OrgId = text(row, "org")?;
    let block: Option<Vec<u8>> = row.get("content")?;
    let number = row.get(0)?;
    let usage = block.and_then(|block| usage_blocks::read_entry(&block, number));
    load_keys::key(row, usage, |_| Some(org))
}

fn org(row: &Row<'_>) -> rusqlite::Result<Org> {
    Ok(Org {
        id: text(row, "id")?,
        tag: text(row, "tag")?,
        name: row.get("name")?,
        created: time(row, "created")?.unwrap_or_default(),
        suspended: row.get("suspended")?,
        concurrent: row.get("concurrent")?,
        plan: optional_text(row, "plan")?,
        budget: optional_text(row, "budget")?,
        policy: policy(row)?,
    })
}

fn policy(row: &Row<'_>) -> rusqlite::Result<OrgPolicy> {
    let json: Option<String> = row.get("policy")?;
    OrgPolicy::from_record(json.as_deref()).map_err(|error| invalid(row, "policy", error))
}

fn voucher(columns: &mut Columns<'_>) -> rusqlite::Result<Option<Voucher>> {
    let provider: Option<String> = columns.value()?;
    provider.map(|provider| Ok(Voucher { provider, person: columns.text()? })).transpose()
}

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    let mut columns = Columns::new(row);
    let id = columns.text()?;
    let org = columns.text()?;
    let email = columns.value()?;
    let permissions: String = columns.value()?;
    let permissions = permissions.split(',').filter(|permission| !permission.is_empty()).map(str::parse::<Permission>);
    Ok(User {
        id,
        org,
        email,
        permissions: permissions.collect::<Result<_, _>>().map_err(|error| invalid(row, "permissions", error))?,
        created: columns.time()?.unwrap_or_default(),
        removed: columns.time()?,
        withdrawn: columns.time()?,
        suspended: columns.time()?,
        suspended_by_operator: columns.value()?,
        responsible: columns.optional_text()?,
        plan: columns.optional_text()?,
        budget: columns.optional_text()?,
        // The last one: without a provider it does not read the person.
        vouched_by: voucher(&mut columns)?,
    })
}
