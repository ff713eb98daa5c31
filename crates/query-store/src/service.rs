//! Operations of the service, independent of HTTP: the queries of an organization, and pages with their cursors.

use std::time::Duration;

use crate::cursor::{Cursor, CursorError, Endpoint, Keyring, Scope};
use crate::query::Query;
use crate::store::{GcProgress, Page, SnapshotExpiry, Store, StoreError};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};

/// Divisor of the cursor lifetime that gives the time by which a snapshot is registered in advance: one hour of a day.
/// The registration of a busy snapshot is then written only once in that time.
const REGISTRATION_ADVANCE: u32 = 24;
/// Snapshots or row versions per batch of garbage collection: some milliseconds of the store's time.
const GC_BATCH: usize = 200;

/// The service: a store, and the keys of its cursors.
#[derive(Debug)]
pub struct QueryService {
    store: Store,
    cursors: Keyring,
    limits: ServiceLimits,
}

/// Limits of the service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLimits {
    /// Lifetime of a cursor from its creation.
    pub cursor_lifetime: Duration,
    /// Maximum size of a request body, in bytes.
    pub body: u64,
}

/// The caller of a request, by the identity headers of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The organization whose queries are visible.
    pub org: OrgId,
    /// The user; the creator of new queries.
    pub user: UserId,
}

/// A page of a list, with the cursor in its sealed form.
#[derive(Debug)]
pub struct Listing {
    /// The queries, newest first.
    pub items: Vec<Query>,
    /// Cursor for the next page; `None` on the last one.
    pub next: Option<String>,
}

/// A page could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The cursor is invalid or expired.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No cursor can be sealed, because the operating system has no random numbers.
    #[error("no randomness for a cursor")]
    Randomness(#[from] getrandom::Error),
}

/// Result of one pass of garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcTotals {
    /// Number of expired snapshots that were deleted.
    pub snapshots: usize,
    /// Number of row versions that were deleted.
    pub removed: usize,
}

impl QueryService {
    /// Creates a service over a store.
    pub fn new(store: Store, cursors: Keyring, limits: ServiceLimits) -> Self {
        Self { store, cursors, limits }
    }

    /// Limits of the service.
    pub fn limits(&self) -> ServiceLimits {
        self.limits
    }

    /// Store of the service.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Lists a page of at most `limit` queries: the first page of a new sequence, or the next one
    /// by the cursor `token`.
    ///
    /// The returned cursor and the snapshot that it reads are valid for the cursor lifetime from `now`.
    ///
    /// # Errors
    /// [`ListError`].
    pub async fn list(&self, org: OrgId, token: Option<&str>, limit: usize, now: Micros) -> Result<Listing, ListError> {
        let scope = Scope { endpoint: Endpoint::Queries, org };
        let after = token.map(|token| self.cursors.open(scope, token, now)).transpose()?;
        let expires = now.after(self.limits.cursor_lifetime);
        let expiry = SnapshotExpiry {
            at_least: expires,
            renew_to: expires.after(self.limits.cursor_lifetime / REGISTRATION_ADVANCE),
        };
        let page = self.store.page(org, after.map(|cursor| cursor.bookmark), limit, expiry).await?;
        // The cursor is authentic but its snapshot is gone: it expired meanwhile, or an older database was restored.
        // Either way the sequence cannot continue and must begin again.
        let Page { items, next } = page.ok_or(CursorError::Expired)?;
        let next = next.map(|bookmark| self.cursors.seal(scope, Cursor { bookmark, expires })).transpose()?;
        Ok(Listing { items, next })
    }

    /// Runs one whole pass of garbage collection, in batches between which other work is done.
    ///
    /// # Errors
    /// [`StoreError`]. Batches that were completed stay so, and the next pass begins anew.
    pub async fn collect_garbage(&self, now: Micros) -> Result<GcTotals, StoreError> {
        let mut totals = GcTotals::default();
        let mut from = Some(GcProgress::default());
        while let Some(progress) = from {
            let batch = self.store.collect_garbage(progress, GC_BATCH, now).await?;
            totals.snapshots += batch.snapshots;
            totals.removed += batch.removed;
            from = batch.next;
            tokio::task::yield_now().await;
        }
        Ok(totals)
    }
}
