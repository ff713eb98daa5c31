//! Concurrent decisions and changes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::clock;
use domain::identity::Permission;
use domain::key::PlainKey;
use domain::quota::Quota;
use domain::refusal::Refusal;
use futures_util::future::join_all;
use state::{Change, DecideRequest, Decision, RouteAccess, State};

use super::fixture::{Fixture, HeldKey, decide, drain, fixture_with_key, new_fixture, permission, refuse, refused};
use super::runtime::block_on;
use super::{CONCURRENT, PATIENCE, TOKEN};
use crate::support::SetOnDrop;
use crate::support::decide::{decide_request, rotation};

pub(super) async fn changes_hold_for_every_decision_that_begins_afterwards(state: &State) {
    let fixture = new_fixture(state).await;
    let unlimited = Change::limit_org(fixture.org, Some(1_000_000));
    state.change(unlimited).await.unwrap();
    let mut all = Vec::new();
    for number in 0..400 {
        all.push(doomed(state, &fixture, number).await);
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
                assert!(Instant::now() < patience, "no decision was made after the change");
                std::thread::yield_now();
            }
            next.fetch_add(1, Ordering::SeqCst);
        }
    });
}

/// One goes through at a time; none of the others gives up.
pub(super) async fn all_of_many_changes_of_one_record_are_made(state: &State) {
    let fixture = new_fixture(state).await;
    let (org, user) = (fixture.org, fixture.user);
    let permit = |number: usize| Change::permit_user(org, user, vec![permission(&format!("p:{number}"))], None);
    let limit = |number: usize| Change::limit_org(org, u32::try_from(number + 1).ok());
    let permits = (0..150).map(|number| state.change(permit(number)));
    let limits = (0..50).map(|number| state.change(limit(number)));
    let keys = (0..50).map(|_| fixture.key(state));
    let (permits, limits, _) = tokio::join!(join_all(permits), join_all(limits), join_all(keys));
    let failed: Vec<_> = permits.into_iter().chain(limits).filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

pub(super) async fn threads_share_a_bucket_exactly(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    state.change(Change::limit_org(fixture.org, Some(1000))).await.unwrap();
    let quota = Quota { requests: 1, per: Duration::from_secs(3600), burst: 20_000, strict: false };
    state.change(Change::limit_key(key.id, Some(quota))).await.unwrap();
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
    let (fixture, _) = fixture_with_key(state).await;
    let plenty = Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000, strict: false };
    let mut keys = Vec::new();
    for _ in 0..4 {
        let key = fixture.key(state).await;
        state.change(Change::limit_key(key.id, Some(plenty))).await.unwrap();
        keys.push(key);
    }
    let held = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for key in &keys {
            scope.spawn(|| {
                for _ in 0..5_000 {
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

pub(super) async fn rate_limited_requests_hold_no_slot(state: &State) {
    let (fixture, storming) = fixture_with_key(state).await;
    let polite = fixture.key(state).await;
    state.change(Change::limit_org(fixture.org, Some(1))).await.unwrap();
    let plenty = Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000, strict: false };
    state.change(Change::limit_key(polite.id, Some(plenty))).await.unwrap();
    let now = clock::now();
    drain(state, &storming, now).await;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                assert_eq!(block_on(refuse(state, &storming, now)), Refusal::RateLimited);
            }
        });
        for _ in 0..5_000 {
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
    key: HeldKey,
    change: Change,
    expected: Refusal,
    /// Set when the change has returned.
    returned: AtomicBool,
}

async fn doomed(state: &State, fixture: &Fixture, number: usize) -> Doomed {
    let user = fixture.user(state, &format!("{number}@example.com")).await;
    let key = fixture.key_of(state, user).await;
    let (org, at) = (fixture.org, clock::now());
    let (change, expected) = match number % 5 {
        0 => (Change::RevokeKey { key: key.id, at }, Refusal::Revoked),
        1 => (Change::RemoveUser { org, user, at }, Refusal::UserRemoved),
        2 => (Change::suspend_user(org, user, Some(at), true), Refusal::UserSuspended),
        3 => (Change::permit_user(org, user, Vec::new(), None), Refusal::Forbidden),
        _ => {
            let digest = PlainKey::generate(key.id).unwrap().digest();
            (rotation(key.id, digest, at), Refusal::Expired)
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
                access: RouteAccess::Permission(read),
                ..decide_request(&doomed.key.digest, clock::now())
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
