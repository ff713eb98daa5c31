//! The concurrency limit of an organization, over all gateways.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::key::{KeyDigest, OrgTag};
use futures_util::future::join_all;
use state::redis::{Address, Servers};
use state::{Decision, State};
use tokio::time::{sleep, timeout};

use super::{Gauge, LIMIT, ask, counted, fill, open, shipped, slot};
use crate::state_contract::PATIENCE;
use crate::state_contract::fixture::fixture_with_key;
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;
use crate::support::redis::{Proxy, Redis};
use crate::support::{Random, until};

/// Short enough to wait for its end, long enough for a loaded machine.
const LEASE: Duration = Duration::from_secs(3);
/// Concurrent clients, more than there are slots.
const CLIENTS: u64 = 240;
/// Requests of each client.
const REQUESTS: u32 = 120;

#[test]
fn slots_of_an_organization_are_shared_by_four_gateways() {
    let (_entered, server) = enter_with_server();
    // One gateway has a network that delays replies, sometimes beyond the deadline.
    let slow = Proxy::to(server.address());
    block_on(async {
        let settings = shipped(&server, LEASE);
        let mut gateways = vec![open(&settings).await, open(&settings).await, open(&settings).await];
        let mut far = settings;
        far.deadline = Duration::from_millis(20);
        far.servers = Servers::Single(Address { host: "127.0.0.1".into(), port: slow.address().port() });
        gateways.push(open(&far).await);
        let (fixture, key) = fixture_with_key(&gateways[0]).await;
        let gauge = Gauge::default();
        let clients = (0..CLIENTS).map(|seed| client(&gateways, &key.digest, &gauge, seed));
        let done = join_all(clients);
        let change_delay = async {
            let mut random = Random::new(7);
            loop {
                slow.delay(Duration::from_micros(random.below(30_000)));
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! { _ = done => {}, () = change_delay => {} }
        slow.delay(Duration::ZERO);
        // A slot whose reply came too late is held by no client until it is given back: how many are
        // is up to the machine.
        let most = gauge.most();
        assert!((LIMIT / 2..=LIMIT).contains(&most), "{most} at once: clients compete, and never exceed the limit");
        // Without delays the limit is reached, from each gateway.
        all_slots_return(&server, &gateways, fixture.tag, &key.digest).await;
    });
}

/// Requests one after the other; some are dropped before they are decided.
async fn client(gateways: &[Arc<State>], digest: &KeyDigest, gauge: &Gauge, seed: u64) {
    let (mut random, begun) = (Random::new(seed), Instant::now());
    let mut requests = 0;
    // At least until the limit was reached.
    while requests < REQUESTS || (gauge.most() < LIMIT && begun.elapsed() < PATIENCE) {
        requests += 1;
        let gateway = &gateways[usize::try_from(random.below(4)).unwrap()];
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

/// Checks that, once all slots are released, any gateway can acquire them all within the lease, and that Redis then
/// counts none.
pub(super) async fn all_slots_return(server: &Redis, gateways: &[Arc<State>], tag: OrgTag, digest: &KeyDigest) {
    let limit = usize::try_from(LIMIT).unwrap();
    for gateway in gateways {
        let mut held = Vec::new();
        fill(gateway, digest, &mut held, limit, LEASE).await;
        assert_eq!(counted(server, tag).0, LIMIT);
        assert!(slot(gateway, digest).await.is_none(), "one more than {LIMIT}");
    }
    assert!(gateways.iter().all(|gateway| gateway.in_flight() == 0));
    until("Redis has no lease", || (counted(server, tag) == (0, Vec::new())).then_some(()));
}
