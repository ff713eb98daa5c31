//! Slot leases of a gateway that dies, of one that is frozen, and of one that holds slots for long.

use std::time::{Duration, Instant};

use domain::key::KeyDigest;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::{Admitted, Change, Decision, State};

use super::gateway_thread::{GatewayThread, pass};
use super::{LIMIT, ask, counted, fill, open, shipped, slot};
use crate::state_contract::fixture::fixture_with_key;
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;
use crate::support::redis::Redis;
use crate::support::{lenient, until};

const LEASE: Duration = Duration::from_secs(2);
/// Delay that a loaded machine may add.
const SLACK: Duration = Duration::from_millis(700);
const ALL: usize = LIMIT as usize;

#[test]
fn slots_of_a_dead_gateway_are_free_within_the_lease() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        // Long enough that a heartbeat which a loaded machine delays does not look like an early end.
        let lease = 3 * LEASE;
        let settings = shipped(&server, lease);
        let (dying, survivor) = (GatewayThread::open(&settings).await, open(&settings).await);
        let (fixture, key) = fixture_with_key(&survivor).await;
        let lost = dying.hold(key.digest, 60).await;
        let mut held = Vec::new();
        fill(&survivor, &key.digest, &mut held, 40, Duration::ZERO).await;
        assert!(slot(&survivor, &key.digest).await.is_none());
        let died = Instant::now();
        dying.die();
        fill(&survivor, &key.digest, &mut held, ALL, lease + SLACK).await;
        assert!(died.elapsed() >= lease / 2, "the lease expired early");
        assert!(slot(&survivor, &key.digest).await.is_none());
        assert_eq!(counted(&server, fixture.tag), (LIMIT, vec![LIMIT]));
        drop(lost);
    });
}

/// The next gateway has no record of the dead one, whose lease is the only one that can expire.
#[test]
fn slots_of_a_lone_dead_gateway_at_the_limit_are_free_within_the_lease() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let (dying, survivor) = (GatewayThread::open(&settings).await, open(&settings).await);
        let (_, key) = fixture_with_key(&survivor).await;
        let lost = dying.hold(key.digest, ALL).await;
        for _ in 0..3 {
            assert!(matches!(dying.decide(key.digest).await.unwrap(), Decision::Denied { .. }));
        }
        dying.die();
        fill(&survivor, &key.digest, &mut Vec::new(), ALL, LEASE + SLACK).await;
        drop(lost);
    });
}

/// Of two organizations, one is idle, and the keys of the other are refused all the time: a refusal does not renew the
/// lease, so the heartbeat has to.
#[test]
fn slot_held_for_longer_than_three_leases_still_counts() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let settings = shipped(&server, Duration::from_secs(1));
        let (holder, other) = (open(&settings).await, open(&settings).await);
        let (quiet, refused) = (fixture_with_key(&other).await, fixture_with_key(&other).await);
        let limited = refused.0.key(&other).await;
        let one = Quota { requests: 1, per: Duration::from_secs(3600), burst: 1, strict: false };
        other.change(Change::limit_key(limited.id, Some(one))).await.unwrap();
        for fixture in [&quiet.0, &refused.0] {
            other.change(Change::limit_org(fixture.org, Some(2))).await.unwrap();
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        fill(&holder, &quiet.1.digest, &mut first, 2, Duration::ZERO).await;
        fill(&holder, &refused.1.digest, &mut second, 1, Duration::ZERO).await;
        drop(slot(&holder, &limited.digest).await);
        fill(&holder, &refused.1.digest, &mut second, 2, Duration::from_secs(1)).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(3500) {
            assert!(slot(&other, &quiet.1.digest).await.is_none(), "after {:?}", begun.elapsed());
            assert!(slot(&other, &refused.1.digest).await.is_none(), "after {:?}", begun.elapsed());
            assert_eq!(refusal(&holder, &limited.digest).await, Refusal::RateLimited);
            assert_eq!(refusal(&holder, &refused.1.digest).await, Refusal::TooManyInFlight);
            pass(Duration::from_millis(5)).await;
        }
    });
}

async fn refusal(state: &State, digest: &KeyDigest) -> Refusal {
    match ask(state, digest).await.unwrap() {
        Decision::Denied { refusal, .. } => refusal,
        Decision::Admitted(_) => panic!("admitted"),
    }
}

#[test]
fn gateway_frozen_for_longer_than_its_lease_resyncs_before_it_admits() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let lease = Duration::from_secs(1);
        let settings = shipped(&server, lease);
        let (frozen, other) = (GatewayThread::open(&settings).await, open(&settings).await);
        let (fixture, key) = fixture_with_key(&other).await;
        let kept = frozen.hold(key.digest, 60).await;
        let thaw = frozen.freeze();
        let mut held = Vec::new();
        fill(&other, &key.digest, &mut held, ALL, lease + SLACK).await;
        // Redis counts room for 60 now, but the frozen gateway still holds as many.
        held.truncate(40);
        until("all releases are reported", || (counted(&server, fixture.tag).0 == 40).then_some(()));
        // Queued in the gateway: the first requests that it decides when it wakes up.
        let decisions: Vec<_> = (0..50).map(|_| frozen.decide(key.digest)).collect();
        thaw.send(()).unwrap();
        for decision in decisions {
            assert!(matches!(decision.await.unwrap(), Decision::Denied { refusal: Refusal::TooManyInFlight, .. }));
        }
        assert!(slot(&other, &key.digest).await.is_none());
        assert_eq!(sorted(&server, fixture.tag), (LIMIT, vec![40, 60]));
        held.truncate(39);
        let more: Vec<Admitted> = until_admitted(&frozen, key.digest).await;
        assert!(slot(&other, &key.digest).await.is_none());
        assert_eq!(sorted(&server, fixture.tag), (LIMIT, vec![39, 61]));
        drop((kept, more, held));
        until("Redis has no lease", || (counted(&server, fixture.tag) == (0, Vec::new())).then_some(()));
    });
}

async fn until_admitted(gateway: &GatewayThread, digest: KeyDigest) -> Vec<Admitted> {
    let begun = Instant::now();
    loop {
        if let Decision::Admitted(admitted) = gateway.decide(digest).await.unwrap() {
            return vec![admitted];
        }
        assert!(begun.elapsed() < lenient(SLACK), "the released slot is not seen");
        pass(Duration::from_millis(2)).await;
    }
}

fn sorted(server: &Redis, tag: domain::key::OrgTag) -> (u32, Vec<u32>) {
    let (taken, mut held) = counted(server, tag);
    held.sort_unstable();
    (taken, held)
}
