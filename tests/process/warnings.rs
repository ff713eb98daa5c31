//! Warnings of `keygate serve` about configurations that are valid and probably not meant.

use crate::support::redis::Redis;
use crate::support::{Setup, Upstream, eventually};

const ROUTES: &str = "routes: [{ name: all, path: '/**' }]";

/// The log of a gateway with this state and these blocks, from its start to its end.
fn log(state: &str, blocks: &str) -> String {
    let upstream = Upstream::start();
    let setup = Setup::with_state(upstream.address, state, blocks);
    setup.start_logged().stop();
    std::fs::read_to_string(setup.path().join("log")).unwrap()
}

#[test]
fn gateway_without_routes_is_warned_about() {
    let embedded = "{ embedded: { path: state.db } }";
    let without = log(embedded, "");
    assert_eq!(without.matches("no `routes` are configured").count(), 1, "{without}");
    let with = log(embedded, ROUTES);
    assert!(!with.contains("WARN"), "{with}");
}

#[test]
fn replicas_that_no_change_waits_for_are_warned_about_once() {
    let primary = Redis::start();
    let state = |replicas| {
        format!("{{ redis: {{ url: '{}', deadline: 2s, durability: {{ replicas: {replicas} }} }} }}", primary.url())
    };
    let blocks = format!("workers: 3\n{ROUTES}");
    let alone = log(&state(0), &blocks);
    assert!(!alone.contains("WARN"), "{alone}");
    let _replica = Redis::options().arg("replicaof", &format!("127.0.0.1 {}", primary.port())).start();
    eventually("the replica is in sync", || {
        primary.info("replication", "connected_slaves") == "1"
            && primary.info("replication", "slave0").contains("online")
    });
    let unused = log(&state(0), &blocks);
    assert_eq!(unused.matches("`state.redis.durability.replicas` is 0").count(), 1, "{unused}");
    let used = log(&state(1), &blocks);
    assert!(!used.contains("durability"), "{used}");
}
