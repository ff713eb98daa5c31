//! How the Redis state is set up.

use std::fmt;
use std::time::Duration;

use crate::quota::Quota;
use crate::secret::Secret;
use crate::state::Defaults;
use crate::tls::ClientSettings;

/// How the Redis state is set up. `config/keygate.yaml` says what each is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the servers are.
    pub servers: Servers,
    /// Who we are to the servers.
    pub login: Login,
    /// Who we are to the sentinels.
    pub sentinel_login: Login,
    /// The number of the database; 0 on a Cluster.
    pub database: u16,
    /// Encrypted connections, to servers and sentinels.
    pub tls: Option<ClientSettings>,
    /// The beginning of the names of all keys: deployments with different ones share a Redis without meeting.
    pub prefix: String,
    /// The quota of keys without one of their own.
    pub quota: Quota,
    /// The concurrency of organizations without one of their own.
    pub concurrent: u32,
    /// How long a decision may take.
    pub deadline: Duration,
    /// How long a gateway that is not heard of keeps its slots.
    pub lease: Duration,
    /// What becomes of requests while Redis is away.
    pub on_unavailable: OnUnavailable,
    /// When a change is acknowledged.
    pub durability: Durability,
    /// Whose time decisions are made at.
    pub clock: Clock,
}

impl Settings {
    /// The limits of those who have none of their own.
    pub(in crate::state) fn defaults(&self) -> Defaults {
        Defaults { quota: self.quota, concurrent: self.concurrent }
    }
}

/// Where the servers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server, or one node of a Cluster by which the others are found.
    Single(Address),
    /// Whatever the sentinels say is the primary of a service.
    Sentinel {
        /// The sentinels; at least one.
        sentinels: Vec<Address>,
        /// The name under which they watch it.
        service: String,
    },
    /// Nodes of a Cluster, by which all others are found; at least one.
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

/// Who we are to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; none for the default one.
    pub user: Option<String>,
    /// The password; none when the server asks for none.
    pub password: Option<Secret>,
}

/// What becomes of requests while Redis is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// All are refused.
    Deny,
    /// Keys that Redis vouched for within this time are admitted against a local share of their limits.
    KnownKeys {
        /// How long ago at most.
        max_staleness: Duration,
    },
}

/// When a change is acknowledged: when the primary and this many replicas have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// How many; 0 for the primary alone.
    pub replicas: u32,
    /// How long to wait for them.
    pub timeout: Duration,
}

/// Whose time decisions are made at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The Redis server's. Gateways whose clocks differ agree, because none is asked.
    Server,
    /// The asker's ([`crate::state::DecideRequest::now`]): for traces whose times are part of them.
    Caller,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
