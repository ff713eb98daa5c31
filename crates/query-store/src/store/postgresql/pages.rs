//! Pages, and the registration of their snapshots.
//!
//! A page and the registration of its snapshot are read in one statement, and so in one state of the database:
//!
//! - A registration that lives long enough keeps the rows of the snapshot, because it is only ever extended before it
//!   expires. Most pages end here, and write nothing.
//! - A registration that must be extended is extended if it still exists: then nothing that the
//!   snapshot sees was collected.
//! - The snapshot of a first page is registered under the lock of the organization (`register_snapshot`). When a write
//!   was faster, the page is read again at the version that was registered.

use deadpool_postgres::Client;

use super::error::PostgresqlError;
use super::rows::{QueryRow, columns, read_time};
use crate::store::{Bookmark, HistoryLimit, Page, SnapshotExpiry, Version, bound, stored_time};
use domain::clock::Micros;
use domain::identity::OrgId;

/// Statement that reads the rows of a page, given the version of its snapshot, the condition of its rows `r`, and their
/// maximum number. Both lateral parts have a limit, so that each is a search of its index in every plan.
macro_rules! page_sql {
    ($snapshot:literal, $rows:literal, $limit:literal) => {
        concat!(
            "SELECT o.version, s.expires_at, ",
            columns!(),
            " FROM query_store.orgs AS o
              LEFT JOIN LATERAL (
                  SELECT n.expires_at FROM query_store.snapshots AS n
                  WHERE n.org = o.number AND n.version = ",
            $snapshot,
            "::bigint LIMIT 1
              ) AS s ON true
              LEFT JOIN LATERAL (
                  SELECT r.* FROM query_store.queries AS r
                  WHERE r.org = o.number AND ",
            $rows,
            " ORDER BY r.position DESC LIMIT ",
            $limit,
            "::bigint
              ) AS q ON true
              WHERE o.org = $1"
        )
    };
}

/// Content of a page, as one state of the database has it.
struct ReadPage {
    /// Version of the organization in that state.
    version: Version,
    /// Registration of the snapshot in that state.
    registered_until: Option<Micros>,
    /// Rows that the snapshot sees, newest first: one more than the page shows, if there are as many.
    rows: Vec<QueryRow>,
}

/// Judgement of a page that was read.
#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    /// The page can be returned; its snapshot, if another page follows, lives long enough.
    Complete(Page),
    /// The page is right, but its snapshot must be registered, or for longer.
    Unregistered(Page),
    /// The snapshot is not live.
    Gone,
}

/// Reads a page, and registers its snapshot when another page follows. `None` when the snapshot is not live.
pub(super) async fn page(
    client: &Client,
    org: OrgId,
    after: Option<Bookmark>,
    limit: usize,
    expiry: SnapshotExpiry,
    history: HistoryLimit,
) -> Result<Option<Page>, PostgresqlError> {
    // An organization without any write has an empty first page and no snapshots.
    let Some(read) = read(client, org, after, limit).await? else {
        return Ok(after.is_none().then_some(Page { items: Vec::new(), next: None }));
    };
    match (read.judge(after, limit, expiry), after) {
        (Judgement::Complete(page), _) => Ok(Some(page)),
        (Judgement::Gone, _) => Ok(None),
        (Judgement::Unregistered(page), Some(bookmark)) => {
            Ok(extend_snapshot(client, org, bookmark.snapshot, expiry.renew_to).await?.then_some(page))
        }
        (Judgement::Unregistered(page), None) => register_first(client, org, page, limit, expiry, history).await,
    }
}

/// Registers the snapshot of a first page, and reads the page again when its version is no longer the newest.
async fn register_first(
    client: &Client,
    org: OrgId,
    page: Page,
    limit: usize,
    expiry: SnapshotExpiry,
    history: HistoryLimit,
) -> Result<Option<Page>, PostgresqlError> {
    let snapshot = register_snapshot(client, org, expiry.renew_to, history).await?;
    if page.next.is_some_and(|next| next.snapshot == snapshot) {
        return Ok(Some(page));
    }
    let newest = Bookmark { snapshot, after: Version(snapshot.0.saturating_add(1)) };
    let read = read(client, org, Some(newest), limit).await?;
    Ok(read.and_then(|read| match read.judge(Some(newest), limit, expiry) {
        Judgement::Complete(page) | Judgement::Unregistered(page) => Some(page),
        Judgement::Gone => None,
    }))
}

/// Reads the rows of a page with the registration of their snapshot. `None` when the organization has never written.
async fn read(
    client: &Client,
    org: OrgId,
    after: Option<Bookmark>,
    limit: usize,
) -> Result<Option<ReadPage>, PostgresqlError> {
    // One row more than asked for tells whether another page follows.
    let limit = bound(limit).saturating_add(1);
    let org = org.to_string();
    let found = match after {
        None => {
            // The index of the current rows has no others, so the page costs the same however many have ended.
            let sql = page_sql!("o.version", "r.version_ended = 9223372036854775807", "$2");
            client.query(&client.prepare_cached(sql).await?, &[&org, &limit]).await?
        }
        Some(bookmark) => {
            let sql =
                page_sql!("$2", "r.position < $3::bigint AND r.version_created <= $2 AND r.version_ended > $2", "$4");
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, &[&org, &bookmark.snapshot.0, &bookmark.after.0, &limit]).await?
        }
    };
    let Some(first) = found.first() else { return Ok(None) };
    let registered_until = first.try_get::<_, Option<i64>>(1)?.map(read_time).transpose()?;
    let mut read = ReadPage { version: Version(first.try_get(0)?), registered_until, rows: Vec::new() };
    for row in &found {
        // The only row of an empty page has no query.
        if row.try_get::<_, Option<i64>>(2)?.is_some() {
            read.rows.push(QueryRow::read(row, 2)?);
        }
    }
    // The join keeps the order of the rows; this does not depend on it.
    read.rows.sort_by_key(|row| std::cmp::Reverse(row.position));
    Ok(Some(read))
}

/// Extends the registration of a snapshot; returns false when there is none.
async fn extend_snapshot(
    client: &Client,
    org: OrgId,
    snapshot: Version,
    until: Micros,
) -> Result<bool, PostgresqlError> {
    let sql = "UPDATE query_store.snapshots AS s SET expires_at = greatest(s.expires_at, $3::bigint)
               FROM query_store.orgs AS o WHERE o.org = $1 AND s.org = o.number AND s.version = $2";
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, &[&org.to_string(), &snapshot.0, &stored_time(until)]).await? == 1)
}

/// Registers the newest version of an organization as a snapshot, and returns it.
async fn register_snapshot(
    client: &Client,
    org: OrgId,
    until: Micros,
    history: HistoryLimit,
) -> Result<Version, PostgresqlError> {
    let statement = client.prepare_cached("SELECT query_store.register_snapshot($1, $2, $3)").await?;
    let limit = history.bytes_for_snapshots();
    let row = client.query_one(&statement, &[&org.to_string(), &stored_time(until), &limit]).await?;
    Ok(Version(row.try_get(0)?))
}

impl ReadPage {
    /// Makes a page of the rows, and judges the registration of its snapshot.
    fn judge(mut self, after: Option<Bookmark>, limit: usize, expiry: SnapshotExpiry) -> Judgement {
        if after.is_some() && self.registered_until.is_none() {
            return Judgement::Gone;
        }
        let snapshot = after.map_or(self.version, |bookmark| bookmark.snapshot);
        let more = self.rows.len() > limit;
        self.rows.truncate(limit);
        let next = self.rows.last().filter(|_| more).map(|last| Bookmark { snapshot, after: last.position });
        let page = Page { items: self.rows.into_iter().map(|row| row.query).collect(), next };
        let lives_long_enough = self.registered_until.is_some_and(|until| until >= expiry.at_least);
        if more && !lives_long_enough { Judgement::Unregistered(page) } else { Judgement::Complete(page) }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::query::Query;
    use domain::identity::UserId;

    const EXPIRY: SnapshotExpiry = SnapshotExpiry { at_least: Micros(100), renew_to: Micros(110) };

    fn read(rows: i64, registered_until: Option<u64>) -> ReadPage {
        let row = |position| QueryRow {
            position: Version(position),
            query: Query {
                id: Uuid::nil(),
                sql: "select 1".into(),
                name: position.to_string(),
                created_at: Micros(1),
                updated_at: Micros(1),
                created_by: UserId::generate(),
            },
        };
        let registered_until = registered_until.map(Micros);
        ReadPage { version: Version(9), registered_until, rows: (1..=rows).rev().map(row).collect() }
    }

    fn bookmark(snapshot: i64) -> Option<Bookmark> {
        Some(Bookmark { snapshot: Version(snapshot), after: Version(snapshot) })
    }

    #[test]
    fn page_with_a_successor_needs_a_registration_that_outlives_its_cursor() {
        for (registered, complete) in [(None, false), (Some(99), false), (Some(100), true), (Some(101), true)] {
            let judged = read(4, registered).judge(None, 3, EXPIRY);
            assert_eq!(matches!(judged, Judgement::Complete(_)), complete, "{registered:?}");
            let (Judgement::Complete(page) | Judgement::Unregistered(page)) = judged else { panic!("{judged:?}") };
            assert_eq!(page.items.len(), 3);
            assert_eq!(page.next, Some(Bookmark { snapshot: Version(9), after: Version(2) }));
        }
    }

    #[test]
    fn last_page_needs_no_registration_but_that_of_its_snapshot() {
        for registered in [None, Some(1)] {
            let judged = read(3, registered).judge(None, 3, EXPIRY);
            assert!(matches!(&judged, Judgement::Complete(page) if page.next.is_none()), "{judged:?}");
        }
        assert!(matches!(read(3, Some(1)).judge(bookmark(5), 3, EXPIRY), Judgement::Complete(_)));
        assert_eq!(read(3, None).judge(bookmark(5), 3, EXPIRY), Judgement::Gone);
    }

    #[test]
    fn successor_shows_the_snapshot_of_its_bookmark() {
        let judged = read(4, Some(200)).judge(bookmark(5), 3, EXPIRY);
        let Judgement::Complete(page) = judged else { panic!("{judged:?}") };
        assert_eq!(page.next.unwrap().snapshot, Version(5));
    }
}
