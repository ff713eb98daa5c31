//! The limit of requests in flight of a key, over all gateways.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::key::KeyDigest;
use futures_util::future::join_all;
use state::redis::{Clock, Settings};
use state::{Decision, State};
use tokio::time::{sleep, timeout};

use super::gateway_thread::GatewayThread;
use super::{Gauge, LIMIT, PLENTY, ask, counted, counted_of_key, fill, open, shipped, slot};
use crate::state_contract::PATIENCE;
use crate::state_contract::cases_key_slots::limit;
use crate::state_contract::fixture::{HeldKey, fixture_with_key};
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::redis::settings;
use crate::state_contract::redis_failovers::{cut_replication, primary_with_replica};
use crate::state_contract::runtime::{block_on, enter};
use crate::support::redis::Redis;
use crate::support::{Random, until};

const LEASE: Duration = Duration::from_secs(3);
/// Delay that a loaded machine may add.
const SLACK: Duration = Duration::from_secs(1);
/// Slots of the key.
const OF_KEY: u32 = 20;
const ALL_OF_KEY: usize = OF_KEY as usize;
/// Slots that are left for other keys.
const REST: usize = (LIMIT - OF_KEY) as usize;
/// Streams with the key at once.
const STREAMS: u64 = 200;
/// Requests of each stream.
const REQUESTS: u32 = 40;

/// A stream of requests, one after the other; some are dropped before they are decided.
async fn stream(gateways: &[Arc<State>], digest: &KeyDigest, gauge: &Gauge, seed: u64) {
    let (mut random, begun) = (Random::new(seed), Instant::now());
    let mut requests = 0;
    // At least until the limit was reached.
    while requests < REQUESTS || (gauge.most() < OF_KEY && begun.elapsed() < PATIENCE) {
        requests += 1;
        let gateway = &gateways[usize::try_from(random.below(3)).unwrap()];
        let patience =
            if random.below(4) == 0 { Duration::from_micros(random.below(3000)) } else { Duration::from_secs(60) };
        match timeout(patience, ask(gateway, digest)).await {
            Ok(Ok(Decision::Admitted(admitted))) => {
                let _counted = gauge.count(admitted);
                sleep(Duration::from_micros(random.below(20_000))).await;
            }
            Ok(Ok(Decision::Denied { .. }) | Err(_)) => sleep(Duration::from_micros(random.below(5000))).await,
            Err(_) => {}
        }
    }
}

async fn until_forgotten(server: &Redis, key: &HeldKey) {
    until("Redis has no slots of the key", || counted_of_key(server, key.id).is_none().then_some(()));
}

#[test]
fn slots_of_a_key_are_shared_by_three_gateways() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let gateways = [open(&settings).await, open(&settings).await, open(&settings).await];
        let (fixture, key) = fixture_with_key(&gateways[0]).await;
        let other = fixture.key(&gateways[0]).await;
        limit(&gateways[0], &key, Some(OF_KEY)).await;
        let gauge = Gauge::default();
        join_all((0..STREAMS).map(|seed| stream(&gateways, &key.digest, &gauge, seed))).await;
        let most = gauge.most();
        assert!((OF_KEY / 2..=OF_KEY).contains(&most), "{most} at once of {OF_KEY}");
        for gateway in &gateways {
            let (mut own, mut others) = (Vec::new(), Vec::new());
            fill(gateway, &key.digest, &mut own, ALL_OF_KEY, LEASE).await;
            assert!(slot(gateway, &key.digest).await.is_none(), "one more than {OF_KEY}");
            fill(gateway, &other.digest, &mut others, REST, LEASE).await;
            assert!(slot(gateway, &other.digest).await.is_none(), "one more than {LIMIT}");
            assert_eq!(counted_of_key(&server, key.id).unwrap().0, OF_KEY);
            assert_eq!(counted(&server, fixture.tag).0, LIMIT);
        }
        until_forgotten(&server, &key).await;
        assert_eq!(gateways.each_ref().map(|gateway| gateway.in_flight()), [0; 3]);
    });
}

#[test]
fn slots_of_a_key_on_a_dead_gateway_are_free_within_the_lease() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let dying = GatewayThread::open(&settings).await;
        let survivors = [open(&settings).await, open(&settings).await];
        let (fixture, key) = fixture_with_key(&survivors[0]).await;
        let other = fixture.key(&survivors[0]).await;
        limit(&survivors[0], &key, Some(OF_KEY)).await;
        let lost = dying.hold(key.digest, 12).await;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        fill(&survivors[0], &key.digest, &mut own, ALL_OF_KEY - 12, Duration::ZERO).await;
        assert!(slot(&survivors[0], &key.digest).await.is_none(), "one more than {OF_KEY}");
        fill(&survivors[1], &other.digest, &mut others, REST, Duration::ZERO).await;
        assert!(slot(&survivors[0], &other.digest).await.is_none(), "one more than {LIMIT}");
        let died = Instant::now();
        dying.die();
        fill(&survivors[1], &key.digest, &mut own, ALL_OF_KEY, LEASE + SLACK).await;
        assert!(died.elapsed() >= LEASE / 2, "the lease expired early");
        assert_eq!(counted(&server, fixture.tag).0, LIMIT);
        // With room in the organization, the limit of the key refuses.
        others.pop();
        assert!(slot(&survivors[0], &key.digest).await.is_none(), "one more than {OF_KEY}");
        let (taken, mut held) = counted_of_key(&server, key.id).unwrap();
        held.sort_unstable();
        assert_eq!((taken, held), (OF_KEY, vec![8, 12]));
        drop((own, others));
        until_forgotten(&server, &key).await;
        drop(lost);
    });
}

/// The new primary does not know the ten slots that the second gateway has acquired since replication was cut: until
/// they are registered again, the key may get as many more.
#[test]
fn slots_of_a_key_are_registered_again_after_a_failover() {
    let _entered = enter();
    let (cluster, servers) = primary_with_replica();
    let [primary, replica] = cluster.nodes() else { panic!("two nodes") };
    block_on(async {
        let (deadline, lease) = (Duration::from_secs(1), Duration::from_secs(4));
        let settings = settings(servers);
        let settings = Settings { deadline, lease, quota: PLENTY, concurrent: LIMIT, clock: Clock::Server, ..settings };
        let [first, second, third] = [open(&settings).await, open(&settings).await, open(&settings).await];
        let (_, key) = fixture_with_key(&first).await;
        limit(&first, &key, Some(OF_KEY)).await;
        let (mut known, mut unknown, mut more) = (Vec::new(), Vec::new(), Vec::new());
        fill(&first, &key.digest, &mut known, 10, lease).await;
        cut_replication(primary, replica);
        fill(&second, &key.digest, &mut unknown, 10, lease).await;
        assert!(slot(&third, &key.digest).await.is_none());
        primary.kill();
        replica.cli::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        let promoted = Instant::now();
        while promoted.elapsed() < lease {
            more.extend(slot(&third, &key.digest).await);
            assert!(more.len() <= unknown.len(), "{} more than the limit", more.len());
            sleep(Duration::from_millis(5)).await;
        }
        let held = u32::try_from(known.len() + unknown.len() + more.len()).unwrap();
        until("all slots are registered", || {
            counted_of_key(replica, key.id).filter(|(taken, _)| *taken == held).map(drop)
        });
        more.clear();
        sleep(Duration::from_millis(500)).await;
        assert!(slot(&third, &key.digest).await.is_none(), "20 are held");
        unknown.clear();
        fill(&third, &key.digest, &mut more, 10, lease).await;
        assert!(slot(&second, &key.digest).await.is_none(), "one more than {OF_KEY}");
        drop((known, more));
        until_forgotten(replica, &key).await;
        join_all([&first, &second, &third].map(|gateway| gateway.close())).await;
    });
}
