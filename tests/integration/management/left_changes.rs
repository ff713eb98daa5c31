//! Changes of a gateway that was killed: an acknowledged one has its outcome whatever comes, and of any other one the
//! next start records what the state has.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::management;
use control::management::{Management, PolicyUpdate};
use domain::clock;
use domain::identity::{AuthMethod, MANAGEMENT_METHOD};
use futures_util::FutureExt as _;
use journal::audit::{Filter, Journal, Outcome, Reader, Record, Use};
use platform::metrics::Metrics;
use state::Change;

use super::{Fixture, OPERATOR, journal_settings};
use crate::journal::support::{Caller, change_of};
use crate::state_contract::redis::on_a_server;
use crate::state_contract::runtime::{block_on, enter};
use crate::support::until;
use crate::support::updates::policy_change;

/// The journal as a kill at this moment leaves it.
fn copy_of_killed(fixture: &Fixture) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let [from, to] = [fixture.directory.path(), copy.path()].map(|path| journal_settings(path).path);
    copy_files(&from, &to);
    copy
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The records of changes in a journal, newest first.
fn records(directory: &Path) -> Vec<Record> {
    let reader = Reader::open(&journal_settings(directory).path).unwrap();
    reader.list(&Filter::default(), 100, None).unwrap().records
}

/// A change, with the action under which management records it.
type Case = (&'static str, fn(&Given) -> Change);

/// Records that each case finds in the state.
struct Given {
    key: state::Key,
    org: state::Org,
}

/// Those whose effect the state shows.
const SHOWN: [Case; 5] = [
    ("key.revoke", |given| Change::RevokeKey { key: given.key.id, at: clock::now() }),
    ("user.remove", |given| Change::RemoveUser { org: given.org.id, user: given.key.user, at: clock::now() }),
    ("user.suspend", |given| Change::suspend_user(given.org.id, given.key.user, Some(clock::now()), true)),
    ("org.suspend", |given| Change::suspend_org(given.org.id, true)),
    ("org.resume", |given| Change::suspend_org(given.org.id, false)),
];
/// One that sets a value, which the record does not have.
const HIDDEN: Case = ("org.limits", |given| Change::limit_org(given.org.id, Some(7)));

/// Kills the gateway during a change: before the commit, or after it. Returns the outcome that the next start records.
async fn outcome_after_kill(fixture: &Fixture, (action, change): Case, is_committed: bool) -> String {
    let created = fixture.new_key().await.key;
    let key = fixture.state.key(created.id).await.unwrap().unwrap();
    let org = fixture.state.org(key.org).await.unwrap().unwrap();
    let given = Given { key, org };
    if action == "org.resume" {
        fixture.state.change(Change::suspend_org(given.org.id, true)).await.unwrap();
    }
    let caller = Caller { key: given.key.id, user: given.key.user, org: given.org.id };
    let (auth_method, method) = (AuthMethod::AdminSocket, MANAGEMENT_METHOD);
    let opening = Use { number: None, auth_method, action, method, path: action, ..caller.opening() };
    let id = opening.id;
    let begun = change_of(opening);
    // A killed process runs no destructor.
    std::mem::forget(fixture.journal.begin_change(&begun, true).await.unwrap());
    if is_committed {
        fixture.state.change(change(&given)).await.unwrap();
    }
    let left = copy_of_killed(fixture);
    let settings = journal_settings(left.path());
    let metrics = Metrics::new();
    let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
    let management = Management::new(Arc::clone(&fixture.state), journal.clone(), &settings, &metrics.state);
    management::end_left_changes_once(&management).await;
    journal.close().await;
    let record = records(left.path()).into_iter().find(|record| record.id == id).unwrap();
    record.outcome.name().to_owned()
}

fn what_holds_is_recorded_on(new_state: impl Fn() -> Fixture) {
    block_on(async {
        for case in SHOWN {
            for (is_committed, expected) in [(true, "completed"), (false, "aborted")] {
                let fixture = new_state().with_org().await;
                assert_eq!(outcome_after_kill(&fixture, case, is_committed).await, expected, "{}", case.0);
            }
        }
        for is_committed in [true, false] {
            let fixture = new_state().with_org().await;
            assert_eq!(outcome_after_kill(&fixture, HIDDEN, is_committed).await, "in_doubt");
        }
    });
}

#[test]
fn next_start_records_what_the_embedded_state_has() {
    let _entered = enter();
    what_holds_is_recorded_on(Fixture::new);
}

#[test]
fn next_start_records_what_redis_has() {
    let _entered = enter();
    let servers = std::cell::RefCell::new(Vec::new());
    what_holds_is_recorded_on(|| {
        let (state, server) = on_a_server();
        servers.borrow_mut().push(server);
        Fixture::on(|_| state)
    });
}

/// Nothing is waited for: the kill comes with the answer.
#[tokio::test]
async fn acknowledged_change_has_its_outcome_at_once() {
    let fixture = Fixture::with_ada().await;
    for _ in 0..20 {
        let key = fixture.new_key().await.key.id;
        management::revoke_key(&fixture.management, OPERATOR, key, clock::now()).await.unwrap();
        let left = copy_of_killed(&fixture);
        let last = &records(left.path())[..2];
        let ended: Vec<(&str, &str)> =
            last.iter().map(|record| (record.action.as_str(), record.outcome.name())).collect();
        assert_eq!(ended, [("key.revoke", "completed"), ("key.create", "completed")]);
    }
}

/// The future of an operation is dropped when its client goes: the change may be made all the same.
#[tokio::test]
async fn change_whose_caller_is_gone_is_in_doubt() {
    let fixture = Fixture::with_ada().await;
    let found = |key| {
        let is_of_key = |record: &Record| record.action == "key.revoke" && record.key_id == Some(key);
        records(fixture.directory.path()).into_iter().find(is_of_key)
    };
    // A thread that waits for its turn may find the change made by the time it looks for the answer.
    for _ in 0..100 {
        let key = fixture.new_key().await.key.id;
        let mut revocation = Box::pin(management::revoke_key(&fixture.management, OPERATOR, key, clock::now()));
        while found(key).is_none() && (&mut revocation).now_or_never().is_none() {}
        drop(revocation);
        let ended = || found(key).map(|record| record.outcome).filter(|outcome| *outcome != Outcome::InProgress);
        match until("the change has an outcome", ended).name() {
            "in_doubt" => return,
            outcome => assert_eq!(outcome, "completed"),
        }
    }
    panic!("no change waits for the state");
}

/// A gateway that was killed behind the record of an announcement: it is the only one, or another gateway was first.
#[tokio::test]
async fn announcement_that_was_left_is_completed_once_or_aborted() {
    let fixture = Fixture::with_ada().await;
    let now = clock::now();
    let expires = now.after(Duration::from_secs(7 * 24 * 3600 + 3600));
    let mut keys = Vec::new();
    for _ in 0..2 {
        let created = fixture.new_key().await.key;
        let update = policy_change(PolicyUpdate { expires: Some(Some(expires)), ..Default::default() });
        management::update_key(&fixture.management, OPERATOR, created.id, update, now).await.unwrap();
        keys.push(fixture.state.key(created.id).await.unwrap().unwrap());
    }
    let [first, second] = &keys[..] else { panic!("two") };
    let path: &'static str = format!("key.expiring/7d/{expires}").leak();
    let leave = async |key: &state::Key| {
        let caller = Caller { key: key.id, user: key.user, org: key.org };
        let (auth_method, method, action) = (AuthMethod::AdminSocket, MANAGEMENT_METHOD, "key.expiring");
        let opening = Use { number: None, auth_method, action, method, path, ..caller.opening() };
        let id = opening.id;
        std::mem::forget(fixture.journal.begin_change(&change_of(opening), false).await.unwrap());
        id
    };
    let of_first = leave(first).await;
    let announced = management::announce_ends(&fixture.management, now).await.unwrap();
    assert_eq!(announced, 2, "the claim of the first has run out");
    let of_second = leave(second).await;
    let third = fixture.new_key().await.key.id;
    let update = policy_change(PolicyUpdate { expires: Some(Some(expires)), ..Default::default() });
    management::update_key(&fixture.management, OPERATOR, third, update, now).await.unwrap();
    let third = fixture.state.key(third).await.unwrap().unwrap();
    let of_third = leave(&third).await;

    let left = copy_of_killed(&fixture);
    let settings = journal_settings(left.path());
    let metrics = Metrics::new();
    let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
    let management = Management::new(Arc::clone(&fixture.state), journal.clone(), &settings, &metrics.state);
    management::end_left_changes_once(&management).await;
    assert_eq!(management::announce_ends(&management, now).await.unwrap(), 0, "each is claimed for good");
    journal.close().await;
    let records = records(left.path());
    let outcome = |id| records.iter().find(|record| record.id == id).unwrap().outcome.name();
    assert_eq!([of_first, of_second, of_third].map(outcome), ["aborted", "aborted", "completed"]);
    let completed =
        records.iter().filter(|record| record.action == "key.expiring" && record.outcome.name() == "completed");
    assert_eq!(completed.count(), 3);
}
