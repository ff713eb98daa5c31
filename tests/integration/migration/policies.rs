//! Policies of keys in exports: an import changes none of a key that exists; a key without a policy has the bytes of
//! version 1.

use domain::clock;
use domain::key::policy::KeyPolicy;
use state::migration::file::verify;
use state::migration::{Records, compare};
use state::{Change, PolicyScope, State, StateRecord};

use super::backup::{Directory, assert_same_file, content, export, import_file, on_both, on_redis};
use super::installation::{Installation, On, VERIFY, runtime};
use super::records::{RecordMaker, full_policy, policy_change};
use super::records_of;
use crate::support::redis::Redis;

/// An export that keygate 0.2.0 has written.
const VERSION_1: &[u8] = include_bytes!("version-1.jsonl");

async fn set_policy(state: &State, name: &str, policy: KeyPolicy) {
    let records = records_of(state).await;
    let key = records.iter().find_map(|record| match record {
        StateRecord::Key(key) if key.key.name == name => Some(&key.key),
        _ => None,
    });
    let key = key.unwrap();
    let before = key.policy.as_deref().cloned().unwrap_or_default();
    let patch = Box::new(policy_change(&before, policy));
    state.change(Change::set_key_policy(key.id, patch, PolicyScope::Operator)).await.unwrap();
}

/// Neither a file with a policy narrows a key without one, nor does a file without one widen a key.
#[test]
fn policy_that_differs_is_a_conflict_and_found_by_a_comparison() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        let before = export(&source).await;
        set_policy(&source, "laptop", full_policy()).await;
        let after = export(&source).await;
        assert!(
            content(&after).contains("\"policy\":{\"permissions\":[\"a\"],\"expires\":\"2096-10-02T07:06:40.000000Z\"")
        );
        let differences = |target: &[u8]| {
            let (file, target) = (Records::read(&*after).unwrap(), Records::read(target).unwrap());
            compare(&file, &target, clock::now()).differences.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for state in [other.open(), on_redis(&[redis.url()]).await] {
            import_file(&before, &state).await;
            let problem = "it is there, and is not the same: policy";
            let found = differences(&export(&state).await);
            assert!(found.len() == 1 && found[0].ends_with(problem), "{found:?}");
            let unchanged = export(&state).await;
            for file in [&after, &before] {
                let report = import_file(file, &state).await;
                let expected: &[String] = if file == &after { &found } else { &[] };
                let conflicts: Vec<String> = report.conflicts.iter().map(ToString::to_string).collect();
                assert_eq!((&conflicts[..], report.withdrawn), (expected, 0), "{report:?}");
                assert_same_file(&unchanged, &export(&state).await);
            }
        }
    });
}

#[test]
fn verify_names_the_policy_of_a_key_that_was_widened_after_the_move() {
    let redis = Redis::start();
    let installation = Installation::moving_to(&[redis.url()], "");
    let source = State::Embedded(installation.source());
    runtime().block_on(async {
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        set_policy(&source, "laptop", full_policy()).await;
    });
    drop(source);
    installation.copy();
    assert_eq!(installation.run(On::Redis, "state verify state.jsonl").out, "the same: 3 records\n");
    let widen = |policy: KeyPolicy| {
        runtime().block_on(async {
            let target = installation.target().await;
            set_policy(&target, "laptop", policy).await;
            target.close().await;
        });
    };
    widen(KeyPolicy { concurrent: None, ..full_policy() });
    let verified = installation.run(On::Redis, VERIFY);
    assert!(verified.code == 1 && verified.out.contains("is not the same: policy"), "{verified:?}");
    let imported = installation.run(On::Redis, "state import state.jsonl");
    assert!(imported.code == 4 && imported.out.contains("conflict: key "), "{imported:?}");
    assert_eq!(installation.run(On::Redis, VERIFY).out, verified.out, "the import has changed nothing");
}

#[test]
fn export_of_keys_without_a_policy_differs_from_version_1_in_its_first_line_only() {
    assert!(VERSION_1.starts_with(b"{\"format\":\"keygate-state\",\"version\":1,"));
    assert!(verify(VERSION_1).is_ok());
    on_both(async |state| {
        assert!(import_file(VERSION_1, &state).await.is_complete());
        let now = export(&state).await;
        assert!(now.starts_with(b"{\"format\":\"keygate-state\",\"version\":4,"));
        assert_same_file(VERSION_1, &now);
        // A policy that was cleared leaves nothing behind.
        set_policy(&state, "laptop", full_policy()).await;
        assert_ne!(content(&export(&state).await), content(VERSION_1));
        set_policy(&state, "laptop", KeyPolicy::default()).await;
        assert_same_file(VERSION_1, &export(&state).await);
    });
}

#[test]
fn policy_that_could_not_be_set_is_refused_with_its_line() {
    let directory = Directory::new();
    let file = runtime().block_on(async {
        let state = directory.open();
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        set_policy(&state, "laptop", full_policy()).await;
        String::from_utf8(export(&state).await).unwrap()
    });
    for (from, to, what) in [
        ("\"concurrent\":5", "\"concurrent\":0", "a key has at least 1 request in flight"),
        ("[\"10.0.0.0/8\",\"2001:db8::/32\"]", "[\"2001:db8::/32\",\"10.0.0.0/8\"]", "are sorted, each once"),
        ("\"10.0.0.0/8\"", "\"10.1.0.0/8\"", "has bits of the address behind the prefix"),
        ("\"env\":\"\"", "\"e=v\":\"\"", "a tag is NAME=VALUE"),
        ("\"by\":\"unused\"", "\"by\":\"sweep\"", "unknown variant"),
        ("\"concurrent\":5", "\"concurrent\":5,\"hours\":\"9-17\"", "unknown field"),
    ] {
        assert!(file.contains(from), "{from}");
        let flaws = verify(file.replace(from, to).as_bytes()).unwrap_err();
        let flaw = flaws[0].to_string();
        assert!(flaw.starts_with("line 4: ") && flaw.contains(what), "{what}: {flaw}");
    }
}
