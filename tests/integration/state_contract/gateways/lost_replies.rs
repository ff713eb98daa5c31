//! Lost replies: no slot leaks or is counted twice, and no token is given twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::key::KeyDigest;
use domain::quota::Quota;
use futures_util::future::join_all;
use state::redis::{Address, Servers};
use state::{Change, Decision, State};
use tokio::time::sleep;

use super::cutting_proxy::CuttingProxy;
use super::slots::all_slots_return;
use super::{Gauge, LIMIT, ask, open, shipped};
use crate::state_contract::PATIENCE;
use crate::state_contract::fixture::{fixture_with_key, record};
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;
use crate::support::Random;

const LEASE: Duration = Duration::from_secs(3);
const LOAD: Duration = Duration::from_secs(4);
/// Concurrent clients, more than there are slots.
const CLIENTS: u64 = 240;
/// Quota of one of the keys, which is used beyond it.
const QUOTA: Quota = Quota { requests: 500, per: Duration::from_secs(1), burst: 100, strict: false };

/// Admissions of the key that has [`QUOTA`], and of the other.
#[derive(Default)]
struct Admissions([AtomicU64; 2]);

#[test]
fn cut_connections_leak_and_double_nothing() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let near = shipped(&server, LEASE);
        let (mut gateways, mut networks) = (vec![open(&near).await], Vec::new());
        for seed in 0..3 {
            let network = CuttingProxy::to(server.address(), seed).await;
            let mut settings = near.clone();
            settings.deadline = Duration::from_millis(500);
            settings.servers = Servers::Single(Address { host: "127.0.0.1".into(), port: network.address.port() });
            gateways.push(open(&settings).await);
            networks.push(network);
        }
        let (fixture, plenty) = fixture_with_key(&gateways[0]).await;
        let limited = fixture.key(&gateways[0]).await;
        gateways[0].change(Change::limit_key(limited.id, Some(QUOTA))).await.unwrap();
        let (gauge, admissions, begun) = (Gauge::default(), Admissions::default(), Instant::now());
        let digests = [limited.digest, plenty.digest];
        join_all((0..CLIENTS).map(|seed| client(&gateways, &digests, (&gauge, &admissions), begun, seed))).await;
        let allowed = f64::from(QUOTA.burst) + f64::from(QUOTA.requests) * begun.elapsed().as_secs_f64();
        networks.iter().for_each(CuttingProxy::stop_cutting);

        let cuts: u64 = networks.iter().map(CuttingProxy::cuts).sum();
        assert!(cuts > 30, "only {cuts} connections were cut");
        // A slot whose reply was lost is held by no client until it is given back: how many are is up to the machine.
        let most = gauge.most();
        assert!((LIMIT / 2..=LIMIT).contains(&most), "{most} at once: clients compete, and never exceed the limit");
        let [few, many] = admissions.0.map(AtomicU64::into_inner);
        let taken = [record(&gateways[0], &limited).await.uses, record(&gateways[0], &plenty).await.uses];
        assert!(few <= taken[0] && many <= taken[1], "{few} and {many} uses, {taken:?} tokens");
        assert!(taken[0] as f64 <= allowed, "{} tokens of {allowed}", taken[0]);
        // A loaded machine does not ask for all of it.
        assert!(taken[0] as f64 >= 0.3 * allowed, "only {} tokens of {allowed}", taken[0]);
        all_slots_return(&server, &gateways, fixture.tag, &plenty.digest).await;
    });
}

async fn client(
    gateways: &[Arc<State>],
    digests: &[KeyDigest; 2],
    (gauge, admissions): (&Gauge, &Admissions),
    begun: Instant,
    seed: u64,
) {
    let mut random = Random::new(seed);
    // At least until the limit was reached.
    while begun.elapsed() < LOAD || (gauge.most() < LIMIT && begun.elapsed() < PATIENCE) {
        let gateway = &gateways[usize::try_from(random.below(4)).unwrap()];
        let which = usize::from(random.below(2) > 0);
        match ask(gateway, &digests[which]).await {
            Ok(Decision::Admitted(admitted)) => {
                admissions.0[which].fetch_add(1, Ordering::SeqCst);
                let _counted = gauge.count(admitted);
                sleep(Duration::from_micros(random.below(60_000))).await;
            }
            Ok(Decision::Denied { .. }) | Err(_) => sleep(Duration::from_micros(random.below(10_000))).await,
        }
    }
}
