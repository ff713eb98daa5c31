//! What a server says about itself (`INFO`), and whether it can hold the state.

use std::collections::HashMap;

/// The oldest version that has what the scripts use.
const OLDEST: u32 = 7;

/// Why a server cannot hold the state, whatever its health.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// It may throw records away.
    #[error(
        "Redis may evict records (maxmemory-policy {0}), and with them keys and what was counted; \
         run `redis-cli CONFIG SET maxmemory-policy noeviction`, and set it in redis.conf"
    )]
    Evicts(String),
    /// Its version is too old.
    #[error("Redis {0} is too old; keygate needs 7.0 or newer")]
    TooOld(String),
}

/// What a server says about itself.
#[derive(Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    /// From the answer to `INFO`.
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

    /// The process and its history: another id after a restart, and after it followed another primary.
    pub(super) fn process(&self) -> String {
        format!("{} {}", self.field("run_id"), self.field("master_replid"))
    }

    pub(super) fn is_primary(&self) -> bool {
        self.field("role") == "master"
    }

    pub(super) fn is_loading(&self) -> bool {
        self.field("loading") == "1"
    }

    /// # Errors
    /// [`Unsuitable`] says what to change about it.
    pub(super) fn suits(&self) -> Result<(), Unsuitable> {
        let version = self.field("redis_version");
        let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        if major < OLDEST {
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

    fn info(version: &str, policy: &str) -> Info {
        Info::parse(&format!("# Server\r\nredis_version:{version}\r\n\r\n# Memory\r\nmaxmemory_policy:{policy}\r\n"))
    }

    #[test]
    fn a_server_that_forgets_or_is_old_does_not_suit() {
        assert_eq!(info("7.0.15", "noeviction").suits(), Ok(()));
        assert_eq!(info("8.2.0", "noeviction").suits(), Ok(()));
        assert_eq!(info("6.2.14", "noeviction").suits(), Err(Unsuitable::TooOld("6.2.14".into())));
        assert_eq!(info("7.2.0", "allkeys-lru").suits(), Err(Unsuitable::Evicts("allkeys-lru".into())));
        assert!(info("", "noeviction").suits().is_err());
    }
}
