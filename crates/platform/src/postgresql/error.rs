//! Errors of PostgreSQL.

use tokio_postgres::error::SqlState;

use crate::tls::{Explanation, explain, find_error};

/// A connection could not be made, or a statement failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TLS files cannot be used.
    #[error("the TLS files of PostgreSQL cannot be used")]
    Tls(#[source] crate::tls::Error),
    /// No connection could be made in time.
    #[error("no connection to PostgreSQL at {server} within {} s", within.as_secs_f64())]
    Timeout {
        /// Hosts and database.
        server: String,
        /// The time.
        within: std::time::Duration,
    },
    /// The server could not be reached, or did not accept the connection.
    #[error("no connection to PostgreSQL at {server}")]
    Connect {
        /// Hosts and database.
        server: String,
        /// The reason.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The TLS handshake with the server failed.
    #[error("no TLS with PostgreSQL at {server}: {explanation}")]
    Handshake {
        /// Hosts and database.
        server: String,
        /// The flaw.
        explanation: Explanation,
    },
    /// The server is older than what the statements need.
    #[error("PostgreSQL at {server} is version {version}; version 15 or newer is needed")]
    TooOld {
        /// Hosts and database.
        server: String,
        /// Its version.
        version: String,
    },
    /// The database cannot store every text.
    #[error(
        "the database of PostgreSQL at {server} has the encoding {encoding}, which cannot store every text; make one \
         with UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    Encoding {
        /// Hosts and database.
        server: String,
        /// Its encoding.
        encoding: String,
    },
    /// A statement failed, and its transaction had no effect.
    #[error("PostgreSQL rejected a statement")]
    Statement(#[from] tokio_postgres::Error),
    /// The schema was migrated by a newer program.
    #[error("schema \"{schema}\" has version {found}, this program knows up to {known}; use the newer program")]
    NewerSchema {
        /// Its name.
        schema: &'static str,
        /// Its version in the database.
        found: i32,
        /// The newest version that this program knows.
        known: i32,
    },
}

impl Error {
    /// The error of a connection that could not be made.
    pub(super) fn of_connect(server: String, source: tokio_postgres::Error) -> Self {
        match find_error(&source) {
            Some(error) => Self::Handshake { server, explanation: explain(error) },
            None => Self::Connect { server, source },
        }
    }

    /// True when a new attempt cannot succeed before an operator has changed something: files, versions, the login.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Tls(_) | Self::TooOld { .. } | Self::Encoding { .. } | Self::NewerSchema { .. } => true,
            Self::Connect { source, .. } => is_rejected_login(source),
            Self::Handshake { .. } | Self::Timeout { .. } | Self::Statement(_) => false,
        }
    }

    /// True when a statement failed because of what is in its rows: values that cannot be stored (class 22
    /// of SQLSTATE), a constraint (23), a limit (54), or a trigger that raises an exception. A missing
    /// partition is none of these.
    pub fn is_of_content(&self) -> bool {
        let Self::Statement(error) = self else { return false };
        let Some(error) = error.as_db_error() else { return false };
        match error.code().code().get(..2) {
            Some("23") => error.constraint().is_some() || error.column().is_some(),
            Some("22" | "54") => true,
            _ => *error.code() == SqlState::RAISE_EXCEPTION,
        }
    }
}

/// True when the server refuses the user, the password or the database: classes 28 and 3D of SQLSTATE.
fn is_rejected_login(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("28") || code.code().starts_with("3D"))
}
