//! The heartbeat and the deregistration while a node of a Cluster hangs: what waits for that node delays nothing else.

use std::time::{Duration, Instant};

use domain::clock;
use state::redis::{Clock, Servers, Settings};
use state::{Redis as RedisState, State};

use super::fixture::{Fixture, HeldKey, admit, fixture_with_key};
use super::redis::{at, settings};
use super::redis_load::PLENTY;
use super::runtime::{block_on, enter};
use crate::support::redis::{Cluster, Redis};
use crate::support::until;

const DEADLINE: Duration = Duration::from_secs(1);
/// Long, because a reply is awaited for half of it: whatever waits for the node that hangs takes longer than the test.
const LEASE: Duration = Duration::from_secs(60);
/// Signs of life that are waited for.
const BEATS: usize = 10;

/// An organization with a key, on one of these nodes.
pub(super) async fn fixture_on(state: &State, cluster: &Cluster, nodes: &[&Redis]) -> (Fixture, HeldKey) {
    loop {
        let (fixture, key) = fixture_with_key(state).await;
        let node = cluster.primary_of(cluster.slot_of(fixture.tag.as_str()));
        if nodes.iter().any(|other| other.port() == node.port()) {
            return (fixture, key);
        }
    }
}

/// A node to stop; and the others, of which the first one has the registry of gateways.
fn nodes(cluster: &Cluster) -> (&Redis, [&Redis; 2]) {
    let registry = cluster.primary_of(cluster.slot_of("gateways"));
    let others: Vec<&Redis> = cluster.nodes().iter().filter(|node| node.port() != registry.port()).collect();
    (others[0], [registry, others[1]])
}

#[test]
fn hanging_node_delays_neither_other_leases_nor_the_registration() {
    let _entered = enter();
    let cluster = Cluster::start_with(Redis::options().arg("cluster-require-full-coverage", "no"), 3, 0);
    let servers = Servers::Cluster(cluster.nodes().iter().map(at).collect());
    let settings = Settings {
        quota: PLENTY,
        concurrent: 100,
        deadline: DEADLINE,
        lease: LEASE,
        clock: Clock::Server,
        ..settings(servers)
    };
    let (hanging, healthy) = nodes(&cluster);
    let registry = healthy[0];
    // A gateway that never sees the others: until it does, the registration is renewed all the time. It is there before
    // the state opens, because a gateway that finds itself alone renews only at a third of its lease.
    let blind: Vec<u8> = [1e15, 9e15, 1.0, 0.0].into_iter().flat_map(f64::to_le_bytes).collect();
    registry.query::<()>(::redis::cmd("HSET").arg("keygate:{gateways}").arg("h:blind").arg(blind)).unwrap();
    let state = State::Redis(block_on(RedisState::open(settings)).unwrap());
    let (_, stuck) = block_on(fixture_on(&state, &cluster, &[hanging]));
    let (fixture, key) = block_on(fixture_on(&state, &cluster, &healthy));

    let held = block_on(admit(&state, &stuck, clock::now()));
    // Cached from here on: a look-up by digest may go to any node.
    drop(block_on(admit(&state, &key, clock::now())));
    hanging.stop_process();
    // Its release is reported to the node that hangs.
    drop(held);
    let begun = Instant::now();
    let org = format!("keygate:{{{}}}:org", fixture.tag.as_str());
    let node = cluster.primary_of(cluster.slot_of(fixture.tag.as_str()));
    for _ in 0..BEATS {
        drop(block_on(admit(&state, &key, clock::now())));
        let live = || node.cli::<Vec<u8>>(&["HGET", &org, "live"]);
        until("the release is reported", || (live()[8..16] == [0; 8]).then_some(()));
    }
    let reported = begun.elapsed();
    for _ in 0..BEATS {
        let beat = || registry.cli::<Vec<Vec<u8>>>(&["HVALS", "keygate:{gateways}"]);
        let last = beat();
        until("the registration is renewed", || (beat() != last).then_some(()));
    }
    let took = begun.elapsed();
    assert!(took < LEASE / 2, "{BEATS} releases took {reported:?}, with as many renewals {took:?}");
    hanging.resume();
    block_on(state.close());
}

#[test]
fn gateway_deregisters_from_the_nodes_that_answer_while_one_hangs() {
    let _entered = enter();
    let cluster = Cluster::start_with(Redis::options().arg("cluster-require-full-coverage", "no"), 3, 0);
    let servers = Servers::Cluster(cluster.nodes().iter().map(at).collect());
    let settings = Settings { quota: PLENTY, concurrent: 100, deadline: DEADLINE, lease: LEASE, ..settings(servers) };
    let (hanging, healthy) = nodes(&cluster);
    let registry = healthy[0];
    let state = State::Redis(block_on(RedisState::open(settings)).unwrap());
    let (_, stuck) = block_on(fixture_on(&state, &cluster, &[hanging]));
    let (fixture, key) = block_on(fixture_on(&state, &cluster, &healthy));
    drop(block_on(admit(&state, &stuck, clock::now())));
    drop(block_on(admit(&state, &key, clock::now())));
    let org = format!("keygate:{{{}}}:org", fixture.tag.as_str());
    let node = cluster.primary_of(cluster.slot_of(fixture.tag.as_str()));
    let leases = || node.cli::<Vec<String>>(&["HKEYS", &org]).into_iter().filter(|name| name.starts_with("h:")).count();
    let registered = || registry.cli::<u64>(&["HLEN", "keygate:{gateways}"]);
    until("the gateway is registered", || (registered() == 1).then_some(()));
    assert_eq!(leases(), 1);

    hanging.stop_process();
    block_on(state.close());
    assert_eq!((registered(), leases()), (0, 0), "not after the lease of {LEASE:?} only");
    hanging.resume();
}
