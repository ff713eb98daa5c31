//! query-store: the upstream service that ships with keygate. It stores queries and lists them in pages.
//!
//! It owns the queries of each organization, consistent sequences of pages over them ([`store`] defines snapshots), and
//! the cursors that continue a sequence ([`cursor`]).
//!
//! # Deployment
//!
//! The service trusts the identity headers of every request, so **only the gateway may reach it**: bind it to loopback
//! beside the gateway (the default), or to an address of a private network that only the gateway can route to. A
//! request without the headers is refused. This detects a service that is exposed by mistake, but does not stop an
//! attacker who sends the headers.

mod server;
pub mod http;
pub mod service;
pub mod query;
pub mod cursor;
mod key_file;
pub mod store;
mod seed;
mod settings;

pub use seed::seed;
pub use server::{run, serve};
pub use service::QueryService;
pub use settings::{CursorSettings, Settings, StoreSettings};

use cursor::{Keyring, KeyringError};
use service::ServiceLimits;
use store::{PostgresqlError, PostgresqlStore, SqliteStore, Store};

/// The service could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store could not be opened.
    #[error("cannot open {}", path.display())]
    Store {
        /// The database file.
        path: std::path::PathBuf,
        /// Cause.
        #[source]
        source: store::sqlite::OpenError,
    },
    /// The store in PostgreSQL could not be opened.
    #[error("cannot open the store in PostgreSQL")]
    Postgresql(#[from] PostgresqlError),
    /// A store in PostgreSQL has no place for a generated cursor key.
    #[error("a store in PostgreSQL needs `cursor.keys`, the same ones at all query-stores of the database")]
    NoCursorKeys,
    /// The generated cursor key could not be read or created.
    #[error("cannot read or create the cursor key {}", path.display())]
    KeyFile {
        /// The key file.
        path: std::path::PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The configured cursor keys are not usable.
    #[error("cannot use the cursor keys")]
    Keyring(#[from] KeyringError),
}

/// Opens the service: creates the store when it does not exist, and generates a cursor key beside a SQLite file when
/// none is configured. Makes no connection to PostgreSQL: [`store::Store::prepare`] does, or the first operation.
///
/// # Errors
/// [`OpenError`].
pub fn open(settings: &Settings) -> Result<QueryService, OpenError> {
    let store = open_store(settings)?;
    let limits = ServiceLimits { cursor_lifetime: settings.cursor.lifetime, body: settings.max_body };
    Ok(QueryService::new(store, load_keyring(settings)?, limits))
}

fn open_store(settings: &Settings) -> Result<Store, OpenError> {
    match &settings.store {
        StoreSettings::Sqlite { path } => {
            let opened = SqliteStore::open(path).map_err(|source| OpenError::Store { path: path.clone(), source });
            Ok(Store::Sqlite(opened?.with_history_limit(settings.history)))
        }
        StoreSettings::Postgresql(postgresql) => {
            let database = &postgresql.database;
            if !database.is_encrypted() && !database.is_local() {
                tracing::warn!(%database, "connections to PostgreSQL are not encrypted; set `tls` or sslmode=require");
            }
            Ok(Store::Postgresql(PostgresqlStore::open(postgresql)?.with_history_limit(settings.history)))
        }
    }
}

/// Builds the keyring from the configured keys, or else from the key file beside the database.
fn load_keyring(settings: &Settings) -> Result<Keyring, OpenError> {
    let configured = &settings.cursor.keys;
    if !configured.is_empty() {
        return Ok(Keyring::new(configured.iter().map(|(id, secret)| (*id, secret)))?);
    }
    let StoreSettings::Sqlite { path: database } = &settings.store else { return Err(OpenError::NoCursorKeys) };
    let path = key_file::path(database);
    let secret = key_file::load_or_generate(&path).map_err(|source| OpenError::KeyFile { path, source })?;
    Ok(Keyring::new([(key_file::ID, &secret)])?)
}

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
