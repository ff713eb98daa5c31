//! Refill of an idle key: never more than its bucket allows, whichever gateway is used next, and whatever the clocks of
//! the gateways show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::clock::{self, Micros};
use domain::key::KeyDigest;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::redis::Clock;
use state::{Change, Decision, State};

use super::gateway_thread::pass;
use super::{open_four, shipped};
use crate::state_contract::fixture::{decide, fixture_with_key};
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;

/// Ten requests a second, and a burst of a minute's worth.
const QUOTA: Quota = Quota { requests: 10, per: Duration::from_secs(1), burst: 600, strict: false };
const LEASE: Duration = Duration::from_secs(10);

/// Uses all gateways in turn until the bucket is empty. Returns the number of tokens.
async fn drain(gateways: &[Arc<State>], digest: &KeyDigest, now: impl Fn(usize) -> Micros) -> u64 {
    let mut admitted = 0;
    for (number, gateway) in gateways.iter().enumerate().cycle() {
        match decide(gateway, digest, now(number)).await {
            Decision::Admitted(_) => {
                admitted += 1;
                assert!(admitted < 10_000, "the bucket never empties");
            }
            Decision::Denied { refusal, .. } => {
                assert_eq!(refusal, Refusal::RateLimited);
                break;
            }
        }
    }
    admitted
}

#[test]
fn refill_after_a_pause_is_capped_by_the_burst() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let mut settings = shipped(&server, LEASE);
        (settings.quota, settings.clock) = (QUOTA, Clock::Caller);
        let gateways = open_four(&settings).await;
        let (_, key) = fixture_with_key(&gateways[0]).await;
        let mut now = clock::now();
        assert_eq!(drain(&gateways, &key.digest, |_| now).await, 600);
        for (pause, tokens) in [(1, 10), (5, 50), (59, 590), (60, 600), (61, 600), (3600, 600), (400 * 86400, 600)] {
            now = now.after(Duration::from_secs(pause));
            let early = Micros(now.0 - 1);
            assert_eq!(drain(&gateways, &key.digest, |_| now).await, tokens, "after {pause} s");
            assert_eq!(drain(&gateways, &key.digest, |_| early).await, 0, "after {pause} s");
        }
    });
}

#[test]
fn server_clock_alone_decides() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let mut settings = shipped(&server, LEASE);
        settings.quota = QUOTA;
        let gateways = open_four(&settings).await;
        let (fixture, key) = fixture_with_key(&gateways[0]).await;
        gateways[0].change(Change::limit_org(fixture.org, Some(1000))).await.unwrap();
        let hour = Duration::from_secs(3600);
        let off = |gateway: usize| match gateway {
            0 => clock::now(),
            1 => clock::now().after(2 * hour),
            2 => clock::now().before(2 * hour),
            _ => clock::now().after(24 * 365 * hour),
        };
        let inflow = |begun: Instant| (begun.elapsed().as_secs_f64() * 10.0).ceil() as u64;
        let begun = Instant::now();
        let admitted = drain(&gateways, &key.digest, off).await;
        assert!((600..=600 + inflow(begun)).contains(&admitted), "{admitted}");
        let begun = Instant::now();
        pass(Duration::from_secs(3)).await;
        let admitted = drain(&gateways, &key.digest, off).await;
        assert!((30..=inflow(begun) + 1).contains(&admitted), "{admitted} after a pause of 3 s");
    });
}
