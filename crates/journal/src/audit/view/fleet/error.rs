//! Errors of reading the records of all gateways.

use platform::postgresql;
use tokio_postgres::error::SqlState;

/// Reason why the records of all gateways will not be readable.
#[derive(Debug, thiserror::Error)]
pub enum OpenFleetError {
    /// The TLS files cannot be used.
    #[error(transparent)]
    Postgresql(#[from] postgresql::Error),
    /// The thread that drives the connections cannot be started.
    #[error("no thread can be started for reading from PostgreSQL")]
    Thread(#[from] std::io::Error),
}

/// Reason why the records of all gateways cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    /// No connection, or a statement failed.
    #[error(transparent)]
    Postgresql(#[from] postgresql::Error),
    /// The deadline has passed.
    #[error("PostgreSQL did not answer in time")]
    Timeout,
    /// The last read has failed a moment ago.
    #[error("PostgreSQL could not be read a moment ago")]
    JustFailed,
    /// The tables are not there.
    #[error("no gateway has shipped records into this database yet")]
    NothingShipped,
    /// A record is not one of this version.
    #[error("a record in PostgreSQL cannot be read; was it written by a newer version?")]
    Record(#[from] serde_json::Error),
}

impl From<tokio_postgres::Error> for FleetError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::UNDEFINED_TABLE) => Self::NothingShipped,
            _ => Self::Postgresql(error.into()),
        }
    }
}
