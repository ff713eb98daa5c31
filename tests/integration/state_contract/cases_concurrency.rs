//! What holds while many decide and change at once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keygate::clock;
use keygate::identity::Permission;
use keygate::key::PlainKey;
use keygate::quota::Quota;
use keygate::refusal::Refusal;
use keygate::state::{Change, DecideRequest, Decision, RouteAccess, State};

use super::runtime::block_on;
use super::tenancy::{Held, Tenancy, decide, drain, permission, refuse, refused, tenancy, tenant};
use super::{CONCURRENT, PATIENCE, TOKEN};

pub(super) async fn no_decision_begun_after_a_change_misses_it(state: &State) {
    let tenancy = tenancy(state).await;
    let unlimited = Change::LimitOrg { org: tenancy.org, concurrent: Some(1_000_000) };
    state.change(unlimited).await.unwrap();
    let mut all = Vec::new();
    for number in 0..400 {
        all.push(doomed(state, &tenancy, number).await);
    }
    let (next, checked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let read = permission("queries:read");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| block_on(watch(state, &all, &next, &read, &checked)));
        }
        for doomed in &all {
            block_on(state.change(doomed.change.clone())).unwrap();
            let before = checked.load(Ordering::SeqCst);
            doomed.returned.store(true, Ordering::SeqCst);
            // At least one decision that began after the change is looked at before the next change is made.
            let patience = Instant::now() + PATIENCE;
            while checked.load(Ordering::SeqCst) == before {
                assert!(Instant::now() < patience, "nobody looked at the change");
                std::thread::yield_now();
            }
            next.fetch_add(1, Ordering::SeqCst);
        }
    });
}

pub(super) async fn threads_share_a_bucket_exactly(state: &State) {
    let (tenancy, key) = tenant(state).await;
    state.change(Change::LimitOrg { org: tenancy.org, concurrent: Some(1000) }).await.unwrap();
    let quota = Quota { requests: 1, per: Duration::from_secs(3600), burst: 20_000 };
    state.change(Change::LimitKey { key: key.id, quota: Some(quota) }).await.unwrap();
    // The tokens stay, so the first ones must be waited for.
    let now = clock::now().after(quota.per * quota.burst);
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let take = || {
            let mut numbers = Vec::new();
            while let Decision::Admitted(admitted) = block_on(decide(state, &key.digest, now)) {
                numbers.push(admitted.number);
            }
            numbers
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(numbers.len(), 20_000);
    assert_eq!(numbers.into_iter().collect::<HashSet<_>>(), (1..=20_000).collect());
}

pub(super) async fn threads_never_exceed_the_slots(state: &State) {
    let (tenancy, _) = tenant(state).await;
    let plenty = Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000 };
    let mut keys = Vec::new();
    for _ in 0..4 {
        let key = tenancy.key(state).await;
        state.change(Change::LimitKey { key: key.id, quota: Some(plenty) }).await.unwrap();
        keys.push(key);
    }
    let held = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for key in &keys {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let Decision::Admitted(admitted) = block_on(decide(state, &key.digest, clock::now())) else {
                        continue;
                    };
                    assert!(held.fetch_add(1, Ordering::SeqCst) < CONCURRENT);
                    assert!((1..=CONCURRENT).contains(&admitted.rate_limit.in_flight));
                    std::thread::yield_now();
                    held.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
}

pub(super) async fn a_storm_of_rate_limited_requests_holds_no_slot(state: &State) {
    let (tenancy, storming) = tenant(state).await;
    let polite = tenancy.key(state).await;
    state.change(Change::LimitOrg { org: tenancy.org, concurrent: Some(1) }).await.unwrap();
    let plenty = Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000 };
    state.change(Change::LimitKey { key: polite.id, quota: Some(plenty) }).await.unwrap();
    let now = clock::now();
    drain(state, &storming, now).await;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                assert_eq!(block_on(refuse(state, &storming, now)), Refusal::RateLimited);
            }
        });
        for _ in 0..20_000 {
            let decision = block_on(decide(state, &polite.digest, clock::now().after(TOKEN)));
            if let Decision::Denied { refusal, .. } = decision {
                over.store(true, Ordering::SeqCst);
                panic!("{refusal:?} because of a request that was refused");
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}

/// One key that is refused from some moment on, and what its holders know of that.
struct Doomed {
    key: Held,
    change: Change,
    expected: Refusal,
    /// Set when the change has returned.
    returned: AtomicBool,
}

async fn doomed(state: &State, tenancy: &Tenancy, number: usize) -> Doomed {
    let user = tenancy.user(state, &format!("{number}@example.com")).await;
    let key = tenancy.key_of(state, user).await;
    let (org, at) = (tenancy.org, clock::now());
    let (change, expected) = match number % 4 {
        0 => (Change::RevokeKey { key: key.id, at }, Refusal::Revoked),
        1 => (Change::RemoveUser { org, user, at }, Refusal::UserRemoved),
        2 => (Change::PermitUser { org, user, permissions: Vec::new() }, Refusal::Forbidden),
        _ => {
            let digest = PlainKey::generate(key.id).unwrap().digest();
            (Change::RotateKey { key: key.id, digest, at, previous_until: at }, Refusal::Expired)
        }
    };
    Doomed { key, change, expected, returned: AtomicBool::new(false) }
}

/// Uses the key that is changed next, over and over, until all are changed.
async fn watch(state: &State, all: &[Doomed], next: &AtomicUsize, read: &Permission, checked: &AtomicUsize) {
    while let Some(doomed) = all.get(next.load(Ordering::SeqCst)) {
        let patience = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < patience, "the change never returned");
            let returned = doomed.returned.load(Ordering::SeqCst);
            let ask = DecideRequest {
                digest: &doomed.key.digest,
                id: None,
                access: RouteAccess::Permission(read),
                now: clock::now(),
            };
            let decision = state.decide(ask).await.unwrap();
            if returned {
                assert_eq!(refused(&decision), doomed.expected);
                checked.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
    }
}
