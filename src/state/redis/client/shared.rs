//! State that the clients of all threads share, and the hook that runs on every new connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::settings::{ConnectionSettings, Servers};
use crate::tls;

/// Hook that runs on every new connection, before it serves any command.
///
/// A server that was away may have lost writes that it had acknowledged: it may be a promoted replica, or have loaded an
/// older file. The hook can write them again.
pub(crate) trait OnConnect: Send + Sync {
    /// Prepares a connection. `incarnation` identifies the server process with its replication history: the same text
    /// means that the server still has everything it had acknowledged.
    ///
    /// # Errors
    /// The connection is dropped then, and opened again after a pause.
    fn on_connect<'a>(
        &'a self,
        incarnation: &'a str,
        connection: &'a mut MultiplexedConnection,
    ) -> BoxFuture<'a, Result<(), RedisError>>;
}

/// Settings and observations that the clients of all threads share.
pub(crate) struct ClientShared {
    pub(super) settings: ConnectionSettings,
    pub(super) tls: Option<tokio_rustls::TlsConnector>,
    pub(super) on_connect: Arc<dyn OnConnect>,
    /// True when the servers form a Cluster: by the settings, or as a server reported.
    cluster: AtomicBool,
    /// Incremented whenever the topology may have changed; wakes the tasks that refresh it.
    pub(super) topology: watch::Sender<u64>,
    /// Failovers seen: another server process took over, whose data may lack acknowledged writes.
    failovers: Arc<AtomicU64>,
}

impl ClientShared {
    /// # Errors
    /// [`tls::Error`] when the certificates cannot be read.
    pub(crate) fn new(settings: ConnectionSettings, on_connect: Arc<dyn OnConnect>) -> Result<Self, tls::Error> {
        let tls = settings.tls.as_ref().map(|tls| tls.config()).transpose()?;
        let cluster = AtomicBool::new(matches!(settings.servers, Servers::Cluster(_)));
        Ok(Self {
            settings,
            tls: tls.map(tokio_rustls::TlsConnector::from),
            on_connect,
            cluster,
            topology: watch::Sender::new(0),
            failovers: Arc::default(),
        })
    }

    /// The counter of failovers, of all clients together.
    pub(crate) fn failovers(&self) -> &Arc<AtomicU64> {
        &self.failovers
    }

    /// Returns whether the servers form a Cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster.load(Ordering::Relaxed)
    }

    /// Notes that a server reported to be a node of a Cluster.
    pub(super) fn set_cluster(&self) {
        if !self.cluster.swap(true, Ordering::Relaxed) {
            self.topology_changed();
        }
    }

    pub(super) fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn topology_changed(&self) {
        self.topology.send_modify(|times| *times += 1);
    }
}
