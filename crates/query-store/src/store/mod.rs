//! The store of queries, and the contract of its engines.
//!
//! # Versions and snapshots
//!
//! Every write of an organization takes the organization's next [`Version`] in its transaction, so versions are in
//! commit order. Content is kept in *row versions* (MVCC), each with the version that created it and the one that ended
//! it: an edit ends one row version and creates another, a deletion ends one. A snapshot is a version `v`; it sees
//! exactly the row versions that were created at or before `v` and not ended at or before `v`. So additions after `v`
//! never appear, rows deleted after `v` still do, and edits after `v` do not show.
//!
//! Lists are ordered newest first, by *position*: the version at which the query was created. The order is total,
//! because no two writes share a version, and an edit does not change it.
//!
//! # Retention
//!
//! A snapshot is *live* while it is registered. The transaction that reads a page with a successor also registers the
//! snapshot, or extends its registration; a page of a snapshot that is not live is refused. [`Store::collect_garbage`]
//! first deletes expired snapshots, then the ended row versions that no live snapshot sees. It works in small batches
//! between other work. So the store holds, at any time:
//!
//! - the current content of each organization;
//! - the row versions that live snapshots see, at most the organization's content once more for each. A snapshot lives
//!   until [`SnapshotExpiry::renew_to`] of its last page with a successor: the cursor lifetime and a twenty-fourth of
//!   it, 25 hours by default. Sequences that started between the same two writes share one snapshot;
//! - row versions that ended since the last full pass of garbage collection.
//!
//! Only an edit or a deletion ends a row version, so at most one ended row version is kept for each edit and deletion
//! since the oldest live snapshot. A row version that no page sequence sees is deleted within one pass after it ended;
//! one that a sequence sees, within 25 hours and one pass after the last page of the sequence; in a store that several
//! programs share, five minutes later, because their clocks may differ ([`Store::clock_tolerance`]). The ended row
//! versions of an organization are bounded in bytes ([`history`]).

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::query::{Query, QueryDraft};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use platform::postgresql::Connector;

mod error;
pub mod history;
pub mod sqlite;
pub mod postgresql;

pub use error::StoreError;
pub use history::{DEFAULT_MAX_HISTORY, HistoryLimit};
pub use postgresql::{PostgresqlError, PostgresqlStore};
pub use sqlite::SqliteStore;

/// Version of an organization's content: the number of its writes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

/// Position of a sequence of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark {
    /// The snapshot that the sequence shows.
    pub snapshot: Version,
    /// The position of the last query shown.
    pub after: Version,
}

/// Time until which a snapshot must live because of the page that is read now.
///
/// The two times differ so that most pages find their snapshot registered for long enough, and write nothing.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotExpiry {
    /// Expiry of the cursor that is returned with the page.
    pub at_least: Micros,
    /// New expiry of the snapshot when it would expire before `at_least`.
    pub renew_to: Micros,
}

/// A page of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The queries, newest first.
    pub items: Vec<Query>,
    /// Position of the next page; `None` on the last page, also when that is exactly full.
    pub next: Option<Bookmark>,
}

/// Progress of a pass of garbage collection: the last row version that was examined. Opaque except to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GcProgress(i64, i64);

/// Result of one batch of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcBatch {
    /// Number of expired snapshots that were deleted.
    pub snapshots: usize,
    /// Number of row versions that were deleted.
    pub removed: usize,
    /// Start of the next batch of this pass; `None` when the pass is complete.
    pub next: Option<GcProgress>,
}

/// Numbers of rows in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Current row versions.
    pub current: u64,
    /// Ended row versions, kept for live snapshots or not yet deleted.
    pub ended: u64,
    /// Registered snapshots.
    pub snapshots: u64,
}

/// A store of queries.
#[derive(Debug)]
pub enum Store {
    /// One SQLite file.
    Sqlite(SqliteStore),
    /// A PostgreSQL database, which several query-stores may share.
    Postgresql(PostgresqlStore),
}

impl Store {
    /// Stores a new query, and returns it once it is durable.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create(&self, org: OrgId, user: UserId, draft: QueryDraft, now: Micros) -> Result<Query, StoreError> {
        match self {
            Self::Sqlite(store) => store.write(move |db| sqlite::rows::create(db, org, user, &draft, now)).await,
            Self::Postgresql(store) => {
                store.run(async |client| postgresql::rows::create(client, org, user, &draft, now).await).await
            }
        }
    }

    /// Stores new queries in this order, each with its time of creation: all of them or none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn import(&self, org: OrgId, user: UserId, drafts: Vec<(QueryDraft, Micros)>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.write(move |db| sqlite::rows::import(db, org, user, &drafts)).await,
            Self::Postgresql(store) => {
                store.run(async |client| postgresql::rows::import(client, org, user, &drafts).await).await
            }
        }
    }

    /// Reads a query in its current version; `None` when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read(&self, org: OrgId, id: Uuid) -> Result<Option<Query>, StoreError> {
        match self {
            Self::Sqlite(store) => store.read(move |db| sqlite::rows::read(db, org, id)).await,
            Self::Postgresql(store) => store.run(async |client| postgresql::rows::read(client, org, id).await).await,
        }
    }

    /// Replaces name and text of a query; returns `None` when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn replace(
        &self,
        org: OrgId,
        id: Uuid,
        draft: QueryDraft,
        now: Micros,
    ) -> Result<Option<Query>, StoreError> {
        match self {
            Self::Sqlite(store) => {
                store.write_within(move |db, history| sqlite::rows::replace(db, org, id, &draft, now, history)).await
            }
            Self::Postgresql(store) => {
                let history = store.history;
                store.run(async |client| postgresql::rows::replace(client, org, id, &draft, now, history).await).await
            }
        }
    }

    /// Deletes a query; returns false when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, org: OrgId, id: Uuid) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(store) => {
                store.write_within(move |db, history| sqlite::rows::delete(db, org, id, history)).await
            }
            Self::Postgresql(store) => {
                store.run(async |client| postgresql::rows::delete(client, org, id, store.history).await).await
            }
        }
    }

    /// Reads a page of at most `limit` queries: the first page of a new sequence, or the one after a bookmark. `None`
    /// when the bookmark's snapshot is not live.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page(
        &self,
        org: OrgId,
        after: Option<Bookmark>,
        limit: usize,
        expiry: SnapshotExpiry,
    ) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Sqlite(store) => store.page(org, after, limit, expiry).await,
            Self::Postgresql(store) => store.page(org, after, limit, expiry).await,
        }
    }

    /// Runs one batch of garbage collection, which examines at most `batch` snapshots or row versions; at least 1. A
    /// pass begins at the default [`GcProgress`] and continues with [`GcBatch::next`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn collect_garbage(&self, from: GcProgress, batch: usize, now: Micros) -> Result<GcBatch, StoreError> {
        match self {
            Self::Sqlite(store) => store.write(move |db| sqlite::garbage::collect(db, from, batch, now)).await,
            Self::Postgresql(store) => {
                store.run(async |client| postgresql::garbage::collect(client, from, batch, now).await).await
            }
        }
    }

    /// Counts the rows, in time proportional to their number; for tests and operators.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stats(&self) -> Result<StoreStats, StoreError> {
        match self {
            Self::Sqlite(store) => store.write(sqlite::garbage::stats).await,
            Self::Postgresql(store) => store.run(async |client| postgresql::garbage::stats(client).await).await,
        }
    }

    /// Makes the store ready, without a deadline: creates or migrates the tables of a PostgreSQL database. Operations
    /// do the same before they begin, within their deadline.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::is_permanent`] tells whether a new attempt can succeed.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgresql(store) => Ok(store.prepare().await?),
        }
    }

    /// Time by which the clocks of the programs that share the store may differ: garbage is collected so much later.
    pub fn clock_tolerance(&self) -> Duration {
        match self {
            Self::Sqlite(_) => Duration::ZERO,
            Self::Postgresql(_) => postgresql::CLOCK_TOLERANCE,
        }
    }

    /// Reloads TLS files that have changed; they are used for new connections.
    pub fn reload_tls(&self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgresql(store) => store.reload_tls(),
        }
    }

    /// The part that makes connections to PostgreSQL; none of a file. Its password can be replaced while the store is
    /// used.
    pub fn connector(&self) -> Option<Arc<Connector>> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgresql(store) => Some(store.connector()),
        }
    }

    /// Checks that the store can be read and written.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot.
    pub async fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.write(sqlite::rows::check).await,
            Self::Postgresql(store) => {
                store.run(async |client| postgresql::rows::check_writable(client, || store.server()).await).await
            }
        }
    }
}

/// Converts a time to its form in both engines: microseconds, saturating in the year 294247.
fn stored_time(time: Micros) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// Converts a number of rows to the bound of a statement.
fn bound(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
