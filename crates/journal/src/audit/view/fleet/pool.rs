//! The records of all gateways: connections for reading, and the thread that drives them.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::error::{FleetError, OpenFleetError};
use platform::postgresql::{self, Connector};

/// Idle connections that are kept: as many as reads that run at a time.
const MAX_IDLE: usize = 4;
/// Time after a failure in which PostgreSQL is not tried: longer than a page takes, short enough for a
/// person who reloads it.
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// The records of all gateways: few connections for reading, and the thread that drives them.
pub struct Fleet {
    connector: Connector,
    deadline: Duration,
    state: Mutex<PoolState>,
    handle: Handle,
    /// The thread ends when this is dropped.
    _thread: oneshot::Sender<()>,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Client>,
    /// Time of the last failure; `None` after a success.
    failed: Option<Instant>,
}

/// A read-only transaction. It is rolled back when dropped.
pub(crate) struct Snapshot<'a> {
    fleet: &'a Fleet,
    client: Client,
    until: Instant,
}

impl Fleet {
    /// Prepares to read from a database; makes no connection yet. A read takes up to `deadline`.
    ///
    /// # Errors
    /// When the TLS files cannot be used, and when no thread can be started.
    pub fn open(settings: postgresql::Settings, deadline: Duration) -> Result<Self, OpenFleetError> {
        let connector = Connector::open(settings)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (thread, dropped) = oneshot::channel::<()>();
        let drive = move || {
            drop(runtime.block_on(dropped));
            // A look-up of a name may hang; the process does not wait for it.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("audit-view".into()).spawn(drive)?;
        Ok(Self { connector, deadline, state: Mutex::default(), handle, _thread: thread })
    }

    /// Hosts and database, for messages.
    pub fn server(&self) -> String {
        self.connector.server()
    }

    /// Begins a read-only transaction, and notes whether PostgreSQL answers.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, FleetError> {
        if self.state.lock().failed.is_some_and(|failed| failed.elapsed() < RETRY_AFTER) {
            return Err(FleetError::JustFailed);
        }
        self.try_snapshot().inspect_err(|error| self.note_failure(error))
    }

    /// As [`Fleet::snapshot`], with more time for what is read in it.
    pub(crate) fn snapshot_within(&self, time: Duration) -> Result<Snapshot<'_>, FleetError> {
        let mut snapshot = self.snapshot()?;
        let milliseconds = time.as_millis();
        let settings = format!(
            "SET LOCAL statement_timeout = {milliseconds}; SET LOCAL idle_in_transaction_session_timeout = \
             {milliseconds}"
        );
        self.run(snapshot.until, snapshot.client.batch_execute(&settings))?;
        snapshot.until = Instant::now() + time;
        Ok(snapshot)
    }

    fn try_snapshot(&self) -> Result<Snapshot<'_>, FleetError> {
        const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let until = Instant::now() + self.deadline;
        // An idle connection may be dead without having noticed it.
        while let Some(client) = self.take_idle() {
            if self.run(until, client.batch_execute(BEGIN)).is_ok() {
                return Ok(Snapshot { fleet: self, client, until });
            }
        }
        let client = self.run(until, self.connect())?;
        self.run(until, client.batch_execute(BEGIN))?;
        Ok(Snapshot { fleet: self, client, until })
    }

    async fn connect(&self) -> Result<Client, FleetError> {
        // Renewed certificates are used from the next connection on.
        if let Err(error) = self.connector.reload() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot reload the TLS files for reading the audit; using those of before"
            );
        }
        let client = self.connector.connect("keygate-view").await?;
        // A statement that is given up here ends there as well.
        let milliseconds = self.deadline.as_millis();
        let settings = format!(
            "SET statement_timeout = {milliseconds}; SET idle_in_transaction_session_timeout = {milliseconds}; \
             SET TimeZone = 'UTC'; SET jit = off"
        );
        client.batch_execute(&settings).await?;
        Ok(client)
    }

    fn run<T, E: Into<FleetError>>(
        &self,
        until: Instant,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, FleetError> {
        self.handle.block_on(async {
            tokio::time::timeout_at(until.into(), future).await.map_err(|_| FleetError::Timeout)?.map_err(Into::into)
        })
    }

    fn take_idle(&self) -> Option<Client> {
        let mut state = self.state.lock();
        state.idle.retain(|client| !client.is_closed());
        state.idle.pop()
    }

    /// Notes that a read has failed, and logs the first failure.
    fn note_failure(&self, error: &FleetError) {
        let mut state = self.state.lock();
        state.idle.clear();
        if state.failed.replace(Instant::now()).is_none() {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                server = self.server(),
                "the records of all gateways cannot be read from PostgreSQL; this gateway's own are shown"
            );
        }
    }

    /// Notes that a read has succeeded, and keeps its connection.
    fn note_success(&self, client: Client) {
        let mut state = self.state.lock();
        if state.failed.take().is_some() {
            tracing::info!(server = self.server(), "the records of all gateways can be read again");
        }
        if state.idle.len() < MAX_IDLE {
            state.idle.push(client);
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fleet({})", self.server())
    }
}

impl Snapshot<'_> {
    /// Runs a statement.
    pub(crate) fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, FleetError> {
        self.query_much(sql, params).inspect_err(|error| self.fleet.note_failure(error))
    }

    /// Runs a statement that may have to read too much for the time there is: its failure does not say that PostgreSQL
    /// is away.
    pub(crate) fn query_much(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, FleetError> {
        self.fleet.run(self.until, self.client.query(sql, params))
    }

    /// Ends the transaction, and keeps the connection for the next read.
    pub(crate) fn finish(self) {
        match self.fleet.run(self.until, self.client.batch_execute("COMMIT")) {
            Ok(()) => self.fleet.note_success(self.client),
            Err(error) => self.fleet.note_failure(&error),
        }
    }
}
