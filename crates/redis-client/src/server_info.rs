//! The reply to `INFO`, and the checks that decide whether a server can hold the state.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The oldest major version that has the commands that the scripts use.
const MIN_MAJOR: u32 = 7;

/// Difference of clocks, in microseconds, beyond which this process ends and accepts nothing of others by its own: a
/// minute. Clocks that are synchronized differ by less than a second.
pub const MAX_CLOCK_DIFFERENCE: u64 = 60_000_000;

/// A server that cannot hold the state, however healthy it is. An operator has to change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// Its eviction policy may delete records.
    #[error(
        "Redis may evict records (maxmemory-policy {0}), and with them keys and counters; \
         run `redis-cli CONFIG SET maxmemory-policy noeviction`, and set it in redis.conf"
    )]
    Evicts(String),
    /// Its version is too old.
    #[error("Redis {0} is too old; keygate needs 7.0 or newer")]
    TooOld(String),
}

/// Replication and persistence of a server, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replication {
    /// Identifies the server process with its replication history (`ServerInfo::incarnation`).
    pub history: Arc<str>,
    /// True for a primary that has loaded its data.
    pub is_primary: bool,
    /// Bytes that it has sent to its replicas so far, in this history.
    pub offset: u64,
    /// Bytes that each replica has confirmed; 0 for one that is not in step yet.
    pub replicas: Vec<u64>,
    /// The server's clock, in seconds since the Unix epoch.
    pub time: u64,
    /// Time before which everything is on disk, as far as the server writes to disk at all. With an append-only file,
    /// that is the present.
    pub saved: u64,
}

/// Fields of the reply to `INFO`.
#[derive(Debug, Default)]
pub(super) struct ServerInfo(pub(super) BTreeMap<String, String>);

impl ServerInfo {
    /// Parses the reply to `INFO`.
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.field("cluster_enabled") == "1"
    }

    /// Run id and replication id: differs after a restart, and after the server was promoted or followed another
    /// primary.
    pub(super) fn incarnation(&self) -> String {
        format!("{} {}", self.field("run_id"), self.field("master_replid"))
    }

    /// The parts about replication and persistence, from the sections `server`, `replication` and `persistence`.
    pub(super) fn replication(&self) -> Replication {
        let number = |name| self.field(name).parse::<u64>().unwrap_or_default();
        // slave0:ip=127.0.0.1,port=6380,state=online,offset=1234,lag=0
        let replica = |number| self.0.get(&format!("slave{number}"));
        let confirmed = |fields: &String| {
            let field = |name| fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            let offset = field("offset").and_then(|offset| offset.parse().ok());
            offset.filter(|_| field("state") == Some("online")).unwrap_or_default()
        };
        let time = number("server_time_usec") / 1_000_000;
        // The time at which the snapshot was complete; it has what there was when it began.
        let snapshot = number("rdb_last_save_time").saturating_sub(number("rdb_last_bgsave_time_sec"));
        let is_logged = self.field("aof_enabled") == "1" && self.field("aof_last_write_status") == "ok";
        Replication {
            history: self.incarnation().into(),
            is_primary: self.is_primary() && !self.is_loading(),
            offset: number("master_repl_offset"),
            replicas: (0..number("connected_slaves")).map_while(replica).map(confirmed).collect(),
            time,
            saved: if is_logged { time } else { snapshot },
        }
    }

    /// The server's clock, in microseconds since the Unix epoch.
    pub(super) fn clock(&self) -> Option<u64> {
        self.field("server_time_usec").parse().ok()
    }

    /// The id of the server process.
    pub(super) fn run_id(&self) -> &str {
        self.field("run_id")
    }

    pub(super) fn is_primary(&self) -> bool {
        self.field("role") == "master"
    }

    /// Replicas that are connected to the server.
    pub(super) fn replicas(&self) -> u32 {
        self.field("connected_slaves").parse().unwrap_or(0)
    }

    pub(super) fn is_loading(&self) -> bool {
        self.field("loading") == "1"
    }

    /// Checks version and eviction policy.
    ///
    /// # Errors
    /// [`Unsuitable`] names the setting to change.
    pub(super) fn check_suitable(&self) -> Result<(), Unsuitable> {
        let version = self.field("redis_version");
        let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        if major < MIN_MAJOR {
            return Err(Unsuitable::TooOld(version.to_owned()));
        }
        self.check_eviction()
    }

    /// Checks the eviction policy, which is in the section `memory`.
    ///
    /// # Errors
    /// [`Unsuitable::Evicts`].
    pub(super) fn check_eviction(&self) -> Result<(), Unsuitable> {
        match self.field("maxmemory_policy") {
            "noeviction" => Ok(()),
            policy => Err(Unsuitable::Evicts(policy.to_owned())),
        }
    }
}

/// Replicas, eviction and clocks of the primaries, at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Replicas in step, of the primary that has the fewest.
    pub replicas: u64,
    /// Bytes that a replica in step has not confirmed yet, of the one that is farthest behind.
    pub lag_bytes: u64,
    /// True when a primary may evict records.
    pub evicts: bool,
    /// Microseconds by which the clock of a primary is ahead of that of this process, of the one that differs most.
    pub clock_ahead: i64,
}

impl ReplicationStatus {
    /// Returns whether the clocks of this process and of the primaries agree to a minute.
    pub fn clocks_agree(&self) -> bool {
        self.clock_ahead.unsigned_abs() <= MAX_CLOCK_DIFFERENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, policy: &str) -> ServerInfo {
        let text = format!("# Server\r\nredis_version:{version}\r\n\r\n# Memory\r\nmaxmemory_policy:{policy}\r\n");
        ServerInfo::parse(&text)
    }

    #[test]
    fn replication_is_parsed() {
        let text = "run_id:a\r\nserver_time_usec:7000001\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=10.0.0.1,port=1,state=online,offset=90,lag=1\r\n\
                    slave1:ip=10.0.0.2,port=1,state=wait_bgsave,offset=0,lag=0\r\nmaster_replid:b\r\n\
                    master_repl_offset:100\r\nloading:0\r\naof_enabled:0\r\nrdb_last_save_time:6\r\n\
                    rdb_last_bgsave_time_sec:1\r\n";
        let expected = Replication {
            history: "a b".into(),
            is_primary: true,
            offset: 100,
            replicas: vec![90, 0],
            time: 7,
            saved: 5,
        };
        assert_eq!(ServerInfo::parse(text).replication(), expected);
        let logged = format!("{text}aof_enabled:1\r\naof_last_write_status:ok\r\n");
        assert_eq!(ServerInfo::parse(&logged).replication(), Replication { saved: 7, ..expected });
        let loading = format!("{text}loading:1\r\n");
        assert!(!ServerInfo::parse(&loading).replication().is_primary);
    }

    #[test]
    fn server_with_eviction_or_an_old_version_is_unsuitable() {
        assert_eq!(info("7.0.15", "noeviction").check_suitable(), Ok(()));
        assert_eq!(info("8.2.0", "noeviction").check_suitable(), Ok(()));
        assert_eq!(info("6.2.14", "noeviction").check_suitable(), Err(Unsuitable::TooOld("6.2.14".into())));
        assert_eq!(info("7.2.0", "allkeys-lru").check_suitable(), Err(Unsuitable::Evicts("allkeys-lru".into())));
        assert!(info("", "noeviction").check_suitable().is_err());
    }
}
