//! The store of queries, and the contract that each engine keeps.
//!
//! # Versions and snapshots
//!
//! Every write of an organization takes its next [`Version`], in the transaction of the write, so versions are in the
//! order of the commits. Content is kept in *row versions*, each with the version that created it and the one that ended
//! it: an edit ends one and creates another, a deletion ends one. A snapshot is nothing but a version `v`; it sees
//! exactly the row versions that were created at or before `v` and not ended at or before `v`. So additions after `v`
//! never appear, deletions after `v` still do, and edits after `v` do not show.
//!
//! The order is newest first, by *position*: the version at which the query was created. It is total, because no two
//! writes share a version, and an edit does not change it.
//!
//! # What is kept, and for how long
//!
//! A snapshot is *live* while it is registered. It is registered, and its registration extended, in the very transaction
//! that reads a page with a successor; a page of a snapshot that is not live is refused. [`Store::collect`] first forgets
//! snapshots whose time is over, then removes ended row versions that no live snapshot sees. It works in small batches,
//! between other work. So the store holds, at any time:
//!
//! - the current content of each organization;
//! - for each live snapshot what it saw, that is, at most its collection once more. A snapshot lives until
//!   [`SnapshotExpiry::renew_to`] of the last page of it that was served with a successor: the cursor lifetime and a twenty-fourth
//!   of it, 25 hours by default. Sequences that started between the same two writes share one snapshot;
//! - row versions that ended since the last full pass of the collector.
//!
//! Only an edit or a deletion ends a row version, so what is kept of the past is at most one row version for each edit
//! and deletion since the oldest live snapshot. In other words: a row version that no page sequence sees is gone within
//! one pass after it ended, and one that a sequence sees within 25 hours and one pass after the sequence's last page.

use uuid::Uuid;

use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::query_store::query::{Query, QueryDraft};

pub mod sqlite;

pub use sqlite::SqliteStore;

/// A point in the history of one organization's collection: how many writes came before, this one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

/// Where a sequence of pages stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark {
    /// What the sequence shows.
    pub snapshot: Version,
    /// The position of the last query shown.
    pub after: Version,
}

/// How long a snapshot must live from the page that is read now.
///
/// The two differ so that most pages find their snapshot registered long enough, and write nothing.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotExpiry {
    /// The expiry of the cursor that goes out with the page.
    pub at_least: Micros,
    /// What the registration is set to when it does not reach that far.
    pub renew_to: Micros,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Newest first.
    pub items: Vec<Query>,
    /// Where the next page begins; none on the last page, also when that is exactly full.
    pub next: Option<Bookmark>,
}

/// Where a pass of the collector stands: the last row version it looked at. Opaque but to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GcProgress(i64, i64);

/// What one batch of the collector did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcBatch {
    /// Snapshots forgotten.
    pub snapshots: usize,
    /// Row versions removed.
    pub removed: usize,
    /// Where the next batch of this pass begins; none when the pass is complete.
    pub next: Option<GcProgress>,
}

/// How much the store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Row versions that are current.
    pub current: u64,
    /// Row versions that have ended and are kept for live snapshots, or not yet collected.
    pub ended: u64,
    /// Registered snapshots.
    pub snapshots: u64,
}

/// The store could not do it. What was asked did not happen, except that after [`StoreError::Commit`] and
/// [`StoreError::Closed`] it may have.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The engine refused a statement.
    #[error("the database refused a statement")]
    Statement(#[source] rusqlite::Error),
    /// The transaction that it was part of was not begun or not committed.
    #[error("the database did not commit")]
    Commit(#[source] std::sync::Arc<rusqlite::Error>),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// A store of queries.
#[derive(Debug)]
pub enum Store {
    /// In one SQLite file.
    Sqlite(SqliteStore),
}

impl Store {
    /// Stores a new query and returns it once it is durable.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create(&self, org: OrgId, user: UserId, draft: QueryDraft, now: Micros) -> Result<Query, StoreError> {
        match self {
            Self::Sqlite(store) => store.create(org, user, draft, now).await,
        }
    }

    /// Stores new queries, each created at its time, in this order: all of them or none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn import(&self, org: OrgId, user: UserId, drafts: Vec<(QueryDraft, Micros)>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.import(org, user, drafts).await,
        }
    }

    /// One query as it is now; none when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read(&self, org: OrgId, id: Uuid) -> Result<Option<Query>, StoreError> {
        match self {
            Self::Sqlite(store) => store.read(org, id).await,
        }
    }

    /// Replaces name and text of a query; none when the organization has no such query.
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
            Self::Sqlite(store) => store.replace(org, id, draft, now).await,
        }
    }

    /// Deletes a query; false when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, org: OrgId, id: Uuid) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(store) => store.delete(org, id).await,
        }
    }

    /// A page of at most `limit` queries: the first of a new sequence, or the one after a bookmark. None when the
    /// bookmark's snapshot is not live.
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
        }
    }

    /// One batch of collection: looks at `batch` snapshots or row versions at most, at least one. A pass begins at the default
    /// [`GcProgress`] and goes on with [`GcBatch::next`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn collect_garbage(&self, from: GcProgress, batch: usize, now: Micros) -> Result<GcBatch, StoreError> {
        match self {
            Self::Sqlite(store) => store.collect_garbage(from, batch, now).await,
        }
    }

    /// How much there is. Counts, so it takes time in proportion; for tests and operators.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stats(&self) -> Result<StoreStats, StoreError> {
        match self {
            Self::Sqlite(store) => store.stats().await,
        }
    }

    /// Whether the store answers and can write.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot.
    pub async fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.check().await,
        }
    }
}
