//! Settings of the Redis state.

use std::time::Duration;

use super::record_names::RecordNames;
use crate::{Defaults, LimitPlans};
use domain::clock::Micros;
use domain::quota::Quota;
use platform::tls::ClientSettings;
use redis_client::{ConnectionSettings, CurrentLogin, Durability, Login, Servers};

/// Settings of the Redis state. `config/keygate.yaml` describes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses of the servers.
    pub servers: Servers,
    /// Credentials for the servers.
    pub login: Login,
    /// Credentials for the sentinels.
    pub sentinel_login: Login,
    /// Number of the database; 0 on a Cluster.
    pub database: u16,
    /// TLS to servers and sentinels; plain TCP when `None`.
    pub tls: Option<ClientSettings>,
    /// Prefix of the names of all Redis keys. Deployments with different prefixes can share a Redis.
    pub prefix: String,
    /// Quota of keys without one of their own.
    pub quota: Quota,
    /// Concurrency limit of organizations without one of their own.
    pub concurrent: u32,
    /// The plans that keys, users and organizations can be given.
    pub plans: LimitPlans,
    /// Time-out of a decision.
    pub deadline: Duration,
    /// Time without a heartbeat after which the slots of a gateway are free again. At least 4 times `deadline`.
    pub lease: Duration,
    /// Age up to which changes by management may be lost by a failover. A state that lacks older ones is refused.
    pub max_loss: Duration,
    /// Decisions while Redis is unavailable.
    pub on_unavailable: OnUnavailable,
    /// Replication that a change needs before it is acknowledged.
    pub durability: Durability,
    /// Clock of the decisions.
    pub clock: Clock,
}

/// Decisions while Redis is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// All requests are refused.
    Deny,
    /// Keys that Redis confirmed recently are admitted against this gateway's share of their limits.
    KnownKeys {
        /// Maximum age of the confirmation.
        max_staleness: Duration,
    },
}

/// Clock of the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The Redis server's. Gateways with different clocks agree, because none of theirs is used.
    Server,
    /// The caller's ([`crate::DecideRequest::now`]): for replayed traces that contain their times.
    Caller,
}

impl Settings {
    /// Limits of keys and organizations without limits of their own.
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults { quota: self.quota, concurrent: self.concurrent, plans: self.plans.clone() }
    }

    /// Settings of the connections.
    pub(super) fn connections(&self) -> ConnectionSettings {
        ConnectionSettings {
            servers: self.servers.clone(),
            login: CurrentLogin::new(self.login.clone()),
            sentinel_login: CurrentLogin::new(self.sentinel_login.clone()),
            database: self.database,
            tls: self.tls.clone(),
            deadline: self.deadline,
            // The lease has to be renewed by then, so a later reply cannot be used.
            late_reply_timeout: self.lease / 2,
            waits_for_replicas: self.durability.replicas > 0,
            probe_key: RecordNames::new(&self.prefix).probe(),
        }
    }

    /// The argument by which a script gets its time: 0 for the server's own, else `now`, in microseconds.
    pub(super) fn script_time(&self, now: Micros) -> u64 {
        match self.clock {
            Clock::Server => 0,
            Clock::Caller => now.0,
        }
    }

    /// True if a key may be refused without asking Redis. Not where scripts get the caller's time: each decision is
    /// compared to the microsecond then, and a verdict knows the time of a bucket only as exactly as a reply travels.
    pub(super) fn may_refuse_locally(&self) -> bool {
        self.clock == Clock::Server
    }

    /// Time to wait for releases in flight before a denial for lack of slots: those that take longer might as well be
    /// taken slots.
    pub fn longest_wait_for_releases(&self) -> Duration {
        self.deadline / 4
    }

    /// Time in microseconds for which a heartbeat registers this gateway: for as long as it may admit requests after
    /// it, so that the others leave it its share.
    pub fn registration_micros(&self) -> u64 {
        let admits = match self.on_unavailable {
            OnUnavailable::Deny => Duration::ZERO,
            OnUnavailable::KnownKeys { max_staleness, .. } => max_staleness,
        };
        u64::try_from((self.lease + admits).as_micros()).unwrap_or(u64::MAX)
    }

    /// Longest time between two renewals of a lease and of the registration: two of them may be lost.
    pub fn renew_interval(&self) -> Duration {
        self.lease / 3
    }

    /// The lease in microseconds, as the scripts take it.
    pub(super) fn lease_micros(&self) -> u64 {
        u64::try_from(self.lease.as_micros()).unwrap_or(u64::MAX)
    }
}
