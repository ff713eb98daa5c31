//! A primary, its replicas, and the sentinels that replace it when it dies.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::{Options, Redis, until};

const REPLICAS: usize = 2;
/// Number of sentinels that must miss the primary.
const QUORUM: &str = "2";
/// Milliseconds for which each sentinel waits for the primary before it misses it. The last one waits longer: it stands
/// for no election of the others, and so decides it.
const PATIENCES: [&str; 3] = ["500", "500", "1000"];
/// Time that a failover may take, in milliseconds. One that fails is tried again after twice this time.
const FAILOVER: &str = "3000";

/// Sentinels do several times a second what they else do every second or every ten: they find each other, the replicas
/// and the new primary that much sooner. And when all of them were starved of the processor, they trust their clocks
/// again after a second instead of thirty.
const HURRY: [(&str, &str); 6] = [
    ("info-period", "100"),
    // Five of these is how old the news of a replica may be for it to take over, and while the primary is down there is
    // news every second.
    ("ping-period", "400"),
    ("ask-period", "100"),
    ("publish-period", "100"),
    ("min-link-reconnect-period", "1000"),
    ("tilt-period", "1000"),
];

/// One primary, two replicas, three sentinels.
///
/// - When it is returned the replicas are linked, and every sentinel knows all of them and the other sentinels.
/// - The primary is the one on which all running sentinels agree.
pub struct Sentinels {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinels {
    /// The name under which the sentinels watch the servers.
    pub const SERVICE: &str = "keygate";

    /// Starts all, and waits until they know each other: about a second.
    pub fn start() -> Self {
        Self::start_with(Redis::options())
    }

    /// The same, servers and sentinels with these options.
    pub fn start_with(options: Options) -> Self {
        let servers = options.clone().arg("repl-diskless-sync-delay", "0").start_many(1 + REPLICAS);
        let primary = servers[0].port().to_string();
        for replica in &servers[1..] {
            replica.cli::<()>(&["REPLICAOF", "127.0.0.1", &primary]);
        }
        let linked = |replica: &Redis| replica.info("replication", "master_link_status") == "up";
        until("the replicas are linked", || servers[1..].iter().all(linked).then_some(()));
        let all = Self { servers, sentinels: options.sentinel().start_many(PATIENCES.len()) };
        for (sentinel, patience) in all.sentinels.iter().zip(PATIENCES) {
            watch(sentinel, &all.servers[0], patience);
        }
        until("the sentinels know everybody", || all.sentinels.iter().all(knows_everybody).then_some(()));
        all
    }

    /// Addresses of the sentinels, and the name of the service: `redis+sentinel://host:port,…/service`.
    pub fn url(&self, service: &str) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(SocketAddr::to_string).collect();
        format!("redis+sentinel://{}/{service}", addresses.join(","))
    }

    /// Addresses of the sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(Redis::address).collect()
    }

    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The servers, those that are down among them: first the one that began as primary.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The primary, as all sentinels that run say; waits until they agree.
    pub fn primary(&self) -> &Redis {
        until("the sentinels agree on the primary", || self.agreed())
    }

    /// Kills the primary, and returns it.
    pub fn failover(&self) -> &Redis {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits until all that the primary has written so far is on its replicas.
    pub fn until_replicated(&self) {
        let primary = self.primary();
        primary.until_replicated(self.servers.iter().filter(|server| server.port() != primary.port()));
    }

    /// Waits until the sentinels agree on another primary than this one, and that one accepts writes.
    pub fn until_other_primary(&self, than: &Redis) -> &Redis {
        until("the sentinels agree on another primary", || {
            let primary = self.agreed().filter(|primary| primary.port() != than.port())?;
            (primary.is_running() && primary.info("replication", "role") == "master").then_some(primary)
        })
    }

    fn agreed(&self) -> Option<&Redis> {
        let asked = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        let ask =
            |sentinel: &Redis| sentinel.cli::<(String, u16)>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE]).1;
        let mut said: Vec<u16> = asked.map(ask).collect();
        said.dedup();
        let [port] = said[..] else { return None };
        self.servers.iter().find(|server| server.port() == port)
    }
}

fn watch(sentinel: &Redis, primary: &Redis, patience: &str) {
    for (what, milliseconds) in HURRY {
        // Before Redis 7 they cannot be hurried: everything works, and takes seconds longer.
        sentinel.try_cli::<()>(&["SENTINEL", "DEBUG", what, milliseconds]).ok();
    }
    let port = primary.port().to_string();
    sentinel.cli::<()>(&["SENTINEL", "MONITOR", Sentinels::SERVICE, "127.0.0.1", &port, QUORUM]);
    let password = primary.password().map(|password| ("auth-pass", password));
    let times = [("down-after-milliseconds", patience), ("failover-timeout", FAILOVER)];
    for (key, value) in times.into_iter().chain(password) {
        sentinel.cli::<()>(&["SENTINEL", "SET", Sentinels::SERVICE, key, value]);
    }
}

fn knows_everybody(sentinel: &Redis) -> bool {
    let primary: HashMap<String, String> = sentinel.cli(&["SENTINEL", "MASTER", Sentinels::SERVICE]);
    let replicas: Vec<HashMap<String, String>> = sentinel.cli(&["SENTINEL", "REPLICAS", Sentinels::SERVICE]);
    let ready =
        |replica: &HashMap<String, String>| replica["flags"] == "slave" && replica["master-link-status"] == "ok";
    primary["flags"] == "master"
        && primary["num-other-sentinels"] == (PATIENCES.len() - 1).to_string()
        && replicas.len() == REPLICAS
        && replicas.iter().all(ready)
        && sentinel.try_cli::<String>(&["SENTINEL", "CKQUORUM", Sentinels::SERVICE]).is_ok()
}
