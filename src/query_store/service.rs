//! What the service does, before it is spoken in HTTP: queries of one organization, and pages with their cursors.

use std::time::Duration;

use uuid::Uuid;

use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::query_store::cursor::{Cursor, CursorError, Endpoint, Keyring, Scope};
use crate::query_store::query::{Query, QueryDraft};
use crate::query_store::store::{Bookmark, GcProgress, Page, SnapshotExpiry, Store, StoreError};

/// Which part of the cursor lifetime a snapshot is registered for in advance, so that a busy one is written only that
/// often: a twenty-fourth, one hour of a day.
const ADVANCE: u32 = 24;
/// Row versions that one batch of the collector looks at: some milliseconds of the store's time.
const BATCH: usize = 200;

/// The service over its store.
#[derive(Debug)]
pub struct QueryService {
    store: Store,
    cursors: Keyring,
    limits: ServiceLimits,
}

/// What the service allows.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLimits {
    /// How long a cursor is valid from its making.
    pub cursor_lifetime: Duration,
    /// Bytes of a request body.
    pub body: u64,
}

/// On whose behalf a request is made, as the gateway says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The organization whose queries it sees.
    pub org: OrgId,
    /// The user who is named as creator.
    pub user: UserId,
}

/// A page as it goes out.
#[derive(Debug)]
pub struct Listing {
    /// Newest first.
    pub items: Vec<Query>,
    /// The token for the next page; none on the last one.
    pub next: Option<String>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The cursor is refused.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The store cannot answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No cursor can be sealed.
    #[error("no randomness for a cursor")]
    Randomness(#[from] getrandom::Error),
}

/// What one pass of the collector did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcTotals {
    /// Snapshots forgotten.
    pub snapshots: usize,
    /// Row versions removed.
    pub removed: usize,
}

impl QueryService {
    /// A service over a store.
    pub fn new(store: Store, cursors: Keyring, limits: ServiceLimits) -> Self {
        Self { store, cursors, limits }
    }

    /// What it allows.
    pub fn limits(&self) -> ServiceLimits {
        self.limits
    }

    /// What it stores in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A page of at most `limit` queries: the first of a new sequence, or the one that `token` leads to.
    ///
    /// Each token is valid for the cursor lifetime from `now`, and so is the snapshot that it reads from.
    ///
    /// # Errors
    /// [`ListError`].
    pub async fn list(&self, org: OrgId, token: Option<&str>, limit: usize, now: Micros) -> Result<Listing, ListError> {
        let scope = Scope { endpoint: Endpoint::Queries, org };
        let after = token.map(|token| self.cursors.open(scope, token, now)).transpose()?;
        let expires = now.after(self.limits.cursor_lifetime);
        let expiry =
            SnapshotExpiry { at_least: expires, renew_to: expires.after(self.limits.cursor_lifetime / ADVANCE) };
        let page = self.store.page(org, after.map(|cursor| cursor.bookmark), limit, expiry).await?;
        // An authentic cursor without its snapshot: it expired while we asked, or the database was put back to an
        // earlier state. Either way the sequence cannot go on, and has to begin again.
        let Page { items, next } = page.ok_or(CursorError::Expired)?;
        let next = next.map(|bookmark| self.seal(scope, bookmark, expires)).transpose()?;
        Ok(Listing { items, next })
    }

    /// Stores a new query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create(&self, caller: Caller, draft: QueryDraft, now: Micros) -> Result<Query, StoreError> {
        self.store.create(caller.org, caller.user, draft, now).await
    }

    /// One query; none when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read(&self, org: OrgId, id: Uuid) -> Result<Option<Query>, StoreError> {
        self.store.read(org, id).await
    }

    /// Replaces a query; none when the organization has no such query.
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
        self.store.replace(org, id, draft, now).await
    }

    /// Deletes a query; false when the organization has no such query.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, org: OrgId, id: Uuid) -> Result<bool, StoreError> {
        self.store.delete(org, id).await
    }

    /// Whether it can serve.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    /// One whole pass of the collector, in batches between which other work is done.
    ///
    /// # Errors
    /// [`StoreError`]; what was collected stays so, the next pass begins again.
    pub async fn collect_garbage(&self, now: Micros) -> Result<GcTotals, StoreError> {
        let mut swept = GcTotals::default();
        let mut from = Some(GcProgress::default());
        while let Some(progress) = from {
            let batch = self.store.collect_garbage(progress, BATCH, now).await?;
            swept.snapshots += batch.snapshots;
            swept.removed += batch.removed;
            from = batch.next;
            tokio::task::yield_now().await;
        }
        Ok(swept)
    }

    fn seal(&self, scope: Scope, bookmark: Bookmark, expires: Micros) -> Result<String, getrandom::Error> {
        self.cursors.seal(scope, Cursor { bookmark, expires })
    }
}
