//! One database: its pool of connections, and operations with a deadline.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Client, Object};
use tokio::time::Instant;

use super::error::PostgresqlError;
use platform::postgresql::{self, Connector, Pool, PoolOptions, Schema};

/// `application_name` of the connections.
const NAME: &str = "query-store";

/// A database.
#[derive(Debug)]
pub(super) struct Database {
    connector: Arc<Connector>,
    pool: Pool,
    deadline: Duration,
}

impl Database {
    /// Reads the TLS files; makes no connection.
    pub(super) fn open(
        settings: postgresql::Settings,
        connections: usize,
        deadline: Duration,
    ) -> Result<Self, PostgresqlError> {
        let connector = Arc::new(Connector::open(settings)?);
        let options = PoolOptions { name: NAME, connections, wait: deadline, session: session(deadline) };
        let pool = postgresql::build_pool(&connector, options)?;
        Ok(Self { connector, pool, deadline })
    }

    /// Creates or migrates a schema, on a connection of its own: those of the pool end long statements.
    pub(super) async fn migrate(&self, schema: &Schema) -> Result<(), PostgresqlError> {
        let mut client = self.connector.connect(NAME).await?;
        let applied = postgresql::migrate(&mut client, schema).await?;
        if applied > 0 {
            tracing::info!(
                server = self.connector.server(),
                schema = schema.name,
                migrations = applied,
                "migrated the tables"
            );
        }
        Ok(())
    }

    /// Runs an operation with a connection of the pool, within the deadline.
    pub(super) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, PostgresqlError>,
    ) -> Result<T, PostgresqlError> {
        let end = Instant::now() + self.deadline;
        let client = tokio::time::timeout_at(end, self.pool.get()).await;
        let mut client = client.map_err(|_| self.timed_out())??;
        match tokio::time::timeout_at(end, work(&mut client)).await {
            Ok(done) => {
                // The server has become read-only, as after a failover: a new connection may reach the primary.
                if done.as_ref().is_err_and(PostgresqlError::is_read_only) {
                    drop(Object::take(client));
                }
                done
            }
            Err(_) => {
                // The connection is discarded: its statement is still running, and the next
                // operation would wait for it.
                drop(Object::take(client));
                Err(self.timed_out())
            }
        }
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn timed_out(&self) -> PostgresqlError {
        PostgresqlError::Timeout { server: self.server(), within: self.deadline }
    }

    /// Hosts and database, for messages.
    pub(super) fn server(&self) -> String {
        self.connector.server()
    }

    /// The part that makes its connections.
    pub(super) fn connector(&self) -> Arc<Connector> {
        Arc::clone(&self.connector)
    }

    /// Reloads the TLS files where they have changed; new connections use them.
    pub(super) fn reload_tls(&self) {
        match self.connector.reload() {
            Ok(files) if files.is_empty() => {}
            Ok(files) => tracing::info!(?files, "reloaded the TLS files of PostgreSQL"),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "cannot reload the TLS files of PostgreSQL; the old ones stay in use"
            ),
        }
    }
}

/// Statements that set up the session of a connection.
///
/// - The functions of the schema need `read committed`: a statement after a lock sees what was committed before it.
/// - All access is by index. The planner is kept from other plans, which it could choose by statistics of a time when
///   the tables were small, and so is the compiler of large plans (`jit`).
fn session(deadline: Duration) -> String {
    // 0 would mean no limit.
    let milliseconds = deadline.as_millis().max(1);
    format!(
        "SET default_transaction_isolation = 'read committed';
         SET statement_timeout = {milliseconds};
         SET idle_in_transaction_session_timeout = {milliseconds};
         SET enable_seqscan = off; SET enable_bitmapscan = off;
         SET enable_hashjoin = off; SET enable_mergejoin = off;
         SET jit = off;
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
}
