//! The reply to `INFO`, and the checks that decide whether a server can hold the state.

use std::collections::HashMap;

/// The oldest major version that has the commands that the scripts use.
const MIN_MAJOR: u32 = 7;

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

/// Fields of the reply to `INFO`.
#[derive(Debug, Default)]
pub(super) struct ServerInfo(HashMap<String, String>);

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

    pub(super) fn is_primary(&self) -> bool {
        self.field("role") == "master"
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
        match self.field("maxmemory_policy") {
            "noeviction" => Ok(()),
            policy => Err(Unsuitable::Evicts(policy.to_owned())),
        }
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
    fn server_with_eviction_or_an_old_version_is_unsuitable() {
        assert_eq!(info("7.0.15", "noeviction").check_suitable(), Ok(()));
        assert_eq!(info("8.2.0", "noeviction").check_suitable(), Ok(()));
        assert_eq!(info("6.2.14", "noeviction").check_suitable(), Err(Unsuitable::TooOld("6.2.14".into())));
        assert_eq!(info("7.2.0", "allkeys-lru").check_suitable(), Err(Unsuitable::Evicts("allkeys-lru".into())));
        assert!(info("", "noeviction").check_suitable().is_err());
    }
}
