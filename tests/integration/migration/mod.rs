//! Migration between an embedded state and Redis, in both directions, by export and import: no record, bucket or count
//! is lost, none is overwritten, and it can be run again.

use std::time::Duration;

use domain::identity::UserId;
use domain::key::KeyDigest;
use journal::audit::Use;
use keygate::app;
use platform::metrics::Metrics;
use serde_json::{Value, json};
use state::{Change, ChangeError, Decision, Exporter, KeyExport, Org, State, StateRecord, is_session_quota_digest};

mod backup;
mod backup_flaws;
mod backup_random;
mod budgets;
mod deaths;
mod concurrency;
mod policies;
mod programs;
mod conflicts;
mod withdrawals;
mod collisions;
pub mod records;
mod installation;

use self::installation::{IMPORT, Installation, On, VERIFY, content, decisions, listed, rate_limits, runtime};
use self::records::{OVERLAP, RecordMaker, new_key};
use crate::journal::support::Caller;
use crate::support::decide::decide_request;
use crate::support::redis::{Cluster, Redis};
use crate::support::until;

/// An installation with every kind of record, and all digests that its keys have or had.
fn populated_installation(urls: &[String], more: &str) -> (Installation, Vec<KeyDigest>) {
    let installation = Installation::moving_to(urls, more);
    let state = State::Embedded(installation.source());
    let mut maker = RecordMaker::new(&state);
    runtime().block_on(maker.everything());
    let digests = std::mem::take(&mut maker.digests);
    (installation, digests)
}

/// Asserts that both states have the same records and rate-limit statuses, and make the same decisions.
fn assert_same(installation: &Installation, digests: &[KeyDigest]) {
    let source = State::Embedded(installation.source());
    runtime().block_on(async {
        let target = installation.target().await;
        let now = domain::clock::now();
        assert_eq!(listed(&target).await, listed(&source).await);
        // The time only moves forward: the embedded state's buckets follow a clock that is set back.
        for pause in [Duration::ZERO, OVERLAP / 40, OVERLAP / 2, OVERLAP * 2] {
            let now = now.after(pause);
            assert_eq!(rate_limits(&target, now).await, rate_limits(&source, now).await, "after {pause:?}");
            for (target, source) in
                decisions(&target, digests, now).await.iter().zip(decisions(&source, digests, now).await)
            {
                assert_eq!(*target, source, "after {pause:?}");
            }
        }
        assert_eq!(listed(&target).await, listed(&source).await);
        target.close().await;
    });
}

fn counts(report: &Value, which: &str) -> Vec<u64> {
    ["orgs", "users", "keys", "digests"].map(|what| report[what][which].as_u64().unwrap()).to_vec()
}

#[test]
fn migrated_state_decides_as_before() {
    let redis = Redis::start();
    let (installation, digests) = populated_installation(&[redis.url()], "");
    let report = installation.copy();
    assert_eq!(counts(&report, "copied"), [4, 9, 29, digests.len() as u64]);
    assert_eq!(counts(&report, "already_there"), [0; 4]);
    assert_same(&installation, &digests);
}

#[test]
fn state_on_redis_moves_to_a_file_and_decides_as_before() {
    let redis = Redis::start();
    let installation = Installation::moving_to(&[redis.url()], "");
    let digests = runtime().block_on(async {
        let state = installation.target().await;
        let mut maker = RecordMaker::new(&state);
        maker.everything().await;
        let digests = std::mem::take(&mut maker.digests);
        state.close().await;
        digests
    });
    let report = installation.move_records(On::Redis, On::Embedded);
    assert_eq!(counts(&report, "copied"), [4, 9, 29, digests.len() as u64]);
    let verified = installation.run(On::Embedded, "state verify state.jsonl");
    assert_eq!((verified.code, verified.out.as_str()), (0, "the same: 46 records\n"), "{verified:?}");
    assert_same(&installation, &digests);
}

#[test]
fn cluster_receives_all_records() {
    let cluster = Cluster::start(3, 0);
    let (installation, digests) = populated_installation(&cluster.urls(), "");
    assert_eq!(counts(&installation.copy(), "copied"), [4, 9, 29, digests.len() as u64]);
    let before = content(cluster.nodes());
    assert_eq!(counts(&installation.copy(), "already_there"), [4, 9, 29, digests.len() as u64]);
    assert_eq!(content(cluster.nodes()), before);
    assert_same(&installation, &digests);
}

#[test]
fn bucket_is_copied_to_the_microsecond() {
    let redis = Redis::start();
    let (installation, _) = populated_installation(&[redis.url()], "");
    installation.copy();
    for key in runtime().block_on(exported_keys(&State::Embedded(installation.source()))) {
        let id = key.key.id.as_str();
        let live = redis.cli::<Vec<u8>>(&["HGET", &format!("keygate:{{{}}}:key:{id}", &id[..3]), "live"]);
        let numbers: Vec<f64> =
            live[8..].chunks(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap())).collect();
        let used = key.key.last_used.map_or(0, |at| at.0);
        let level = u64::try_from(key.bucket.level).unwrap();
        let wanted = [level, key.bucket.at.0, key.quota.per_micros(), key.key.uses, used];
        assert_eq!(numbers, wanted.map(|number| number as f64), "{}", key.key.name);
    }
}

/// The keys of a state, as they are exported.
async fn exported_keys(state: &State) -> Vec<KeyExport> {
    let key = |record| if let StateRecord::Key(key) = record { Some(*key) } else { None };
    records_of(state).await.into_iter().filter_map(key).collect()
}

/// The records of a state, as they are exported.
async fn records_of(state: &State) -> Vec<StateRecord> {
    let (mut exporter, mut all) = (Exporter::begin(state).await.unwrap(), Vec::new());
    while let Some(records) = exporter.next().await.unwrap() {
        all.extend(records);
    }
    all
}

/// Creates keys as a person until the person's bucket is empty. Returns how many.
async fn create_until_limited(state: &State, org: &Org, person: UserId) -> usize {
    let mut created = 0;
    loop {
        let (key, digest) = new_key(org, person, "more");
        let change = Change::ByPerson { person, change: Box::new(Change::CreateKey { key, digest }) };
        match state.change(change).await {
            Ok(()) => created += 1,
            Err(ChangeError::KeyCreationLimited { .. }) => return created,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A second copy gives nothing back that was used on the target.
#[test]
fn bucket_of_key_creation_is_copied() {
    let redis = Redis::start();
    let installation = Installation::moving_to(&[redis.url()], "");
    installation.change(|text| text.replace("{ key:", "{ key_creation: { requests: 1, per: 24h, burst: 10 }, key:"));
    let bounds = installation.config(On::Redis).bounds;
    let source = || {
        let state = State::Embedded(installation.source());
        state.set_bounds(bounds);
        state
    };
    let (org, users) = {
        let state = source();
        let mut maker = RecordMaker::new(&state);
        runtime().block_on(async {
            let org = maker.org("acme").await;
            let users = [maker.user(&org, "ada@example.com").await, maker.user(&org, "bob@example.com").await];
            maker.keys_by(&org, users[0], 3).await;
            (org, users)
        })
    };
    assert_eq!(counts(&installation.copy(), "copied"), [1, 2, 3, 3]);
    let before = content(std::slice::from_ref(&redis));
    assert_eq!(counts(&installation.copy(), "copied"), [0; 4]);
    assert_eq!(content(std::slice::from_ref(&redis)), before, "a second run changes nothing");
    let left_on_target = || {
        runtime().block_on(async {
            let target = installation.target().await;
            target.set_bounds(bounds);
            let left = [
                create_until_limited(&target, &org, users[0]).await,
                create_until_limited(&target, &org, users[1]).await,
            ];
            target.close().await;
            left
        })
    };
    assert_eq!(left_on_target(), [7, 10]);
    installation.copy();
    assert_eq!(left_on_target(), [0, 0]);
}

#[test]
fn second_run_changes_nothing() {
    let redis = Redis::start();
    let (installation, digests) = populated_installation(&[redis.url()], "");
    installation.copy();
    let before = content(std::slice::from_ref(&redis));
    let report = installation.copy();
    assert_eq!(counts(&report, "copied"), [0; 4]);
    assert_eq!(counts(&report, "already_there"), [4, 9, 29, digests.len() as u64]);
    assert_eq!(content(std::slice::from_ref(&redis)), before);
    let verified = installation.run(On::Redis, "state verify state.jsonl");
    assert_eq!((verified.code, verified.out.as_str()), (0, "the same: 46 records\n"), "{verified:?}");
}

#[test]
fn uses_on_redis_are_kept_by_a_second_run() {
    let redis = Redis::start();
    let (installation, digests) = populated_installation(&[redis.url()], "");
    installation.copy();
    let before = runtime().block_on(async {
        let target = installation.target().await;
        decisions(&target, &digests, domain::clock::now()).await;
        let listed = listed(&target).await;
        target.close().await;
        listed
    });
    let content_before = content(std::slice::from_ref(&redis));
    assert_eq!(counts(&installation.copy(), "copied"), [0; 4]);
    assert_eq!(content(std::slice::from_ref(&redis)), content_before);
    let verified = installation.run(On::Redis, VERIFY);
    let comparison: Value = serde_json::from_str(&verified.out).unwrap();
    assert!(verified.code == 0 && comparison["used_since"].as_u64().unwrap() > 0, "{verified:?}");
    let uses = |listed: &[(_, _, Vec<state::Key>)]| -> u64 {
        listed.iter().flat_map(|(_, _, keys)| keys).map(|key| key.uses).sum()
    };
    let source = State::Embedded(installation.source());
    assert!(uses(&before) > uses(&runtime().block_on(listed(&source))));
}

#[test]
fn later_records_are_added_by_a_second_run_and_later_uses_are_no_conflict() {
    let redis = Redis::start();
    let (installation, digests) = populated_installation(&[redis.url()], "");
    installation.copy();
    let state = State::Embedded(installation.source());
    let mut maker = RecordMaker::new(&state);
    runtime().block_on(async {
        maker.take(&digests[1], 12).await;
        maker.many("late", 3).await;
    });
    drop(state);
    let report = installation.copy();
    assert_eq!(report["conflicts"], json!([]), "{report}");
    assert_eq!(counts(&report, "copied"), [1, 2, 3, 3]);
    assert_eq!(counts(&report, "already_there"), [4, 9, 29, digests.len() as u64]);
    // A comparison tells of the key that was used on the source alone.
    let verified = installation.run(On::Redis, VERIFY);
    assert!(verified.code == 1 && verified.out.contains("is not the same: uses, last_used, bucket"), "{verified:?}");
}

#[test]
fn journaled_uses_are_copied_after_a_crash() {
    let redis = Redis::start();
    let (installation, digests) = populated_installation(&[redis.url()], "");
    let file = |name: &str| installation.directory.path().join(name);
    let old = std::fs::read(file("state.db")).unwrap();
    // A key, and the session quota key of a signed-in user.
    let used = [digests[1], *digests.iter().find(|digest| is_session_quota_digest(digest)).unwrap()];
    used.iter().for_each(|digest| use_with_journal(&installation, digest, 5));
    let uses = |state: &State| {
        used.map(|digest| {
            runtime().block_on(async {
                let key = state.key_of(&digest).await.unwrap().unwrap();
                state.key(key).await.unwrap().unwrap().uses
            })
        })
    };
    let known = uses(&State::Embedded(installation.source()));
    // A crash: the file is as it was before.
    std::fs::remove_file(file("state.db-wal")).ok();
    std::fs::write(file("state.db"), old).unwrap();
    assert_eq!(uses(&State::Embedded(installation.source())).map(|uses| uses + 5), known);
    installation.copy();
    assert_same(&installation, &digests);
    let counted = uses(&State::Embedded(installation.source()));
    assert!(counted.iter().zip(known).all(|(counted, known)| *counted >= known));
}

/// Uses a key as a gateway that serves from the state file does, with journal records.
fn use_with_journal(installation: &Installation, digest: &KeyDigest, times: u64) {
    let now = domain::clock::now();
    runtime().block_on(async {
        let (state, journal) =
            app::open_and_recover(&installation.config(On::Embedded), &Metrics::new()).await.unwrap();
        for _ in 0..times {
            let ask = decide_request(digest, now);
            let Ok(Decision::Admitted(admitted)) = state.decide(ask).await else { panic!("admitted") };
            let principal = &admitted.principal;
            let opening = Use {
                budget: admitted.permit.into_reservation().map(|reservation| reservation.total),
                number: Some(admitted.number),
                key_id: principal.key_id,
                user_id: Some(principal.user_id),
                org_id: Some(principal.org_id),
                auth_method: principal.method,
                ..Caller::random().opening_at(now)
            };
            drop(journal.begin(&opening).await.unwrap());
        }
        journal.close().await;
        state.close().await;
    });
}

#[test]
fn unsuitable_redis_is_reported_at_once() {
    let redis = Redis::start();
    let (installation, _) = populated_installation(&[redis.url()], "");
    installation.export(On::Embedded);
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let refused = installation.run(On::Redis, IMPORT);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("cannot open the state"), "{refused:?}");
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    installation.copy();
}

#[test]
fn replicas_confirm_the_copy_as_configured() {
    let redis = Redis::start();
    let (installation, digests) = populated_installation(&[redis.url()], ", durability: { replicas: 1, timeout: 3s }");
    installation.export(On::Embedded);
    let refused = installation.run(On::Redis, IMPORT);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("only 0 of 1 replica confirmed it in time"), "{refused:?}");
    let replica = Redis::start();
    replica.cli::<()>(&["REPLICAOF", "127.0.0.1", &redis.port().to_string()]);
    until("the replica follows", || (replica.info("replication", "master_link_status") == "up").then_some(()));
    let report = installation.copy();
    assert_eq!(counts(&report, "already_there"), [4, 9, 29, digests.len() as u64]);
    assert_eq!(replica.cli::<u64>(&["DBSIZE"]), redis.cli::<u64>(&["DBSIZE"]));
}

#[test]
fn change_on_redis_after_the_move_is_kept_and_found_by_verify() {
    let redis = Redis::start();
    let (installation, _) = populated_installation(&[redis.url()], "");
    installation.copy();
    let (org, key) = runtime().block_on(async {
        let target = installation.target().await;
        let (org, _, keys) = listed(&target).await.swap_remove(0);
        let key = keys[1].id;
        target.change(Change::RevokeKey { key, at: domain::clock::now() }).await.unwrap();
        target.change(Change::suspend_org(org.id, true)).await.unwrap();
        target.close().await;
        (org.id, key)
    });
    let before = content(std::slice::from_ref(&redis));
    assert_eq!(counts(&installation.copy(), "copied"), [0; 4]);
    assert_eq!(content(std::slice::from_ref(&redis)), before);
    let verified = installation.run(On::Redis, VERIFY);
    assert_eq!(verified.code, 1, "{verified:?}");
    assert!(verified.err.contains("2 differences"), "{verified:?}");
    let comparison: Value = serde_json::from_str(&verified.out).unwrap();
    let differs = |field: &str| format!("it is there, and is not the same: {field}");
    let of_org = json!({ "record": "org", "id": org, "problem": differs("suspended") });
    let of_key = json!({ "record": "key", "id": key, "problem": differs("revoked") });
    assert_eq!(comparison["differences"], json!([of_org, of_key]));
}

/// Two files are compared like a file with the state: what the second lacks is missing there, what it has more is
/// counted.
#[test]
fn two_exports_are_compared_as_earlier_and_later() {
    let installation = Installation::moving_to(&["redis://127.0.0.1:1".into()], "");
    runtime().block_on(RecordMaker::new(&State::Embedded(installation.source())).many("first", 2));
    installation.export(On::Embedded);
    let file = |name: &str| installation.directory.path().join(name);
    std::fs::rename(file("state.jsonl"), file("earlier.jsonl")).unwrap();
    runtime().block_on(RecordMaker::new(&State::Embedded(installation.source())).many("second", 1));
    installation.export(On::Embedded);
    let same = installation.run(On::Embedded, "state verify earlier.jsonl state.jsonl");
    let wanted = "the same: 5 records\nnot in the first export: 4 records\n";
    assert_eq!((same.code, same.out.as_str()), (0, wanted), "{same:?}");
    let missing = installation.run(On::Embedded, "state verify state.jsonl earlier.jsonl");
    assert_eq!((missing.code, missing.out.matches(": it is missing\n").count()), (1, 4), "{missing:?}");
    let text = std::fs::read_to_string(file("state.jsonl")).unwrap();
    std::fs::write(file("truncated.jsonl"), &text[..text.len() - 20]).unwrap();
    let refused = installation.run(On::Embedded, "state verify earlier.jsonl truncated.jsonl");
    assert!(refused.code == 1 && refused.err.contains("truncated.jsonl: line "), "{refused:?}");
}
