//! State that the clients of all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use super::last_replication::{LastReplication, ReplicationStatus};
use super::live_links::LiveLinks;
use super::settings::{ConnectionSettings, Servers};
use crate::tls;

/// Settings and observations that the clients of all threads share.
pub(crate) struct ClientShared {
    pub(super) settings: ConnectionSettings,
    pub(super) tls: Option<tokio_rustls::TlsConnector>,
    /// True when the servers form a Cluster: by the settings, or as a server reported.
    cluster: AtomicBool,
    /// Incremented whenever the topology may have changed; wakes the tasks that refresh it.
    pub(super) topology: watch::Sender<u64>,
    /// Failovers seen: another server process took over, whose data may lack acknowledged writes.
    failovers: Arc<AtomicU64>,
    live_links: Arc<LiveLinks>,
    /// Replicas of the primaries.
    pub(super) last_replication: LastReplication,
    /// True once the warning of replicas that no change waits for was logged.
    warned_of_replicas: AtomicBool,
}

impl ClientShared {
    /// # Errors
    /// [`tls::Error`] when the certificates cannot be read.
    pub(crate) fn new(settings: ConnectionSettings) -> Result<Self, tls::Error> {
        let tls = settings.tls.as_ref().map(|tls| tls.config()).transpose()?;
        let cluster = AtomicBool::new(matches!(settings.servers, Servers::Cluster(_)));
        Ok(Self {
            settings,
            tls: tls.map(tokio_rustls::TlsConnector::from),
            cluster,
            topology: watch::Sender::new(0),
            failovers: Arc::default(),
            live_links: Arc::new(LiveLinks::new()),
            last_replication: LastReplication::new(),
            warned_of_replicas: AtomicBool::new(false),
        })
    }

    /// The counter of failovers, of all clients together.
    pub(crate) fn failovers(&self) -> &Arc<AtomicU64> {
        &self.failovers
    }

    /// The links that are connected, of all clients together.
    pub(crate) fn live_links(&self) -> &Arc<LiveLinks> {
        &self.live_links
    }

    /// Replicas of the primaries at the last look; none while no primary answers.
    pub(crate) fn replication(&self) -> Option<ReplicationStatus> {
        self.last_replication.status()
    }

    /// Changes whenever the topology may have changed.
    pub(crate) fn subscribe_topology(&self) -> watch::Receiver<u64> {
        self.topology.subscribe()
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

    /// Logs, once for the process, that the server has replicas and changes do not wait for them.
    pub(super) fn warn_of_unused_replicas(&self, replicas: u32) {
        if !self.warned_of_replicas.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                replicas,
                "Redis has replicas, but `state.redis.durability.replicas` is 0: a failover may undo changes that were \
                 acknowledged, such as new keys and suspensions; set it to 1 or more"
            );
        }
    }

    pub(super) fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the topology may have changed, so that all clients look at it anew.
    pub(crate) fn topology_changed(&self) {
        self.topology.send_modify(|times| *times += 1);
    }
}
