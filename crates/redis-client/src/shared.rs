//! State that the clients of all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::live_links::LiveLinks;
use super::server_info::ReplicationStatus;
use super::settings::{ConnectionSettings, Login, Servers};
use domain::clock::{self, Micros};
use platform::tls;

/// Time after a write was refused because the server's memory is full in which it counts as full, and the background
/// work leaves it alone. Its heartbeat asks again sooner, also without requests.
const OUT_OF_MEMORY_FOR: Duration = Duration::from_secs(1);

/// Microseconds by which clocks may differ that are synchronized.
const CLOCK_TOLERANCE: u64 = 1_000_000;

/// Settings and observations that the clients of all threads share.
pub struct ClientShared {
    pub(super) settings: ConnectionSettings,
    pub(super) tls: Option<tokio_rustls::TlsConnector>,
    /// True when the servers form a Cluster: by the settings, or as a server reported.
    cluster: AtomicBool,
    /// Incremented whenever the topology may have changed; wakes the tasks that refresh it.
    pub(super) topology: watch::Sender<u64>,
    /// Failovers seen: another server process took over, whose data may lack acknowledged writes.
    failovers: Arc<AtomicU64>,
    live_links: Arc<LiveLinks>,
    /// Replicas of the primaries at the last look, which the thread that renders the metrics reads; none while no
    /// primary answers.
    pub(super) last_replication: Mutex<Option<ReplicationStatus>>,
    /// Microseconds by which the servers' clock is ahead of that of this process: the median of the primaries at the
    /// last look.
    pub(super) clock_ahead: AtomicI64,
    /// True once the warning of replicas that no change waits for was logged.
    warned_of_replicas: AtomicBool,
    /// Steady time at which a server last refused a write because its memory is full; 0 before the first time.
    out_of_memory: AtomicU64,
}

impl ClientShared {
    /// # Errors
    /// [`tls::Error`] when the certificates cannot be read.
    pub fn new(settings: ConnectionSettings) -> Result<Self, tls::Error> {
        let tls = settings.tls.as_ref().map(|tls| tls.config()).transpose()?;
        let cluster = AtomicBool::new(matches!(settings.servers, Servers::Cluster(_)));
        Ok(Self {
            settings,
            tls: tls.map(tokio_rustls::TlsConnector::from),
            cluster,
            topology: watch::Sender::new(0),
            failovers: Arc::default(),
            live_links: Arc::new(LiveLinks::new()),
            last_replication: Mutex::default(),
            clock_ahead: AtomicI64::new(0),
            warned_of_replicas: AtomicBool::new(false),
            out_of_memory: AtomicU64::new(0),
        })
    }

    /// Replaces the credentials for the servers and for the sentinels; new connections log in with them.
    pub fn replace_logins(&self, servers: Login, sentinels: Login) {
        self.settings.login.replace(servers);
        self.settings.sentinel_login.replace(sentinels);
    }

    /// The counter of failovers, of all clients together.
    pub fn failovers(&self) -> &Arc<AtomicU64> {
        &self.failovers
    }

    /// The links that are connected, of all clients together.
    pub fn live_links(&self) -> &Arc<LiveLinks> {
        &self.live_links
    }

    /// Replicas of the primaries at the last look; none while no primary answers.
    pub fn replication(&self) -> Option<ReplicationStatus> {
        *self.last_replication.lock()
    }

    /// A time of this process by the clock of the servers. Differences of less than a second are left alone: those of
    /// clocks that are synchronized.
    pub fn server_time(&self, time: Micros) -> Micros {
        let ahead = self.clock_ahead.load(Ordering::Relaxed);
        let differs = ahead.unsigned_abs() > CLOCK_TOLERANCE;
        if differs { Micros(time.0.saturating_add_signed(ahead)) } else { time }
    }

    /// Changes whenever the topology may have changed.
    pub fn subscribe_topology(&self) -> watch::Receiver<u64> {
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

    /// Notes that a server refused a write because its memory is full. Logged once, until none was refused for a while.
    pub(super) fn note_out_of_memory(&self) {
        let now = clock::steady();
        let last = Micros(self.out_of_memory.swap(now.0, Ordering::Relaxed));
        if last.0 == 0 || last.after(10 * OUT_OF_MEMORY_FOR) < now {
            tracing::error!(
                "the memory of Redis is full (maxmemory): requests are refused, or admitted by `on_unavailable`; only \
                 what withdraws something is accepted; raise maxmemory or add primaries"
            );
        }
    }

    /// Returns whether a write was refused a moment ago because the server's memory is full. On a Cluster others may
    /// have room, so there it counts for no other write.
    pub fn is_out_of_memory(&self) -> bool {
        let last = Micros(self.out_of_memory.load(Ordering::Relaxed));
        last.0 > 0 && clock::steady() < last.after(OUT_OF_MEMORY_FOR) && !self.is_cluster()
    }

    pub(super) fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the topology may have changed, so that all clients look at it anew.
    pub fn topology_changed(&self) {
        self.topology.send_modify(|times| *times += 1);
    }
}
