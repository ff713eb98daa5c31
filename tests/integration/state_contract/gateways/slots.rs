//! One concurrency of an organization, over all gateways.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use keygate::key::{KeyDigest, OrgTag};
use keygate::state::redis::{Address, Servers};
use keygate::state::{Decision, State};
use tokio::time::{sleep, timeout};

use super::{Gauge, LIMIT, ask, counted, fill, open, shipped};
use crate::state_contract::PATIENCE;
use crate::state_contract::runtime::{block_on, enter};
use crate::state_contract::tenancy::tenant;
use crate::support::redis::{Proxy, Redis};
use crate::support::{Random, until};

/// Short enough to wait for its end, long enough for a loaded machine.
const LEASE: Duration = Duration::from_secs(3);
/// Clients at a time, which want more than there is.
const CLIENTS: u64 = 240;
/// What each of them asks for.
const REQUESTS: u32 = 120;

#[test]
fn four_gateways_share_the_slots_of_an_organization() {
    let _entered = enter();
    let server = Redis::start();
    // One gateway has a network whose answers are late, sometimes later than the deadline.
    let slow = Proxy::to(server.address());
    block_on(async {
        let settings = shipped(&server, LEASE);
        let mut gateways = vec![open(&settings).await, open(&settings).await, open(&settings).await];
        let mut far = settings;
        far.deadline = Duration::from_millis(20);
        far.servers = Servers::Single(Address { host: "127.0.0.1".into(), port: slow.address().port() });
        gateways.push(open(&far).await);
        let (tenancy, key) = tenant(&gateways[0]).await;
        let gauge = Gauge::default();
        let clients = (0..CLIENTS).map(|seed| client(&gateways, &key.digest, &gauge, seed));
        let done = join_all(clients);
        let weather = async {
            let mut random = Random::new(7);
            loop {
                slow.delay(Duration::from_micros(random.below(30_000)));
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! { _ = done => {}, () = weather => {} }
        slow.delay(Duration::ZERO);
        assert_eq!(gauge.most(), LIMIT, "at most, and really");
        all_come_back(&server, &gateways, tenancy.tag, &key.digest).await;
    });
}

/// One client after the other, some of which leave early.
async fn client(gateways: &[Arc<State>], digest: &KeyDigest, gauge: &Gauge, seed: u64) {
    let (mut random, begun) = (Random::new(seed), Instant::now());
    let mut requests = 0;
    // And until the limit was reached.
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

/// When all was given back, any gateway can have it all within the lease, and then Redis counts nothing.
pub(super) async fn all_come_back(server: &Redis, gateways: &[Arc<State>], tag: OrgTag, digest: &KeyDigest) {
    let limit = usize::try_from(LIMIT).unwrap();
    for gateway in gateways {
        let mut held = Vec::new();
        let took = fill(gateway, digest, &mut held, limit, LEASE).await;
        assert!(took < LEASE, "{took:?}");
        assert_eq!(counted(server, tag).0, LIMIT);
    }
    assert!(gateways.iter().all(|gateway| gateway.in_flight() == 0));
    until("Redis has forgotten all holders", || (counted(server, tag) == (0, Vec::new())).then_some(()));
}
