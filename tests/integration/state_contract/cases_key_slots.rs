//! Slots of keys that have a limit of requests in flight of their own.

use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::key::policy::{Field, PolicyPatch};
use domain::quota::{Quota, SlotStatus};
use domain::refusal::Refusal;
use futures_util::future::join_all;
use state::{Admitted, Change, Decision, PolicyScope, State};

use super::fixture::{HeldKey, admit, decide, everything, fixture_with_key, rate_limit_status, refuse, rotate};
use super::{QUOTA, TOKEN};

/// Sets the limit of a key, or removes it.
pub(super) async fn limit(state: &State, key: &HeldKey, concurrent: Option<u32>) {
    state.change(limited(key.id, concurrent)).await.unwrap();
}

/// The change that does so.
pub(super) fn limited(key: KeyId, concurrent: Option<u32>) -> Change {
    let concurrent = concurrent.map_or(Field::Clear, Field::Set);
    let patch = Box::new(PolicyPatch { concurrent, ..PolicyPatch::default() });
    Change::set_key_policy(key, patch, PolicyScope::Operator)
}

fn slots(concurrent: u32, in_flight: u32) -> Option<SlotStatus> {
    Some(SlotStatus { concurrent, in_flight })
}

/// Two slots of three of the organization.
pub(super) async fn key_has_no_more_in_flight_than_its_limit(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let other = fixture.key(state).await;
    let now = clock::now();
    limit(state, &key, Some(2)).await;
    assert_eq!(rate_limit_status(state, &key, now).await.key_slots, slots(2, 0));
    let one = admit(state, &key, now).await;
    let two = admit(state, &key, now).await;
    assert_eq!([&one, &two].map(|admitted| admitted.rate_limit.key_slots), [slots(2, 1), slots(2, 2)]);
    let before = everything(state, &key, now).await;
    let Decision::Denied { refusal, rate_limit: Some(status), .. } = decide(state, &key.digest, now).await else {
        panic!("no rate limit status")
    };
    assert_eq!((refusal, status.key_slots), (Refusal::KeyTooManyInFlight, slots(2, 2)));
    assert_eq!(everything(state, &key, now).await, before, "a refusal takes nothing");
    let third = admit(state, &other, now).await;
    assert_eq!((third.rate_limit.in_flight, third.rate_limit.key_slots), (3, None), "a slot was left for others");
    assert_eq!(refuse(state, &other, now).await, Refusal::TooManyInFlight);
    drop(two.permit);
    let again = admit(state, &key, now).await;
    assert_eq!((again.rate_limit.in_flight, again.rate_limit.key_slots), (3, slots(2, 2)));
    assert_eq!(again.rate_limit.remaining, QUOTA.burst - 3);
}

/// The bucket is looked at first, then the slots of the key, then those of the organization; and all three are taken,
/// or none.
pub(super) async fn slots_of_a_key_are_checked_between_bucket_and_organization(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let other = fixture.key(state).await;
    let now = clock::now();
    limit(state, &key, Some(2)).await;
    let quota = Some(Quota { burst: 2, ..QUOTA });
    state.change(Change::limit_key(key.id, quota)).await.unwrap();
    let mut held = vec![admit(state, &other, now).await, admit(state, &other, now).await];
    let own = admit(state, &key, now).await;
    let before = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    assert_eq!(everything(state, &key, now).await, before, "no slot of the key was kept");
    held.pop();
    let second = admit(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::RateLimited);
    assert_eq!(refuse(state, &key, now.after(2 * TOKEN)).await, Refusal::KeyTooManyInFlight);
    drop((held, own, second));
}

pub(super) async fn secrets_of_a_key_share_its_slots(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    limit(state, &key, Some(1)).await;
    let new = rotate(state, &key, now, now.after(10 * TOKEN)).await;
    let held = admit(state, &key, now).await;
    assert_eq!(refuse(state, &new, now).await, Refusal::KeyTooManyInFlight);
    drop(held);
    let held = admit(state, &new, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyTooManyInFlight);
    drop(held);
}

/// Requests that began while the key had no limit do not count; those that began under one do, also under the next.
pub(super) async fn limit_of_a_key_changes_at_once_and_counts_what_began_under_one(state: &State) {
    let (_, key) = fixture_with_key(state).await;
    let now = clock::now();
    let free = admit(state, &key, now).await;
    limit(state, &key, Some(2)).await;
    let first = admit(state, &key, now).await;
    assert_eq!((first.rate_limit.in_flight, first.rate_limit.key_slots), (2, slots(2, 1)));
    limit(state, &key, Some(1)).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyTooManyInFlight);
    limit(state, &key, None).await;
    let second = admit(state, &key, now).await;
    assert_eq!((second.rate_limit.in_flight, second.rate_limit.key_slots), (3, None));
    drop(second);
    limit(state, &key, Some(1)).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::KeyTooManyInFlight, "the first is open");
    drop(first);
    assert_eq!(admit(state, &key, now).await.rate_limit.key_slots, slots(1, 1));
    drop(free);
}

pub(super) async fn requests_at_once_never_exceed_the_slots_of_a_key(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    limit(state, &key, Some(7)).await;
    state.change(Change::limit_org(fixture.org, Some(100))).await.unwrap();
    let quota = Some(Quota { requests: 1_000_000, burst: 1_000_000, ..QUOTA });
    state.change(Change::limit_key(key.id, quota)).await.unwrap();
    let mut now = clock::now();
    for _ in 0..20 {
        now = Micros(now.0 + 20_000);
        let decisions = join_all((0..40).map(|_| decide(state, &key.digest, now))).await;
        let held: Vec<Admitted> = decisions
            .into_iter()
            .filter_map(|decision| match decision {
                Decision::Admitted(admitted) => Some(admitted),
                Decision::Denied { refusal, .. } => {
                    assert_eq!(refusal, Refusal::KeyTooManyInFlight);
                    None
                }
            })
            .collect();
        assert_eq!(held.len(), 7);
    }
}
