//! Errors of the store, of either engine.

use super::postgresql::PostgresqlError;

/// An operation of the store failed and had no effect; after [`StoreError::Commit`], [`StoreError::Closed`] and
/// [`StoreError::Postgresql`] it may have had its effect.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The engine rejected a statement.
    #[error("the database rejected a statement")]
    Statement(#[source] rusqlite::Error),
    /// The transaction of the operation could not be begun or committed.
    #[error("the database could not commit")]
    Commit(#[source] std::sync::Arc<rusqlite::Error>),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// Live snapshots of the organization keep as much history as is allowed; nothing was changed.
    #[error("the unexpired cursors of the organization keep as many replaced and deleted queries as is allowed")]
    HistoryFull,
    /// The operation failed in PostgreSQL or on the way to it.
    #[error("PostgreSQL did not complete the operation")]
    Postgresql(#[source] PostgresqlError),
}

impl From<PostgresqlError> for StoreError {
    fn from(error: PostgresqlError) -> Self {
        if error.is_history_full() { Self::HistoryFull } else { Self::Postgresql(error) }
    }
}

impl StoreError {
    /// True when a new attempt cannot succeed before an operator has changed something.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Postgresql(error) if error.is_permanent())
    }
}
