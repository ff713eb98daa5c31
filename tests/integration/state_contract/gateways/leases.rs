//! What becomes of the slots of a gateway that dies, that is frozen, and that holds some for long.

use std::time::{Duration, Instant};

use keygate::key::KeyDigest;
use keygate::quota::Quota;
use keygate::refusal::Refusal;
use keygate::state::{Admitted, Change, Decision, State};

use super::alone::{Alone, pass};
use super::{LIMIT, ask, counted, fill, open, shipped, slot};
use crate::state_contract::runtime::{block_on, enter};
use crate::state_contract::tenancy::tenant;
use crate::support::redis::Redis;
use crate::support::until;

const LEASE: Duration = Duration::from_secs(2);
/// What a loaded machine may add to it.
const SLACK: Duration = Duration::from_millis(700);
const ALL: usize = LIMIT as usize;

#[test]
fn the_slots_of_a_dead_gateway_are_free_within_the_lease() {
    let _entered = enter();
    let server = Redis::start();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let (doomed, heir) = (Alone::open(&settings).await, open(&settings).await);
        let (tenancy, key) = tenant(&heir).await;
        let lost = doomed.hold(key.digest, 60).await;
        let mut held = Vec::new();
        fill(&heir, &key.digest, &mut held, 40, Duration::ZERO).await;
        assert!(slot(&heir, &key.digest).await.is_none());
        let died = Instant::now();
        doomed.die();
        fill(&heir, &key.digest, &mut held, ALL, LEASE + SLACK).await;
        assert!(died.elapsed() >= LEASE / 2, "a gateway that lived a moment ago was forgotten");
        assert!(slot(&heir, &key.digest).await.is_none());
        assert_eq!(counted(&server, tenancy.tag), (LIMIT, vec![LIMIT]));
        drop(lost);
    });
}

/// Whoever comes then knows nothing of it; and it was alone, so that only its own lease is there to end.
#[test]
fn the_slots_of_a_gateway_that_was_alone_at_the_limit_are_free_within_the_lease() {
    let _entered = enter();
    let server = Redis::start();
    block_on(async {
        let settings = shipped(&server, LEASE);
        let (doomed, heir) = (Alone::open(&settings).await, open(&settings).await);
        let (_, key) = tenant(&heir).await;
        let lost = doomed.hold(key.digest, ALL).await;
        for _ in 0..3 {
            assert!(matches!(doomed.ask(key.digest).await.unwrap(), Decision::Denied { .. }));
        }
        doomed.die();
        fill(&heir, &key.digest, &mut Vec::new(), ALL, LEASE + SLACK).await;
        drop(lost);
    });
}

/// Nothing else of the organization goes on; or its keys are refused all the time, which tells Redis nothing of us.
#[test]
fn a_slot_that_is_held_for_longer_than_three_leases_still_counts() {
    let _entered = enter();
    let server = Redis::start();
    block_on(async {
        let settings = shipped(&server, Duration::from_secs(1));
        let (holding, asking) = (open(&settings).await, open(&settings).await);
        let (quiet, refused) = (tenant(&asking).await, tenant(&asking).await);
        let limited = refused.0.key(&asking).await;
        let one = Quota { requests: 1, per: Duration::from_secs(3600), burst: 1 };
        asking.change(Change::LimitKey { key: limited.id, quota: Some(one) }).await.unwrap();
        for tenancy in [&quiet.0, &refused.0] {
            asking.change(Change::LimitOrg { org: tenancy.org, concurrent: Some(2) }).await.unwrap();
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        fill(&holding, &quiet.1.digest, &mut first, 2, Duration::ZERO).await;
        fill(&holding, &refused.1.digest, &mut second, 1, Duration::ZERO).await;
        drop(slot(&holding, &limited.digest).await);
        fill(&holding, &refused.1.digest, &mut second, 2, Duration::from_secs(1)).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(3500) {
            assert!(slot(&asking, &quiet.1.digest).await.is_none(), "after {:?}", begun.elapsed());
            assert!(slot(&asking, &refused.1.digest).await.is_none(), "after {:?}", begun.elapsed());
            assert_eq!(refusal(&holding, &limited.digest).await, Refusal::RateLimited);
            assert_eq!(refusal(&holding, &refused.1.digest).await, Refusal::TooManyInFlight);
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
fn a_gateway_that_was_frozen_for_longer_than_its_lease_registers_before_it_admits() {
    let _entered = enter();
    let server = Redis::start();
    block_on(async {
        let lease = Duration::from_secs(1);
        let settings = shipped(&server, lease);
        let (frozen, other) = (Alone::open(&settings).await, open(&settings).await);
        let (tenancy, key) = tenant(&other).await;
        let kept = frozen.hold(key.digest, 60).await;
        let thaw = frozen.freeze();
        let mut held = Vec::new();
        fill(&other, &key.digest, &mut held, ALL, lease + SLACK).await;
        // As Redis counts, there is room for 60 now; but the frozen gateway still holds as many.
        held.truncate(40);
        until("all are given back", || (counted(&server, tenancy.tag).0 == 40).then_some(()));
        // They wait in the gateway, to be the first that it does when it wakes up.
        let asked: Vec<_> = (0..50).map(|_| frozen.ask(key.digest)).collect();
        thaw.send(()).unwrap();
        for answer in asked {
            assert!(matches!(answer.await.unwrap(), Decision::Denied { refusal: Refusal::TooManyInFlight, .. }));
        }
        assert!(slot(&other, &key.digest).await.is_none());
        assert_eq!(sorted(&server, tenancy.tag), (LIMIT, vec![40, 60]));
        held.truncate(39);
        let more: Vec<Admitted> = until_admitted(&frozen, key.digest).await;
        assert!(slot(&other, &key.digest).await.is_none());
        assert_eq!(sorted(&server, tenancy.tag), (LIMIT, vec![39, 61]));
        drop((kept, more, held));
        until("Redis has forgotten all holders", || (counted(&server, tenancy.tag) == (0, Vec::new())).then_some(()));
    });
}

async fn until_admitted(gateway: &Alone, digest: KeyDigest) -> Vec<Admitted> {
    let begun = Instant::now();
    loop {
        if let Decision::Admitted(admitted) = gateway.ask(digest).await.unwrap() {
            return vec![admitted];
        }
        assert!(begun.elapsed() < SLACK, "the slot that was given back is not seen");
        pass(Duration::from_millis(2)).await;
    }
}

fn sorted(server: &Redis, tag: keygate::key::OrgTag) -> (u32, Vec<u32>) {
    let (taken, mut held) = counted(server, tag);
    held.sort_unstable();
    (taken, held)
}
