//! Embedded state: restarts, crashes, replay, and the state file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::key::{KeyId, PlainKey};
use domain::quota::{Quota, RateLimitStatus};
use domain::refusal::Refusal;
use state::embedded::{JournalProgress, JournaledUse, Settings, UsedKey};
use state::{Bounds, Change, ChangeError, DecideRequest, Decision, Embedded, Key, KeyList, Org, State, User};

use super::fixture::{HeldKey, admit, decide, fixture_with_key, new_org, permission, refuse, refused, revoke, rotate};
use super::runtime::block_on;
use super::{CONCURRENT, QUOTA, TOKEN};
use crate::support::decide::{decide_request, rotation};
use crate::support::eventually;

const HOUR: Duration = Duration::from_secs(3600);

/// A new state in a directory of its own.
pub(super) fn opened() -> (State, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (open(dir.path()), dir)
}

pub(super) fn settings(path: impl Into<PathBuf>) -> Settings {
    Settings { path: path.into(), quota: QUOTA, concurrent: CONCURRENT, plans: state::LimitPlans::NONE }
}

/// Opens the state of a directory.
pub(super) fn open(dir: &Path) -> State {
    State::Embedded(Embedded::open(&settings(dir.join("state.db"))).unwrap())
}

fn rate_limit_status(state: &State, key: KeyId, now: Micros) -> Option<RateLimitStatus> {
    as_embedded(state).rate_limit_status(key, now)
}

pub(super) fn record(state: &State, key: KeyId) -> Key {
    block_on(as_embedded(state).key(key)).unwrap()
}

pub(super) fn as_embedded(state: &State) -> &Embedded {
    let State::Embedded(embedded) = state else { panic!("not embedded") };
    embedded
}

/// Copies the files as a crash at this moment would leave them, into a directory of its own.
pub(super) fn crashed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["state.db", "state.db-wal"] {
        std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn everything_listed(state: &State) -> (Vec<Org>, Vec<User>, Vec<Key>) {
    let orgs = block_on(state.orgs()).unwrap();
    let users = orgs.iter().flat_map(|org| block_on(state.users(org.id)).unwrap()).collect();
    let keys = orgs.iter().flat_map(|org| block_on(state.keys(org.id)).unwrap()).collect();
    (orgs, users, keys)
}

/// Creates every kind of record, and uses two keys.
async fn furnish(state: &State, now: Micros) -> (HeldKey, HeldKey) {
    let (fixture, key) = fixture_with_key(state).await;
    let (elsewhere, limited) = fixture_with_key(state).await;
    let quota = Quota { requests: 7, per: Duration::from_secs(60), burst: 9, strict: false };
    let gone = fixture.user(state, "gone").await;
    let revoked = fixture.key_of(state, gone).await;
    for change in [
        Change::limit_key(limited.id, Some(quota)),
        Change::limit_org(elsewhere.org, Some(7)),
        Change::suspend_org(elsewhere.org, true),
        Change::RevokeKey { key: revoked.id, at: now },
        Change::RevokeKey { key: revoked.id, at: now.after(TOKEN) },
        Change::RemoveUser { org: fixture.org, user: gone, at: now },
        Change::permit_user(fixture.org, fixture.user, vec![permission("a"), permission("b")], None),
    ] {
        state.change(change).await.unwrap();
    }
    let rotated = rotate(state, &key, now, now.after(TOKEN)).await;
    admit(state, &rotated, now).await;
    admit(state, &key, now).await;
    (key, rotated)
}

fn restart_keeps_everything(end: impl FnOnce(State)) {
    let dir = tempfile::tempdir().unwrap();
    let now = clock::now();
    let state = open(dir.path());
    let (old, key) = block_on(furnish(&state, now));
    let before = (everything_listed(&state), rate_limit_status(&state, key.id, now));
    end(state);
    let state = open(dir.path());
    assert_eq!((everything_listed(&state), rate_limit_status(&state, key.id, now)), before);
    assert!(as_embedded(&state).written_back_at() > Micros(0));
    block_on(async {
        assert_eq!(admit(&state, &old, now).await.number, 3);
        assert_eq!(refuse(&state, &old, now.after(TOKEN)).await, Refusal::Expired);
        assert_eq!(admit(&state, &key, now.after(TOKEN)).await.principal.headers.permissions(), "a,b");
    });
}

#[test]
fn restart_after_close_keeps_everything() {
    restart_keeps_everything(|state| block_on(state.close()));
}

#[test]
fn restart_after_drop_keeps_everything() {
    restart_keeps_everything(drop);
}

#[test]
fn acknowledged_change_survives_a_crash() {
    let (state, dir) = opened();
    let (fixture, key) = block_on(fixture_with_key(&state));
    let listed = everything_listed(&state);
    let left = crashed(dir.path());
    assert_eq!(everything_listed(&open(left.path())), listed);
    block_on(revoke(&state, &key));
    let left = crashed(dir.path());
    assert_eq!(block_on(refuse(&open(left.path()), &key, clock::now())), Refusal::Revoked);
    block_on(fixture.suspend(&state, true));
    assert!(block_on(open(crashed(dir.path()).path()).orgs()).unwrap()[0].suspended);
}

#[test]
fn uses_are_written_back_while_it_runs() {
    let (state, dir) = opened();
    let (_, key) = block_on(fixture_with_key(&state));
    let now = clock::now();
    block_on(admit(&state, &key, now));
    let written = || record(&open(crashed(dir.path()).path()), key.id).uses == 1;
    eventually("the use is written back", written);
}

#[test]
fn checkpoint_follows_a_closed_segment_of_the_journal() {
    let (state, dir) = opened();
    let (_, key) = block_on(fixture_with_key(&state));
    let segment = Arc::new(Mutex::new(1));
    let current = Arc::clone(&segment);
    let progress = move || Some(JournalProgress { segment: *current.lock().unwrap(), lines: 1, lost: 0 });
    as_embedded(&state).follow_journal(progress);
    let written = || record(&open(crashed(dir.path()).path()), key.id).uses;
    block_on(admit(&state, &key, clock::now()));
    eventually("the first checkpoint has the use", || written() == 1);
    block_on(admit(&state, &key, clock::now()));
    assert_eq!(written(), 1, "between two checkpoints");
    *segment.lock().unwrap() = 2;
    eventually("the next checkpoint has the use", || written() == 2);
}

#[test]
fn usage_of_many_keys_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let now = clock::now();
    let keys: Vec<HeldKey> = block_on(async {
        let state = open(dir.path());
        let (fixture, first) = fixture_with_key(&state).await;
        let mut keys = vec![first];
        for _ in 1..250 {
            keys.push(fixture.key(&state).await);
        }
        keys
    });
    let all = |state: &State| -> Vec<_> {
        keys.iter().map(|key| (record(state, key.id), rate_limit_status(state, key.id, now))).collect()
    };
    // Of all keys in a first round, later of some keys of a block.
    for step in [1, 2, 70] {
        let state = open(dir.path());
        let uses = |number: usize| if number.is_multiple_of(step) { 1 + number % 2 } else { 0 };
        for (number, key) in keys.iter().enumerate() {
            (0..uses(number)).for_each(|_| drop(block_on(decide(&state, &key.digest, now))));
        }
        let before = all(&state);
        drop(state);
        assert_eq!(all(&open(dir.path())), before);
    }
}

#[test]
fn digests_of_keys_that_were_revoked_long_ago_are_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (now, long_ago) = (clock::now(), clock::now().before(3 * HOUR));
    let (old, rotated, live) = block_on(async {
        let state = open(dir.path());
        let (fixture, old) = fixture_with_key(&state).await;
        let rotated = PlainKey::generate(old.id).unwrap().digest();
        let rotation = rotation(old.id, rotated, long_ago);
        state.change(rotation).await.unwrap();
        state.change(Change::RevokeKey { key: old.id, at: long_ago }).await.unwrap();
        state.set_bounds(Bounds { keep_revoked: HOUR, ..Bounds::DEFAULT });
        // A change after which the revoked key has left the lists.
        let live = fixture.key(&state).await;
        assert_eq!(as_embedded(&state).keys(fixture.org).len(), 1);
        (old, rotated, live)
    });
    let state = open(dir.path());
    for digest in [old.digest, rotated] {
        assert_eq!(refused(&block_on(decide(&state, &digest, now))), Refusal::Revoked);
        assert_eq!(as_embedded(&state).key_of(&digest), Some(old.id));
    }
    assert_eq!(block_on(admit(&state, &live, now)).number, 1);
}

#[test]
fn removal_of_a_user_ends_the_keys_that_were_read_at_the_start() {
    let (state, dir) = opened();
    let (fixture, key) = block_on(fixture_with_key(&state));
    drop(state);
    let (state, now) = (open(dir.path()), clock::now());
    drop(block_on(admit(&state, &key, now)));
    let list = KeyList { org: fixture.org, owner: Some(fixture.user), newest_first: true };
    let listed = as_embedded(&state).page_of_keys(list, None, 10).items;
    assert_eq!(listed.iter().map(|key| key.id).collect::<Vec<_>>(), [key.id]);
    let removal = Change::RemoveUser { org: fixture.org, user: fixture.user, at: now };
    block_on(state.change(removal)).unwrap();
    assert_eq!(block_on(refuse(&state, &key, now)), Refusal::UserRemoved);
}

#[test]
fn changes_after_close_are_refused_and_decisions_go_on() {
    let (state, _dir) = opened();
    block_on(async {
        let (fixture, key) = fixture_with_key(&state).await;
        state.close().await;
        state.close().await;
        let change = Change::suspend_org(fixture.org, true);
        assert!(matches!(state.change(change).await, Err(ChangeError::Closed)));
        admit(&state, &key, clock::now()).await;
    });
}

#[test]
fn changes_are_made_in_the_order_of_their_arrival() {
    let (state, _dir) = opened();
    let first = new_org();
    let duplicate = Org { name: first.name.clone(), ..new_org() };
    let change = |org: &Org| state.change(Change::CreateOrg(org.clone()));
    let (one, two) = block_on(async { tokio::join!(change(&first), change(&duplicate)) });
    assert!(one.is_ok() && matches!(two, Err(ChangeError::Taken("name"))), "{one:?} {two:?}");
}

/// The largest cost of requests that are replayed.
const MOST: u32 = 4;

/// Uses a key after these pauses, at these costs, and opens the files that a crash before the first use leaves.
fn used_and_crashed(dir: &Path, pauses: &[(u64, u32)]) -> (State, State, KeyId, Vec<JournaledUse>, tempfile::TempDir) {
    let state = open(dir);
    let (_, held) = block_on(fixture_with_key(&state));
    let left = crashed(dir);
    let mut now = clock::now();
    let mut uses = Vec::new();
    for (pause, cost) in pauses.iter().copied() {
        now = now.after(Duration::from_micros(pause));
        let request = DecideRequest { cost: Cost::fixed(cost), ..decide_request(&held.digest, now) };
        if let Decision::Admitted(admitted) = block_on(state.decide(request)).unwrap() {
            uses.push(JournaledUse { key: UsedKey::Key(held.id), time: now, number: admitted.number, cost });
        }
    }
    let restarted = open(left.path());
    (state, restarted, held.id, uses, left)
}

#[test]
fn replay_of_every_use_restores_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let (state, restarted, key, mut uses, _left) =
        used_and_crashed(dir.path(), &[(0, 1), (10, 2), (500_000, 1), (2_000_000, 1), (7, 1), (1, 1)]);
    let stranger = JournaledUse { key: UsedKey::Key("zzzzzzzzz".parse().unwrap()), ..uses[0] };
    let count = uses.len() as u64;
    uses.reverse();
    uses.push(stranger);
    uses.push(uses[0]);
    assert_eq!(as_embedded(&restarted).replay(&uses, MOST), count);
    let last = record(&state, key).last_used.unwrap();
    assert_eq!(rate_limit_status(&restarted, key, last), rate_limit_status(&state, key, last));
    assert_eq!(record(&restarted, key), record(&state, key));
    assert_eq!(as_embedded(&restarted).replay(&uses, MOST), 0, "replayed twice");
    assert_eq!(rate_limit_status(&restarted, key, last), rate_limit_status(&state, key, last));
    let next = rate_limit_status(&restarted, key, last).unwrap().remaining;
    drop(restarted);
    assert_eq!(
        rate_limit_status(&open(_left.path()), key, last).unwrap().remaining,
        next,
        "the replay was not written back"
    );
}

#[test]
fn replay_charges_no_use_that_was_written_back() {
    let dir = tempfile::tempdir().unwrap();
    let (state, _, key, uses, _left) = used_and_crashed(dir.path(), &[(0, 1), (10, 2), (500_000, 1)]);
    let last = uses[2].time;
    let before = rate_limit_status(&state, key, last);
    drop(state);
    let state = open(dir.path());
    assert_eq!(as_embedded(&state).replay(&uses, MOST), 0);
    assert_eq!(rate_limit_status(&state, key, last), before);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, failure_persistence: None, ..Default::default() })]

    /// For any part of the uses that the journal kept.
    #[test]
    fn replay_never_leaves_a_bucket_fuller_than_it_was(
        pauses in proptest::collection::vec((0..2_000_000_u64, 1..=MOST), 1..40),
        kept in proptest::collection::vec(proptest::bool::ANY, 40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (state, restarted, key, uses, _left) = used_and_crashed(dir.path(), &pauses);
        let last = uses.last().copied().unwrap();
        let kept = uses.into_iter().zip(kept).filter(|(_, kept)| *kept);
        let mut known: Vec<JournaledUse> = kept.map(|(used, _)| used).collect();
        known.push(last);
        as_embedded(&restarted).replay(&known, MOST);
        let was = rate_limit_status(&state, key, last.time).unwrap();
        let is = rate_limit_status(&restarted, key, last.time).unwrap();
        proptest::prop_assert!(is.full_in_us >= was.full_in_us, "{is:?} {was:?}");
        proptest::prop_assert!(is.token_in_us >= was.token_in_us, "{is:?} {was:?}");
    }
}

#[test]
fn configured_quota_change_keeps_the_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let now = clock::now();
    let state = open(dir.path());
    let (_, key) = block_on(fixture_with_key(&state));
    block_on(admit(&state, &key, now));
    drop(state);
    let quota = Quota { requests: 1000, per: Duration::from_secs(3600), burst: 1000, strict: false };
    let settings = Settings { quota, ..settings(dir.path().join("state.db")) };
    let state = Embedded::open(&settings).unwrap();
    assert_eq!(state.rate_limit_status(key.id, now).unwrap().remaining, 4);
}

#[test]
fn secret_of_cursors_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let secret = || *block_on(open(dir.path()).cursor_secret()).unwrap().as_bytes();
    let first = secret();
    assert_eq!(secret(), first);
    assert_ne!(*block_on(opened().0.cursor_secret()).unwrap().as_bytes(), first);
}
