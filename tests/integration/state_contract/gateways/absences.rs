//! Absences of the server, in which no gateway could report: no gateway that lives loses its slots by them, and those
//! of a dead one are free a lease later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::clock;
use domain::key::KeyDigest;
use domain::refusal::Refusal;
use state::redis::{self, Servers, Settings};
use state::{Decision, State};

use super::gateway_thread::{GatewayThread, pass};
use super::{LIMIT, counted, fill, open, shipped, slot};
use crate::state_contract::fixture::{HeldKey, decide, fixture_with_key};
use crate::state_contract::redis::at;
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::redis_heartbeat::fixture_on;
use crate::state_contract::runtime::{block_on, enter};
use crate::support::redis::{Clock, Cluster, Redis};
use crate::support::until;

const LEASE: Duration = Duration::from_secs(3);
/// Delay that a loaded machine may add.
const SLACK: Duration = Duration::from_secs(1);
/// Longer than a lease.
const ABSENCE: Duration = Duration::from_millis(4500);
const ALL: usize = LIMIT as usize;

/// Two gateways hold all slots before an absence. Afterwards one of them reports, releases and acquires before the
/// other can report anything: it gets back what it had, and no more.
async fn holders_keep_their_slots(server: &Redis, absence: impl AsyncFnOnce(&State, &KeyDigest)) {
    let settings = shipped(server, LEASE);
    let (silent, other) = (GatewayThread::open(&settings).await, open(&settings).await);
    let (fixture, key) = fixture_with_key(&other).await;
    let kept = silent.hold(key.digest, 60).await;
    let mut held = Vec::new();
    fill(&other, &key.digest, &mut held, 40, Duration::ZERO).await;
    let thaw = silent.freeze();
    absence(&other, &key.digest).await;
    held.truncate(30);
    fill(&other, &key.digest, &mut held, 40, LEASE).await;
    assert!(slot(&other, &key.digest).await.is_none(), "{} in flight of {LIMIT}", kept.len() + held.len() + 1);
    thaw.send(()).unwrap();
    assert_eq!(counted(server, fixture.tag).0, LIMIT);
    drop((kept, held));
    until("Redis has no lease", || (counted(server, fixture.tag) == (0, Vec::new())).then_some(()));
}

#[test]
fn server_frozen_for_longer_than_a_lease_takes_no_slots_from_their_holders() {
    let (_entered, server) = enter_with_server();
    block_on(holders_keep_their_slots(&server, async |_, _| {
        server.stop_process();
        pass(ABSENCE).await;
        server.resume();
    }));
}

#[test]
fn server_restarted_from_disk_after_more_than_a_lease_takes_no_slots_from_their_holders() {
    let _entered = enter();
    let server = Redis::options().appendonly().start();
    block_on(holders_keep_their_slots(&server, async |_, _| {
        server.kill();
        pass(ABSENCE).await;
        server.restart();
    }));
}

#[test]
fn server_without_memory_for_longer_than_a_lease_takes_no_slots_from_their_holders() {
    let (_entered, server) = enter_with_server();
    block_on(holders_keep_their_slots(&server, async |_, _| {
        server.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        pass(ABSENCE).await;
        server.cli::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }));
}

#[test]
fn clock_that_steps_forward_takes_no_slots_from_their_holders() {
    let _entered = enter();
    for step in [LEASE * 2 / 3, LEASE, Duration::from_secs(3600)] {
        let clock = Clock::new();
        let server = Redis::options().clock(&clock).start();
        block_on(holders_keep_their_slots(&server, async |_, _| clock.set_ahead(step)));
    }
}

#[test]
fn slots_of_a_gateway_that_died_in_an_absence_are_free_a_lease_later() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let (dying, other) = (GatewayThread::open(&settings).await, open(&settings).await);
        let (_, key) = fixture_with_key(&other).await;
        let lost = dying.hold(key.digest, 60).await;
        let mut held = Vec::new();
        fill(&other, &key.digest, &mut held, 40, Duration::ZERO).await;
        server.stop_process();
        dying.die();
        pass(ABSENCE).await;
        server.resume();
        let back = Instant::now();
        fill(&other, &key.digest, &mut held, ALL, LEASE + SLACK).await;
        assert!(back.elapsed() >= LEASE / 2, "the lease did not begin anew");
        assert!(slot(&other, &key.digest).await.is_none());
        drop(lost);
    });
}

/// A gateway dies with all slots of an organization, about which nothing is asked until its lease has ended. Another
/// gateway, which starts then, gets all of them at once: the server was there, as the heartbeats of the fleet say.
async fn slots_of_the_dead_are_free(settings: &Settings, (other, key): (Arc<State>, HeldKey)) {
    let dying = GatewayThread::open(settings).await;
    let lost = dying.hold(key.digest, ALL).await;
    dying.die();
    pass(LEASE).await;
    let started = open(settings).await;
    pass(SLACK).await;
    let mut held = Vec::new();
    for asking in [&started, &other].into_iter().cycle().take(ALL) {
        held.push(slot(asking, &key.digest).await.expect("the lease of the dead gateway has ended"));
    }
    assert!(slot(&other, &key.digest).await.is_none());
    drop(lost);
}

#[test]
fn slots_of_a_dead_gateway_are_free_a_lease_later_in_a_quiet_organization() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let other = open(&settings).await;
        let key = fixture_with_key(&other).await.1;
        slots_of_the_dead_are_free(&settings, (other, key)).await;
    });
}

#[test]
fn slots_of_a_dead_gateway_are_free_a_lease_later_on_each_node_of_a_cluster() {
    let _entered = enter();
    let cluster = Cluster::start(3, 0);
    let servers = Servers::Cluster(cluster.nodes().iter().map(at).collect());
    block_on(async {
        let settings = Settings { servers, ..shipped(&cluster.nodes()[0], LEASE) };
        for node in cluster.nodes() {
            let other = open(&settings).await;
            let key = fixture_on(&other, &cluster, &[node]).await.1;
            slots_of_the_dead_are_free(&settings, (other, key)).await;
        }
    });
}

/// Between the two absences the server answers once, before anybody can report.
#[test]
fn second_absence_at_once_takes_no_slots_from_their_holders() {
    let _entered = enter();
    let clock = Clock::new();
    let server = Redis::options().clock(&clock).start();
    block_on(holders_keep_their_slots(&server, async |other, digest| {
        clock.set_ahead(2 * LEASE);
        assert!(slot(other, digest).await.is_none());
        clock.set_ahead(4 * LEASE);
    }));
}

/// Nobody asked for longer than a lease, and then rarely: each pause looks like an absence.
#[test]
fn leases_of_a_dead_fleet_are_extended_twice_at_most() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let mut settings = shipped(&server, LEASE);
        settings.clock = redis::Clock::Caller;
        let (dying, survivor) = (GatewayThread::open(&settings).await, open(&settings).await);
        let (_, key) = fixture_with_key(&survivor).await;
        let lost = dying.hold(key.digest, ALL).await;
        dying.die();
        let mut now = clock::now().after(10 * LEASE);
        for _ in 0..3 {
            let decision = decide(&survivor, &key.digest, now).await;
            assert!(matches!(decision, Decision::Denied { refusal: Refusal::TooManyInFlight, .. }));
            now = now.after(LEASE * 3 / 4);
        }
        assert!(matches!(decide(&survivor, &key.digest, now).await, Decision::Admitted(_)));
        drop(lost);
    });
}
