//! Requests with an idempotency key in the state file: after a crash at any time there are record and change, or
//! neither.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::clock::{self, Micros};
use state::{Change, ChangeError, IdempotencyPlace, IdempotentRequest, State};

use super::cases_idempotency::{new_token, repeated, request};
use super::embedded::{crashed, open, opened};
use super::fixture::{Fixture, fixture_with_key, new_fixture, new_key, new_user};
use super::runtime::block_on;

/// Requests of the crash test: together less than SQLite moves into the database by itself.
const REQUESTS: usize = 60;

async fn is_recorded(state: &State, fixture: &Fixture, request: &IdempotentRequest) -> bool {
    let place = IdempotencyPlace::Org(fixture.tag);
    state.idempotency_record(place, &request.id, clock::now()).await.unwrap().is_some()
}

#[test]
fn crash_leaves_a_change_with_its_record_or_neither() {
    let (state, dir) = opened();
    let fixture = block_on(new_fixture(&state));
    let token = new_token();
    let changes: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
            let once = request(token, key.id);
            (key.id, once.clone(), Change::CreateKey { key, digest }.once(once))
        })
        .collect();
    let ended = AtomicBool::new(false);
    let copies = std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            let mut copies = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                copies.push(crashed(dir.path()));
                std::thread::sleep(Duration::from_millis(1));
            }
            copies
        });
        for (_, _, change) in &changes {
            block_on(state.change(change.clone())).unwrap();
        }
        ended.store(true, Ordering::SeqCst);
        copying.join().unwrap()
    });
    let mut counts = Vec::new();
    for copy in copies {
        let left = open(copy.path());
        let mut made = 0;
        for (key, once, change) in &changes {
            let exists = block_on(left.key(*key)).unwrap().is_some();
            assert_eq!(block_on(is_recorded(&left, &fixture, once)), exists);
            made += usize::from(exists);
            // Sent again, it is made or found.
            match block_on(left.change(change.clone())) {
                Ok(()) => assert!(!exists),
                Err(error) => assert!(exists && repeated(Err(error)).resource == key.to_string()),
            }
        }
        assert_eq!(block_on(left.keys(fixture.org)).unwrap().len(), REQUESTS);
        counts.push(made);
    }
    assert!(counts.iter().any(|made| (1..REQUESTS).contains(made)), "no crash came between: {counts:?}");
}

#[test]
fn restart_keeps_records_and_their_bound() {
    let (state, dir) = opened();
    let (fixture, key) = block_on(fixture_with_key(&state));
    let limit = |number: u32, once: &IdempotentRequest| Change::limit_org(fixture.org, Some(number)).once(once.clone());
    let (token, now) = (new_token(), clock::now());
    let once = |number: u32| IdempotentRequest { max_live: 2, now, ..request(token, number) };
    let requests = [once(1), once(2), once(3)];
    block_on(state.change(limit(1, &requests[0]))).unwrap();
    block_on(state.change(limit(2, &requests[1]))).unwrap();
    block_on(state.close());
    drop(state);
    let state = open(dir.path());
    assert_eq!(repeated(block_on(state.change(limit(4, &requests[0])))).resource, "1");
    // A withdrawal would be made without a record.
    let added = Change::CreateUser(new_user(fixture.org, "third@example.com")).once(requests[2].clone());
    let refused = block_on(state.change(added));
    assert!(matches!(refused, Err(ChangeError::TooManyIdempotencyKeys(2))), "{refused:?}");
    // When they have expired, they are found no more, and count no more.
    let is_found_at = |at: Micros| {
        let place = IdempotencyPlace::Org(fixture.tag);
        block_on(state.idempotency_record(place, &requests[1].id, at)).unwrap().is_some()
    };
    let expires = requests[1].expires;
    assert!(is_found_at(Micros(expires.0 - 1)) && !is_found_at(expires));
    let later =
        IdempotentRequest { now: requests[1].expires, expires: requests[1].expires.after(Duration::MAX), ..once(0) };
    block_on(state.change(limit(5, &later))).unwrap();
    let again = IdempotentRequest { now: later.now, expires: later.expires, ..requests[0].clone() };
    block_on(state.change(limit(6, &again))).unwrap();
    block_on(state.change(Change::RevokeKey { key: key.id, at: now })).unwrap();
}
