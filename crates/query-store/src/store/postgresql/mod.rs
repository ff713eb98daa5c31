//! The store in a PostgreSQL database, which any number of query-stores share.
//!
//! - An operation is one statement, or one call of a function of the schema (`schema.sql`), and so one transaction:
//!   none stays open while this program computes, waits or is gone. Garbage collection alone sends several statements.
//! - Versions are in commit order: a write holds the lock of its organization's row until it has committed.
//! - A page reads everything in one statement, and so in one state of the database (`pages`).
//! - A write is durable when it returns: `synchronous_commit` is at least `on`.
//! - Every operation ends within the deadline: the server ends its statements (`statement_timeout`), and when the
//!   server does not answer, the connection is given up.
//! - The engine's own limits: a write waits for the previous one of its organization to be on disk, so one organization
//!   has about as many writes per second as the disk has flushes; organizations do not wait for each other.
//! - The tables are created and migrated before the first operation. A database that is away when the program
//!   starts only delays that.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::store::{Bookmark, HistoryLimit, Page, SnapshotExpiry, StoreError};
use domain::identity::OrgId;
use platform::postgresql::{self, Connector, Migration, Schema};

mod error;
mod database;
pub(super) mod rows;
mod pages;
pub(super) mod garbage;

pub use error::PostgresqlError;

use database::Database;

/// The tables. The lock's number is arbitrary, and the same in every release.
const SCHEMA: Schema =
    Schema { name: "query_store", lock: 7_163_889_501, migrations: &[Migration(include_str!("schema.sql"))] };

/// Time by which the clocks of several query-stores may differ: far more than those of machines that synchronize them,
/// and little beside the lifetime of a cursor.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Settings of a store in PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresqlSettings {
    /// The database.
    pub database: postgresql::Settings,
    /// Maximum number of connections to it.
    pub connections: usize,
    /// Time after which an operation fails.
    pub deadline: Duration,
}

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresqlStore {
    database: Database,
    /// Set once the tables have the version of this program.
    migrated: OnceCell<()>,
    /// Bound of each organization's history.
    pub(super) history: HistoryLimit,
}

impl PostgresqlStore {
    /// Opens the store; makes no connection. Its history has the default limit.
    ///
    /// # Errors
    /// If TLS files cannot be used.
    pub fn open(settings: &PostgresqlSettings) -> Result<Self, PostgresqlError> {
        let PostgresqlSettings { database, connections, deadline } = settings;
        Ok(Self {
            database: Database::open(database.clone(), *connections, *deadline)?,
            migrated: OnceCell::new(),
            history: HistoryLimit::default(),
        })
    }

    /// Sets the bound of each organization's history: the same at all query-stores of the database.
    #[must_use]
    pub fn with_history_limit(self, history: HistoryLimit) -> Self {
        Self { history, ..self }
    }

    /// Creates or migrates the tables, without a deadline: a migration may take long.
    pub(super) async fn prepare(&self) -> Result<(), PostgresqlError> {
        self.migrated.get_or_try_init(|| self.database.migrate(&SCHEMA)).await.copied()
    }

    /// Reloads the TLS files where they have changed.
    pub(super) fn reload_tls(&self) {
        self.database.reload_tls();
    }

    /// The part that makes connections.
    pub(super) fn connector(&self) -> Arc<Connector> {
        self.database.connector()
    }

    /// Hosts and database, for messages.
    pub(super) fn server(&self) -> String {
        self.database.server()
    }

    pub(super) async fn page(
        &self,
        org: OrgId,
        after: Option<Bookmark>,
        limit: usize,
        expiry: SnapshotExpiry,
    ) -> Result<Option<Page>, StoreError> {
        self.run(async |client| pages::page(client, org, after, limit, expiry, self.history).await).await
    }

    /// Runs an operation, once the tables are there.
    pub(super) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut deadpool_postgres::Client) -> Result<T, PostgresqlError>,
    ) -> Result<T, StoreError> {
        if !self.migrated.initialized() {
            let prepared = tokio::time::timeout(self.database.deadline(), self.prepare()).await;
            prepared.map_err(|_| self.database.timed_out())??;
        }
        Ok(self.database.run(work).await?)
    }
}
