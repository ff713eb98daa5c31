//! Errors of the PostgreSQL engine.

use std::error::Error as StdError;
use std::time::Duration;

use deadpool_postgres::{BuildError, PoolError};
use tokio_postgres::error::SqlState;

use platform::postgresql;

/// SQLSTATE of the functions of the schema that would exceed the limit of the history.
const HISTORY_FULL: &str = "KG001";

/// An operation failed in PostgreSQL or on the way to it.
#[derive(Debug, thiserror::Error)]
pub enum PostgresqlError {
    /// The pool could not be created.
    #[error("the pool of connections cannot be created")]
    Pool(#[from] BuildError),
    /// TLS files cannot be used, or the tables could not be created or migrated.
    #[error("the database cannot be used")]
    Database(#[from] postgresql::Error),
    /// There is no connection; nothing was sent.
    #[error("no connection to the database")]
    NoConnection(#[from] PoolError),
    /// A statement failed, or the connection ended before its answer.
    #[error("the database did not complete a statement")]
    Statement(#[from] tokio_postgres::Error),
    /// The database accepts no writes: it is a replica, or was made read-only.
    #[error("the database at {server} accepts no writes")]
    ReadOnly {
        /// Hosts and database.
        server: String,
    },
    /// There was no answer within the deadline; a write may still have its effect.
    #[error("the database at {server} did not answer within {} s", within.as_secs_f64())]
    Timeout {
        /// Hosts and database.
        server: String,
        /// The deadline.
        within: Duration,
    },
    /// A row has content that this program does not write.
    #[error("a row cannot be read")]
    Unreadable(#[source] Box<dyn StdError + Send + Sync>),
}

impl PostgresqlError {
    /// True when a new attempt cannot succeed before an operator has changed something.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Pool(_) => true,
            Self::Database(error) => error.is_permanent(),
            _ => false,
        }
    }

    /// True when the connection must not be used again: it leads to a server that has become a replica.
    pub(super) fn is_read_only(&self) -> bool {
        match self {
            Self::ReadOnly { .. } => true,
            Self::Statement(error) => error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION),
            _ => false,
        }
    }

    /// True when the history of the organization has no room for the operation, which had no effect.
    pub(crate) fn is_history_full(&self) -> bool {
        matches!(self, Self::Statement(error) if error.code().is_some_and(|code| code.code() == HISTORY_FULL))
    }

    pub(super) fn unreadable(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Unreadable(Box::new(error))
    }
}
