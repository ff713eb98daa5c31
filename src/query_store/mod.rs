//! query-store: the upstream that ships with keygate, a small service that stores queries and pages through them.
//!
//! It owns what the gateway does not: the queries of each organization, consistent page sequences over them
//! ([`store`] has the rule of snapshots), and the cursors that carry a sequence ([`cursor`]).
//!
//! # Deployment
//!
//! The service believes the identity headers of every request. **Nobody but the gateway may reach it**: bind it to
//! loopback beside the gateway (the default), or to an address of a private network that only the gateway can route to,
//! and let no other port lead there. A request without the headers is refused, which catches the mistake of exposing
//! it, and not an attacker who makes up the headers.
//!
//! # Embedding
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use keygate::query_store::{self, Settings};
//!
//! let settings = Settings::embedded("data/queries.db".into());
//! let service = query_store::open(&settings)?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! query_store::run(listener, service, settings.drain, std::future::pending())?;
//! # Ok(())
//! # }
//! ```

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
use store::{SqliteStore, Store};

/// The service cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store cannot be opened.
    #[error("cannot open {}", path.display())]
    Store {
        /// Its file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: store::sqlite::OpenError,
    },
    /// The generated cursor key cannot be read or made.
    #[error("cannot read or make the cursor key {}", path.display())]
    KeyFile {
        /// Its file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The cursor keys cannot be used.
    #[error("cannot use the cursor keys")]
    Keyring(#[from] KeyringError),
}

/// Opens the store, and makes it when there is none; the same with the cursor key when none is configured.
///
/// # Errors
/// [`OpenError`].
pub fn open(settings: &Settings) -> Result<QueryService, OpenError> {
    let StoreSettings::Sqlite { path } = &settings.store;
    let opened = SqliteStore::open(path).map_err(|source| OpenError::Store { path: path.clone(), source });
    let store = Store::Sqlite(opened?);
    let limits = ServiceLimits { cursor_lifetime: settings.cursor.lifetime, body: settings.max_body };
    Ok(QueryService::new(store, keyring(settings)?, limits))
}

fn keyring(settings: &Settings) -> Result<Keyring, OpenError> {
    let configured = &settings.cursor.keys;
    if !configured.is_empty() {
        return Ok(Keyring::new(configured.iter().map(|(id, secret)| (*id, secret)))?);
    }
    let StoreSettings::Sqlite { path: database } = &settings.store;
    let path = key_file::path(database);
    let secret = key_file::load_or_generate(&path).map_err(|source| OpenError::KeyFile { path, source })?;
    Ok(Keyring::new([(key_file::ID, &secret)])?)
}
