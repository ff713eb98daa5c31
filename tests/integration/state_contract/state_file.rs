//! The file of the embedded state: one process at a time, its version, its mode, and what a failed write leaves.

use std::path::Path;
use std::time::Duration;

use domain::clock;
use domain::refusal::Refusal;
use state::embedded::OpenError;
use state::{Change, ChangeError, Embedded, IdempotencyPlace, OrgPolicy, State, UnusedKeys, User};

use super::cases_idempotency::{new_token, request};
use super::embedded::{open, opened, record, settings};
use super::fixture::{admit, fixture_with_key, new_key, new_user, refuse};
use super::runtime::block_on;
use crate::support::SmallDisk;

#[test]
fn state_file_is_opened_by_one_process_at_a_time() {
    let (state, dir) = opened();
    let again = || Embedded::open(&settings(dir.path().join("state.db")));
    assert!(matches!(again(), Err(OpenError::Locked(path)) if path == dir.path().join("state.db")));
    block_on(state.close());
    assert!(matches!(again(), Err(OpenError::Locked(_))));
    drop(state);
    again().unwrap();
}

#[test]
fn file_of_another_version_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join("state.db");
    let version = |set: Option<i64>| {
        let file = rusqlite::Connection::open(&path).unwrap();
        set.inspect(|version| file.pragma_update(None, "user_version", version).unwrap());
        file.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
    };
    for other in [1, 7, 99] {
        version(Some(other));
        let error = Embedded::open(&settings(&path)).unwrap_err();
        assert!(matches!(error, OpenError::Version { found, known: 8, .. } if found == other), "{error:?}");
        assert!(error.to_string().contains("export it with the keygate that wrote it"), "{error}");
        assert_eq!(version(None), other);
    }
}

/// A file of a gateway that knows of no services has no column for them.
#[test]
fn file_without_the_newer_columns_is_opened_and_gets_them() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, key) = block_on(fixture_with_key(&open(dir.path())));
    let file = rusqlite::Connection::open(dir.path().join("state.db")).unwrap();
    for (table, column) in [("users", "suspended"), ("users", "responsible"), ("orgs", "policy")] {
        file.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}")).unwrap();
    }
    drop(file);
    let state = open(dir.path());
    block_on(admit(&state, &key, clock::now()));
    let service = User { responsible: Some(fixture.user), ..new_user(fixture.org, "nightly") };
    block_on(state.change(Change::CreateUser(service.clone()))).unwrap();
    let policy = OrgPolicy { unused_keys: Some(UnusedKeys::Never), ..OrgPolicy::default() };
    block_on(state.change(Change::set_org_policy(fixture.org, policy))).unwrap();
    drop(state);
    let (org, read) = block_on(open(dir.path()).member(fixture.org, service.id)).unwrap().unwrap();
    assert_eq!((org.policy, read), (policy, service));
}

#[test]
fn foreign_file_is_refused_as_a_state_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    std::fs::write(&path, "certainly not a database ".repeat(1000)).unwrap();
    assert!(matches!(Embedded::open(&settings(&path)), Err(OpenError::Sqlite { .. })));
    assert!(matches!(Embedded::open(&settings(path.join("below"))), Err(OpenError::Directory { .. })));
}

#[test]
fn state_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/er/state.db");
    let state = State::Embedded(Embedded::open(&settings(&path)).unwrap());
    block_on(fixture_with_key(&state));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", ".lock"] {
        let mut path = path.clone().into_os_string();
        path.push(suffix);
        assert_eq!(mode(path.as_ref()), 0o600, "{suffix}");
    }
}

#[test]
fn failed_write_changes_nothing_and_loses_no_use() {
    let (state, dir) = opened();
    let (fixture, key) = block_on(fixture_with_key(&state));
    let intruder = rusqlite::Connection::open(dir.path().join("state.db")).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let suspend = Change::suspend_org(fixture.org, true);
    assert!(matches!(block_on(state.change(suspend.clone())), Err(ChangeError::Unavailable(_))));
    block_on(admit(&state, &key, clock::now()));
    // Longer than the interval of write-backs, so that at least one fails: a failed one leaves nothing to wait for.
    std::thread::sleep(Duration::from_millis(1500));
    intruder.execute_batch("ROLLBACK").unwrap();
    block_on(state.change(suspend)).unwrap();
    drop(state);
    let state = open(dir.path());
    assert_eq!(record(&state, key.id).uses, 1);
    assert_eq!(block_on(refuse(&state, &key, clock::now())), Refusal::OrgSuspended);
}

/// The space that is left is for withdrawals, and not for records of requests.
#[test]
fn withdrawal_is_made_without_its_record_when_nothing_can_be_added() {
    const NAME: &str = "state_contract::state_file::withdrawal_is_made_without_its_record_when_nothing_can_be_added";
    let Some(disk) = SmallDisk::mount(NAME, 40) else { return };
    let state = open(disk.path());
    block_on(async {
        let (fixture, key) = fixture_with_key(&state).await;
        disk.fill();
        let create = async || {
            let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
            state.change(Change::CreateKey { key, digest }).await
        };
        while create().await.is_ok() {}
        let once = request(new_token(), key.id);
        state.change(Change::RevokeKey { key: key.id, at: clock::now() }.once(once.clone())).await.unwrap();
        assert_eq!(refuse(&state, &key, clock::now()).await, Refusal::Revoked);
        let place = IdempotencyPlace::Org(fixture.tag);
        assert_eq!(state.idempotency_record(place, &once.id, clock::now()).await.unwrap(), None);
    });
    disk.make_room();
}
