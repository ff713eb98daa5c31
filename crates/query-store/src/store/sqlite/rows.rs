//! Row versions: writing, and reading the current ones and those that a snapshot sees. The caller
//! holds the transaction.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Result, Row, named_params};
use uuid::Uuid;

use crate::query::{Query, QueryDraft};
use crate::store::history::{HistoryFull, ROW_OVERHEAD};
use crate::store::{Bookmark, HistoryLimit, Page, SnapshotExpiry, Version, bound, stored_time};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};

/// Columns of [`QueryRow::read`], in its order.
macro_rules! columns {
    () => {
        "position, id, sql, name, created_at, updated_at, created_by"
    };
}

/// Statement of a first page.
const CURRENT_ROWS: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM queries INDEXED BY queries_current WHERE org = :org AND version_ended IS NULL
      ORDER BY position DESC LIMIT :limit"
);

/// A query and its position in the order of lists.
pub(super) struct QueryRow {
    position: Version,
    pub(super) query: Query,
}

/// An organization: its number in this file, the version of its content, and the bytes of its history.
pub(super) struct Org {
    number: i64,
    version: Version,
    history: i64,
}

/// A page that was read.
pub(super) struct ReadPage {
    /// `None` when its snapshot is not live.
    pub(super) page: Option<Page>,
    /// The organization and the version of the snapshot that must be registered, or for longer.
    pub(super) unregistered: Option<(Org, Version)>,
}

/// Stores a new query.
pub(in crate::store) fn create(
    db: &Connection,
    org: OrgId,
    user: UserId,
    draft: &QueryDraft,
    now: Micros,
) -> Result<Query> {
    let org = next_version(db, org)?;
    let row = QueryRow { position: org.version, query: Query::new(user, draft, now) };
    insert(db, &org, &row)?;
    Ok(row.query)
}

/// Stores new queries in this order, each with its time of creation.
pub(in crate::store) fn import(
    db: &Connection,
    org: OrgId,
    user: UserId,
    drafts: &[(QueryDraft, Micros)],
) -> Result<()> {
    drafts.iter().try_for_each(|(draft, created)| create(db, org, user, draft, *created).map(drop))
}

/// Reads the current version of a query.
pub(in crate::store) fn read(db: &Connection, org: OrgId, id: Uuid) -> Result<Option<Query>> {
    Ok(current(db, org, id)?.map(|row| row.query))
}

/// Checks that the file can be read, in a transaction that holds the lock for writing.
pub(in crate::store) fn check(db: &Connection) -> Result<()> {
    db.query_row("SELECT 1", [], |_| Ok(()))
}

fn current(db: &Connection, org: OrgId, id: Uuid) -> Result<Option<QueryRow>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM queries WHERE org = (SELECT number FROM orgs WHERE org = :org) AND id = :id AND version_ended IS NULL"
    );
    let parameters = named_params! { ":org": org.to_string(), ":id": id.as_bytes() };
    db.prepare_cached(sql)?.query_row(parameters, QueryRow::read).optional()
}

/// Ends the current version of a query and creates the next one, at the same position.
pub(in crate::store) fn replace(
    db: &Connection,
    org: OrgId,
    id: Uuid,
    draft: &QueryDraft,
    now: Micros,
    limit: HistoryLimit,
) -> Result<Result<Option<Query>, HistoryFull>> {
    let Some(mut row) = current(db, org, id)? else { return Ok(Ok(None)) };
    let Some(org) = next_version_that_ends(db, org, &row, limit)? else { return Ok(Err(HistoryFull)) };
    end_current(db, &org, id)?;
    row.query.sql = draft.sql().to_owned();
    row.query.name = draft.name().to_owned();
    // A clock that was set back must not make the query look older.
    row.query.updated_at = now.max(row.query.updated_at);
    insert(db, &org, &row)?;
    Ok(Ok(Some(row.query)))
}

/// Ends the current version of a query.
pub(in crate::store) fn delete(
    db: &Connection,
    org: OrgId,
    id: Uuid,
    limit: HistoryLimit,
) -> Result<Result<bool, HistoryFull>> {
    let Some(row) = current(db, org, id)? else { return Ok(Ok(false)) };
    let Some(org) = next_version_that_ends(db, org, &row, limit)? else { return Ok(Err(HistoryFull)) };
    end_current(db, &org, id)?;
    Ok(Ok(true))
}

/// Reads a page, and registers its snapshot when another page follows. `None` when the snapshot is not live.
pub(super) fn page(
    db: &Connection,
    org: OrgId,
    after: Option<Bookmark>,
    limit: usize,
    expiry: SnapshotExpiry,
    history: HistoryLimit,
) -> Result<Result<Option<Page>, HistoryFull>> {
    let read = read_page(db, org, after, limit, expiry)?;
    if let Some((org, snapshot)) = read.unregistered {
        if after.is_none() && is_full(db, &org, snapshot, history)? {
            return Ok(Err(HistoryFull));
        }
        register_snapshot(db, org.number, snapshot, expiry.renew_to)?;
    }
    Ok(Ok(read.page))
}

/// Reads a page, and tells whether its snapshot must be registered, or for longer: most pages of a busy
/// snapshot need nothing.
pub(super) fn read_page(
    db: &Connection,
    org: OrgId,
    after: Option<Bookmark>,
    limit: usize,
    expiry: SnapshotExpiry,
) -> Result<ReadPage> {
    // An organization without any write has an empty first page and no snapshots.
    let Some(org) = find_org(db, org)? else {
        let page = after.is_none().then_some(Page { items: Vec::new(), next: None });
        return Ok(ReadPage { page, unregistered: None });
    };
    let snapshot = after.map_or(org.version, |bookmark| bookmark.snapshot);
    let registered = snapshot_expiry(db, org.number, snapshot)?;
    if after.is_some() && registered.is_none() {
        return Ok(ReadPage { page: None, unregistered: None });
    }
    // One row more than asked for tells whether another page follows.
    let enough = limit.saturating_add(1);
    let mut rows = match after {
        None => current_rows(db, org.number, enough)?,
        Some(bookmark) => visible_rows(db, org.number, bookmark, enough)?,
    };
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|last| Bookmark { snapshot, after: last.position });
    let is_short = next.is_some() && registered.is_none_or(|until| until < expiry.at_least);
    let page = Page { items: rows.into_iter().map(|row| row.query).collect(), next };
    Ok(ReadPage { page: Some(page), unregistered: is_short.then_some((org, snapshot)) })
}

/// Returns whether the history has no room for what a further snapshot keeps. One that is registered
/// already may be extended.
fn is_full(db: &Connection, org: &Org, snapshot: Version, limit: HistoryLimit) -> Result<bool> {
    Ok(org.history >= limit.bytes_for_snapshots() && snapshot_expiry(db, org.number, snapshot)?.is_none())
}

/// Reads the newest current rows, from an index that has no others: however many ended ones there are.
fn current_rows(db: &Connection, org: i64, limit: usize) -> Result<Vec<QueryRow>> {
    let parameters = named_params! { ":org": org, ":limit": bound(limit) };
    db.prepare_cached(CURRENT_ROWS)?.query_map(parameters, QueryRow::read)?.collect()
}

/// Reads the rows that a snapshot sees after a position, newest first.
fn visible_rows(db: &Connection, org: i64, bookmark: Bookmark, limit: usize) -> Result<Vec<QueryRow>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM queries WHERE org = :org AND position < :before AND version_created <= :snapshot
            AND (version_ended IS NULL OR version_ended > :snapshot)
          ORDER BY position DESC LIMIT :limit"
    );
    let parameters = named_params! {
        ":org": org,
        ":before": bookmark.after.0,
        ":snapshot": bookmark.snapshot.0,
        ":limit": bound(limit),
    };
    db.prepare_cached(sql)?.query_map(parameters, QueryRow::read)?.collect()
}

/// Reads the expiry of a snapshot; `None` when the snapshot is not registered.
fn snapshot_expiry(db: &Connection, org: i64, snapshot: Version) -> Result<Option<Micros>> {
    let sql = "SELECT expires_at FROM snapshots WHERE org = ? AND version = ?";
    db.prepare_cached(sql)?.query_row((org, snapshot.0), |row| read_time(row, 0)).optional()
}

fn register_snapshot(db: &Connection, org: i64, snapshot: Version, until: Micros) -> Result<()> {
    let sql = "INSERT INTO snapshots (org, version, expires_at) VALUES (?, ?, ?)
               ON CONFLICT DO UPDATE SET expires_at = max(expires_at, excluded.expires_at)";
    db.prepare_cached(sql)?.execute((org, snapshot.0, stored_time(until))).map(drop)
}

fn find_org(db: &Connection, org: OrgId) -> Result<Option<Org>> {
    let sql = "SELECT number, version, history FROM orgs WHERE org = ?";
    db.prepare_cached(sql)?.query_row([org.to_string()], Org::read).optional()
}

/// Takes the organization's next version, for a write of this transaction.
fn next_version(db: &Connection, org: OrgId) -> Result<Org> {
    let sql = "INSERT INTO orgs (org, version) VALUES (?, 1)
               ON CONFLICT (org) DO UPDATE SET version = version + 1 RETURNING number, version, history";
    db.prepare_cached(sql)?.query_row([org.to_string()], Org::read)
}

/// Takes the next version of the organization of `ended` for a write that ends this row version, and adds its cost to
/// the history. `None`, without any change, when the history has no room for it.
fn next_version_that_ends(db: &Connection, org: OrgId, ended: &QueryRow, limit: HistoryLimit) -> Result<Option<Org>> {
    let sql = "UPDATE orgs SET version = version + 1, history = history + :cost
               WHERE org = :org AND history + :cost <= :limit RETURNING number, version, history";
    let parameters = named_params! { ":org": org.to_string(), ":cost": ended.cost(), ":limit": limit.bytes() };
    db.prepare_cached(sql)?.query_row(parameters, Org::read).optional()
}

fn insert(db: &Connection, org: &Org, row: &QueryRow) -> Result<()> {
    let sql = "INSERT INTO queries (org, id, version_created, position, name, sql, created_at, updated_at, created_by)
               VALUES (:org, :id, :version, :position, :name, :sql, :created_at, :updated_at, :created_by)";
    let parameters = named_params! {
        ":org": org.number,
        ":id": row.query.id.as_bytes(),
        ":version": org.version.0,
        ":position": row.position.0,
        ":name": row.query.name,
        ":sql": row.query.sql,
        ":created_at": stored_time(row.query.created_at),
        ":updated_at": stored_time(row.query.updated_at),
        ":created_by": row.query.created_by.to_string(),
    };
    db.prepare_cached(sql)?.execute(parameters).map(drop)
}

fn end_current(db: &Connection, org: &Org, id: Uuid) -> Result<()> {
    let sql = "UPDATE queries SET version_ended = ? WHERE org = ? AND id = ? AND version_ended IS NULL";
    db.prepare_cached(sql)?.execute((org.version.0, org.number, id.as_bytes())).map(drop)
}

impl QueryRow {
    fn read(row: &Row<'_>) -> Result<Self> {
        let created_by: String = row.get(6)?;
        let query = Query {
            id: Uuid::from_bytes(row.get(1)?),
            sql: row.get(2)?,
            name: row.get(3)?,
            created_at: read_time(row, 4)?,
            updated_at: read_time(row, 5)?,
            created_by: created_by.parse().map_err(|error| unreadable(6, Type::Text, error))?,
        };
        Ok(Self { position: Version(row.get(0)?), query })
    }

    /// Bytes that the row counts in the history; the same as `history_cost!` gives for it in SQL.
    fn cost(&self) -> i64 {
        let bytes = self.query.name.len() + self.query.sql.len();
        i64::try_from(bytes).unwrap_or(i64::MAX).saturating_add(ROW_OVERHEAD.cast_signed())
    }
}

impl Org {
    fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self { number: row.get(0)?, version: Version(row.get(1)?), history: row.get(2)? })
    }
}

fn read_time(row: &Row<'_>, column: usize) -> Result<Micros> {
    let micros: i64 = row.get(column)?;
    u64::try_from(micros).map(Micros).map_err(|error| unreadable(column, Type::Integer, error))
}

fn unreadable(column: usize, kind: Type, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::store::sqlite::prepare;

    /// Steps of SQLite's machine for a first page of 100.
    fn steps_of_first_page(db: &Connection) -> i32 {
        assert_eq!(current_rows(db, 1, 101).unwrap().len(), 101);
        db.prepare_cached(CURRENT_ROWS).unwrap().reset_status(StatementStatus::VmStep)
    }

    #[test]
    fn first_page_passes_no_ended_row_versions() {
        let mut db = Connection::open_in_memory().unwrap();
        prepare(&mut db).unwrap();
        db.execute_batch(
            "INSERT INTO orgs (number, org, version) VALUES (1, 'org', 100000);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
             INSERT INTO queries SELECT 1, randomblob(16), i, NULL, 'name', 'select 1', 1, 1,
                                        'usr_00000000000000000000000000000001', i FROM n;",
        )
        .unwrap();
        let without = steps_of_first_page(&db);
        db.execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             INSERT INTO queries
             SELECT 1, randomblob(16), 1000 + i, 1001 + i, 'old', 'select 1', 1, 1, '', 1000 - i % 200 FROM n;",
        )
        .unwrap();
        assert_eq!(steps_of_first_page(&db), without);
    }
}
