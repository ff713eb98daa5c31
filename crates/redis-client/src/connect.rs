//! Connecting to a server that can be used: opened, primary, suitable, and fast enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use redis::cmd;
use tokio::time::timeout;

use super::command_error::is_out_of_memory;
use super::connection::Connection;
use super::dial::{CONNECT_TIMEOUT, ConnectError, Driver, dial};
use super::sentinel;
use super::server_info::ServerInfo;
use super::settings::{Address, ConnectionSettings, Servers};
use super::shared::ClientShared;

/// The server that a link leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// This server.
    Server(Address),
    /// The primary that the sentinels report, found anew on every connect.
    Primary,
}

/// A connection that can be used.
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) driver: Driver,
    /// The address that it leads to, also where Sentinel reported it.
    pub(super) address: Address,
    /// The id of the server process.
    pub(super) run_id: Arc<str>,
    /// The server process with its replication history ([`ServerInfo::incarnation`]).
    pub(super) incarnation: String,
}

/// Opens connections to one target.
pub(super) struct Connector {
    pub(super) target: Target,
    pub(super) shared: Arc<ClientShared>,
    /// Lookups of the primary so far: each begins with another sentinel.
    lookups: AtomicUsize,
    /// True when commands may have to wait on the connection for the replicas of others.
    pub(super) may_block: bool,
}

impl Connector {
    pub(super) fn new(target: Target, shared: Arc<ClientShared>, may_block: bool) -> Self {
        Self { target, shared, lookups: AtomicUsize::new(0), may_block }
    }

    pub(super) fn settings(&self) -> &ConnectionSettings {
        &self.shared.settings
    }

    /// Opens and checks a connection.
    pub(super) async fn connect(&self) -> Result<Connected, ConnectError> {
        let settings = self.settings();
        let address = match (&self.target, &settings.servers) {
            (Target::Server(address), _) => address.clone(),
            (Target::Primary, Servers::Sentinel { sentinels, service }) => {
                let attempt = self.lookups.fetch_add(1, Ordering::Relaxed);
                sentinel::find_primary(&self.shared, sentinels, service, attempt).await?
            }
            (Target::Primary, _) => return Err(ConnectError::NoSentinel),
        };
        let prepare = async {
            let (connection, driver) = dial(&self.shared, &address, &settings.login.load(), settings.database).await?;
            let info = self.check_server(&connection).await?;
            let run_id = info.run_id().into();
            let incarnation = info.incarnation();
            Ok(Connected { connection, driver, address, run_id, incarnation })
        };
        timeout(CONNECT_TIMEOUT, prepare).await.unwrap_or(Err(ConnectError::Silent(CONNECT_TIMEOUT)))
    }

    /// Checks that the server is a loaded primary, can hold the state, and is fast enough.
    async fn check_server(&self, connection: &Connection) -> Result<ServerInfo, ConnectError> {
        let info: String = connection.query(&cmd("INFO")).await?;
        let info = ServerInfo::parse(&info);
        if info.is_cluster() {
            // One configured node of a Cluster is enough: the others are discovered from now on.
            self.shared.set_cluster();
        }
        if info.is_loading() {
            return Err(ConnectError::Loading);
        }
        // On a Cluster a replica answers with MOVED, and the link stays useful after it was promoted.
        if !info.is_primary() && !info.is_cluster() {
            return Err(ConnectError::Replica);
        }
        info.check_suitable()?;
        if info.is_primary() && info.replicas() > 0 && !self.settings().waits_for_replicas {
            self.shared.warn_of_unused_replicas(info.replicas());
        }
        self.check_latency(connection, info.is_cluster()).await?;
        Ok(info)
    }

    /// Checks that a write completes within the deadline. A Cluster node accepts only keys of its own hash slots, so
    /// there the probe is a `PING`.
    async fn check_latency(&self, connection: &Connection, cluster: bool) -> Result<(), ConnectError> {
        let mut probe = cmd("PING");
        if !cluster {
            probe = cmd("SET");
            probe.arg(&self.settings().probe_key).arg(1).arg("PX").arg(1000);
        }
        let started = Instant::now();
        match connection.query::<()>(&probe).await {
            // Refused in time. What withdraws something is accepted all the same.
            Err(error) if is_out_of_memory(&error) => self.shared.note_out_of_memory(),
            written => written?,
        }
        let deadline = self.settings().deadline;
        if started.elapsed() > deadline { Err(ConnectError::Slow(deadline)) } else { Ok(()) }
    }
}
