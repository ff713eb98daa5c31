//! Connection settings: addresses, credentials, time-outs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use domain::secret::Secret;
use platform::tls::ClientSettings;

/// Settings of the connections to one deployment of Redis.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Addresses of the servers.
    pub servers: Servers,
    /// Credentials for the servers.
    pub login: CurrentLogin,
    /// Credentials for the sentinels.
    pub sentinel_login: CurrentLogin,
    /// Number of the database; 0 on a Cluster.
    pub database: u16,
    /// TLS to servers and sentinels; plain TCP when `None`.
    pub tls: Option<ClientSettings>,
    /// Time after which a reply is late. Late replies in a row open the breaker of a link.
    pub deadline: Duration,
    /// Time after the deadline for which a late reply is still awaited; then it is lost.
    pub late_reply_timeout: Duration,
    /// True if changes wait for replicas; else a server that has some is worth a warning.
    pub waits_for_replicas: bool,
    /// Key of the string that is written on connect to measure the latency of a write; it expires.
    pub probe_key: String,
}

/// Addresses of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server, or one node of a Cluster from which the others are discovered.
    Single(Address),
    /// The primary that Sentinel reports for a service.
    Sentinel {
        /// The sentinels; at least one.
        sentinels: Vec<Address>,
        /// The name under which they monitor the primary.
        service: String,
    },
    /// Nodes of a Cluster from which all others are discovered; at least one.
    Cluster(Vec<Address>),
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// Credentials for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None` for the default one.
    pub user: Option<String>,
    /// The password; `None` when the server requires none.
    pub password: Option<Secret>,
}

/// Credentials that a reload may replace. New connections log in with the last ones; open connections stay as they are.
/// Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CurrentLogin(Arc<ArcSwap<Login>>);

impl CurrentLogin {
    /// Begins with these.
    pub fn new(login: Login) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(login)))
    }

    /// The credentials of the next connection.
    pub fn load(&self) -> Arc<Login> {
        self.0.load_full()
    }

    /// Replaces them.
    pub fn replace(&self, login: Login) {
        self.0.store(Arc::new(login));
    }
}

/// Replication that a change needs before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Replicas that must have the change, besides the primary; 0 for the primary alone.
    pub replicas: u32,
    /// Time to wait for them.
    pub timeout: Duration,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
