//! Import into a state that has the records already: revocations, removals and suspensions of the file are taken over,
//! usage is the state's, and every other difference is a conflict that changes nothing.

use domain::clock::{self, Micros};
use domain::key::{KeyDigest, KeyId};
use serde_json::{Value, json};
use state::migration::file::parse_record;
use state::migration::{MigrationError, import};
use state::{Change, Key, State, StateRecord};

use super::backup::{Directory, assert_same_file, content, export, import_file, on_both, on_redis};
use super::exported_keys;
use super::installation::{IMPORT, Installation, On, VERIFY, listed, runtime};
use super::records::RecordMaker;
use crate::support::decide::decide_request;
use crate::support::redis::Redis;

/// A state with a person, a service with two rules, a key that was used, and three management tokens.
async fn populated(state: &State) {
    let mut maker = RecordMaker::new(state);
    let org = maker.org("acme").await;
    let person = maker.user(&org, "ada@example.com").await;
    maker.keys_by(&org, person, 1).await;
    let digest = maker.digests[0];
    maker.take(&digest, 3).await;
    maker.programs(&org, person).await;
}

/// The first line of a file that has this text, with some fields changed.
pub(super) fn edited(file: &[u8], with: &str, changes: &Value) -> StateRecord {
    let line = content(file).lines().find(|line| line.contains(with)).unwrap();
    let mut record: Value = serde_json::from_str(line).unwrap();
    let fields = record.as_object_mut().unwrap().values_mut().next().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        let old = fields.as_object_mut().unwrap().insert(name.clone(), value.clone());
        assert_ne!(old.as_ref(), Some(value), "{name} is the same");
    }
    parse_record(record.to_string().as_bytes()).unwrap()
}

/// Changes of single records, by a text of their lines, and the conflict of each; none of those that an import accepts.
fn table(person: &str, service: &str, digest: &str) -> Vec<(&'static str, Value, Option<String>)> {
    let differs = |fields: &str| Some(format!("it is there, and is not the same: {fields}"));
    let (key, token) = ("\"own 0\"", "\"of the operator\"");
    let time = "2020-01-01T00:00:00.000000Z";
    let (new, other) = ("01".repeat(32), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    vec![
        // Usage is the state's.
        (key, json!({ "uses": 9, "last_used": time }), None),
        (
            key,
            json!({ "bucket": { "level": 0, "at": 7, "requests": 60, "per_us": 3_600_000_000_u64, "burst": 40 } }),
            None,
        ),
        (person_line(), json!({ "creation": { "level": 1, "at": 7, "per_us": 9 } }), None),
        (key, json!({ "created_by": "unix:eve(1002)" }), None),
        // Fields of records that are there.
        ("{\"org\"", json!({ "name": "globex" }), differs("name")),
        ("{\"org\"", json!({ "created": time, "concurrent": 3 }), differs("concurrent, created")),
        ("{\"org\"", json!({ "policy": { "max_expiry": "90d" } }), differs("policy")),
        (person_line(), json!({ "email": "eve@example.com" }), differs("email")),
        (person_line(), json!({ "permissions": ["a", "b", "c"] }), differs("permissions")),
        (person_line(), json!({ "permissions": [], "created": time }), differs("created, permissions")),
        ("\"pipeline\"", json!({ "responsible": format!("usr_{other}") }), differs("responsible")),
        (key, json!({ "name": "laptop", "imported": true }), differs("imported, name")),
        (key, json!({ "quota": { "requests": 7, "per_s": 60, "burst": 9 } }), differs("quota")),
        (key, json!({ "policy": { "concurrent": 5 } }), differs("policy")),
        (
            key,
            json!({ "sha256": new, "rotated": time, "previous_until": time }),
            differs("previous_until, rotated, sha256"),
        ),
        (key, json!({ "user": service }), differs("user")),
        ("\"deploy\"", json!({ "audience": "https://eve.example.com" }), differs("audience")),
        ("\"deploy\"", json!({ "permissions": ["a", "b"], "max": "15m" }), differs("max, permissions")),
        ("\"deploy\"", json!({ "user": person }), differs("user")),
        (token, json!({ "scopes": ["keys:read"], "networks": [] }), differs("networks, scopes")),
        (token, json!({ "client_san": "eve.example.com" }), differs("client_san")),
        (token, json!({ "digest": new, "revoked": time }), differs("digest")),
        // Others that are in the place of an absent record.
        ("{\"org\"", json!({ "id": format!("org_{other}") }), Some("another organization has its tag".into())),
        (
            "{\"org\"",
            json!({ "id": format!("org_{other}"), "tag": "zzz" }),
            Some("another organization has its name, acme".into()),
        ),
        ("{\"org\"", json!({ "tag": "zzz" }), Some("it is there already, with another tag".into())),
        (
            person_line(),
            json!({ "id": format!("usr_{other}") }),
            Some("another user of the organization has its address".into()),
        ),
        (key, json!({ "id": "AAAAAAAAA" }), Some("left out".into())),
        (key, json!({ "user": format!("usr_{other}") }), Some("left out".into())),
        ("\"deploy\"", json!({ "name": "another", "user": person }), Some("left out".into())),
        (
            token,
            json!({ "id": "AAAAAAAAAA", "digest": digest, "org": format!("org_{other}") }),
            Some("left out".into()),
        ),
    ]
}

fn person_line() -> &'static str {
    "\"email\":\"ada@example.com\""
}

#[test]
fn each_difference_is_a_conflict_that_changes_nothing() {
    on_both(async |state| {
        populated(&state).await;
        let file = export(&state).await;
        let field = |with: &str, name: &str| {
            let line = content(&file).lines().find(|line| line.contains(with)).unwrap();
            let record: Value = serde_json::from_str(line).unwrap();
            record.as_object().unwrap().values().next().unwrap()[name].as_str().unwrap().to_owned()
        };
        let (person, service) = (field(person_line(), "id"), field("\"pipeline\"", "id"));
        for (with, changes, conflict) in table(&person, &service, &"02".repeat(32)) {
            let report = import(&[edited(&file, with, &changes)], &state).await.unwrap();
            let found: Vec<String> = report.conflicts.iter().map(|finding| finding.problem.to_string()).collect();
            let left_out = report.left_out.keys + report.left_out.rules + report.left_out.tokens;
            match conflict.as_deref() {
                None => assert!(report.is_complete(), "{with} {changes}: {report:?}"),
                Some("left out") => assert_eq!((left_out, found.len()), (1, 0), "{with} {changes}: {report:?}"),
                Some(conflict) => {
                    assert!(found.len() == 1 && found[0].starts_with(conflict), "{with} {changes}: {found:?}");
                }
            }
            assert_eq!((report.withdrawn, report.is_complete()), (0, conflict.is_none()), "{with} {changes}");
            assert_same_file(&file, &export(&state).await);
        }
    });
}

#[test]
fn digest_of_another_key_is_a_conflict() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (one, _) = maker.key(&org, user, "one").await;
        let (two, taken) = maker.key(&org, user, "two").await;
        let file = export(&state).await;
        let mut key = exported_keys(&state).await.into_iter().find(|export| export.key.id == two).unwrap();
        key.key.id = KeyId::generate(org.tag).unwrap();
        let missing: KeyId = "abcDEF123".parse().unwrap();
        for (record, problem) in [
            (StateRecord::Key(Box::new(key)), "another key has, or had, one of its digests"),
            (StateRecord::Digests(one, vec![taken]), "another key has, or had, one of its digests"),
            (StateRecord::Digests(missing, vec![KeyDigest::of(b"x")]), "it is missing"),
        ] {
            let report = import(&[record], &state).await.unwrap();
            let found: Vec<String> = report.conflicts.iter().map(ToString::to_string).collect();
            assert!(found.len() == 1 && found[0].contains(problem), "{found:?}");
            assert_same_file(&file, &export(&state).await);
        }
        let former = vec![KeyDigest::of(b"former")];
        let report = import(&[StateRecord::Digests(one, former.clone())], &state).await.unwrap();
        assert_eq!((report.digests.copied, state.key_of(&former[0]).await.unwrap()), (1, Some(one)), "{report:?}");
    });
}

/// Changes a state that an older file was exported of: more is withdrawn.
async fn withdraw(state: &State, at: Micros) {
    for org in state.orgs().await.unwrap().into_iter().filter(|org| org.name == "acme" || org.name == "globex") {
        let users = state.users(org.id).await.unwrap();
        let keys = state.keys(org.id).await.unwrap();
        let named = |name: &str| keys.iter().find(|key: &&Key| key.name == name).unwrap().id;
        state.change(Change::RevokeKey { key: named("never used"), at }.by("unix:eve(1002)")).await.unwrap();
        let ada = users.iter().find(|user| user.email.starts_with("ada")).unwrap().id;
        if org.name == "acme" {
            let bob = users.iter().find(|user| user.email.starts_with("bob") && user.is_active()).unwrap().id;
            state.change(Change::WithdrawUser { org: org.id, user: bob, at }).await.unwrap();
            state.change(Change::suspend_user(org.id, ada, Some(at), true)).await.unwrap();
        } else {
            state.change(Change::RemoveUser { org: org.id, user: ada, at }).await.unwrap();
            state.change(Change::suspend_org(org.id, true)).await.unwrap();
        }
    }
}

/// Uses keys of a state up to their limit.
async fn use_up(state: &State, digests: &[KeyDigest]) {
    for digest in digests.iter().take(20) {
        for _ in 0..50 {
            drop(state.decide(decide_request(digest, clock::now())).await.unwrap());
        }
    }
}

#[test]
fn old_file_brings_nothing_back_and_fills_no_bucket() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        maker.everything().await;
        let digests = std::mem::take(&mut maker.digests);
        let org = maker.org("people").await;
        let person = maker.user(&org, "person@example.com").await;
        maker.keys_by(&org, person, 3).await;
        let old = export(&state).await;
        maker.keys_by(&org, person, 5).await;
        use_up(&state, &digests).await;
        withdraw(&state, clock::now()).await;
        let before = export(&state).await;
        assert_ne!(content(&before), content(&old));
        let report = import_file(&old, &state).await;
        assert_eq!((report.withdrawn, report.is_complete()), (0, true), "{report:?}");
        assert_same_file(&before, &export(&state).await);
    });
}

#[test]
fn withdrawals_of_a_new_file_are_taken_over_with_their_times_and_actors() {
    let (directory, old_directory, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        RecordMaker::new(&source).everything().await;
        let old = export(&source).await;
        let targets = [old_directory.open(), on_redis(&[redis.url()]).await];
        for target in &targets {
            import_file(&old, target).await;
        }
        withdraw(&source, clock::now()).await;
        let new = export(&source).await;
        assert!(content(&new).contains("\"revoked_by\":\"unix:eve(1002)\""));
        for target in &targets {
            let report = import_file(&new, target).await;
            // Two keys, a removed, a withdrawn and a suspended user, one organization.
            assert_eq!((report.withdrawn, report.is_complete()), (6, true), "{report:?}");
            assert_same_file(&new, &export(target).await);
            // Once withdrawn, the state's time stays.
            let later = edited(
                &new,
                "\"name\":\"never used\"",
                &json!({ "revoked": "2099-01-01T00:00:00.000000Z", "revoked_by": "unix:bob(1)" }),
            );
            let report = import(&[later], target).await.unwrap();
            assert_eq!((report.withdrawn, report.is_complete()), (0, true), "{report:?}");
            assert_same_file(&new, &export(target).await);
        }
        drop(targets);
        // The withdrawals are in the file, not in memory alone.
        assert_same_file(&new, &export(&old_directory.open()).await);
    });
}

/// A key that was revoked on one side and changed on the other is both: revoked, and in conflict.
#[test]
fn revocation_is_taken_over_from_a_record_in_conflict() {
    on_both(async |state| {
        populated(&state).await;
        let file = export(&state).await;
        let at = "2026-01-01T00:00:00.000000Z";
        let record = edited(&file, "\"own 0\"", &json!({ "name": "laptop", "revoked": at }));
        let report = import(&[record], &state).await.unwrap();
        assert_eq!((report.withdrawn, report.conflicts.len()), (1, 1), "{report:?}");
        let key = exported_keys(&state).await.remove(0).key;
        assert_eq!((key.name.as_str(), key.revoked.is_some()), ("own 0", true));
    });
}

/// Records of an organization that is in conflict are left out, and the command names the conflict with exit code 4.
#[test]
fn organization_in_conflict_leaves_its_records_out() {
    let redis = Redis::start();
    let installation = Installation::moving_to(&[redis.url()], "");
    runtime().block_on(async {
        let source = State::Embedded(installation.source());
        let mut maker = RecordMaker::new(&source);
        maker.many("one", 3).await;
        maker.many("two", 3).await;
        let target = installation.target().await;
        RecordMaker::new(&target).org("one").await;
        target.close().await;
    });
    installation.export(On::Embedded);
    let ended = installation.run(On::Redis, "state import state.jsonl");
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.err.contains("what is in conflict stays as it was; all else was imported"), "{ended:?}");
    assert!(ended.out.contains("another organization has its name, one"), "{ended:?}");
    assert!(ended.out.contains("left out, because their organization or user was: 2 users, 3 keys"), "{ended:?}");
    let again = installation.run(On::Redis, IMPORT);
    let report: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((again.code, &report["conflicts"].as_array().unwrap().len()), (4, &1), "{again:?}");
    assert_eq!((&report["orgs"]["already_there"], &report["keys"]["already_there"]), (&1.into(), &3.into()));
}

/// An installation with an organization of three keys, and its keys.
fn installed(redis: &Redis) -> (Installation, Vec<Key>) {
    let installation = Installation::moving_to(&[redis.url()], "");
    let state = State::Embedded(installation.source());
    let keys = runtime().block_on(async {
        RecordMaker::new(&state).many("one", 3).await;
        listed(&state).await.remove(0).2
    });
    (installation, keys)
}

#[test]
fn abandoned_digest_claim_is_taken_over() {
    let redis = Redis::start();
    let (installation, keys) = installed(&redis);
    let exported = runtime().block_on(exported_keys(&State::Embedded(installation.source())));
    let digest_of = |key: &Key| exported.iter().find(|export| export.key.id == key.id).unwrap().digest;
    let claim = |digest: &KeyDigest, at: u64| {
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("keygate:digest:{hex}");
        redis.cli::<()>(&["HSET", &name, "key", "zzzabcdef", "at", &at.to_string()]);
    };
    let now = clock::now();
    claim(&digest_of(&keys[0]), now.0 - 61_000_000);
    claim(&digest_of(&keys[1]), now.0);
    installation.export(On::Embedded);
    let ended = installation.run(On::Redis, IMPORT);
    assert_eq!(ended.code, 4, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["conflicts"][0]["id"], keys[1].id.as_str());
}

#[test]
fn records_that_were_lost_or_damaged_on_the_way_are_found_by_verify() {
    let redis = Redis::start();
    let (installation, keys) = installed(&redis);
    installation.copy();
    let record = |key: &Key| format!("keygate:{{{}}}:key:{}", key.id.tag().as_str(), key.id);
    redis.cli::<()>(&["DEL", &record(&keys[0])]);
    let live = redis.cli::<Vec<u8>>(&["HGET", &record(&keys[1]), "live"]);
    let full = [&live[..8], &1e10_f64.to_le_bytes(), &live[16..]].concat();
    let mut set = ::redis::cmd("HSET");
    set.arg(record(&keys[1])).arg("live").arg(full);
    redis.query::<()>(&set).unwrap();
    let ended = installation.run(On::Redis, VERIFY);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("2 differences"), "{ended:?}");
    let comparison: Value = serde_json::from_str(&ended.out).unwrap();
    let differences = comparison["differences"].as_array().unwrap();
    let of = |key: &Key| {
        let found = differences.iter().find(|finding| finding["id"] == key.id.as_str());
        found.map(|finding| finding["problem"].as_str().unwrap().to_owned())
    };
    assert_eq!(of(&keys[0]).unwrap(), "it is missing");
    assert_eq!(of(&keys[1]).unwrap(), "it is there, and is not the same: bucket");
    // The key that was lost is added, and the other one is used as it is.
    assert_eq!(installation.copy()["keys"], json!({ "copied": 1, "already_there": 2 }));
}

#[test]
fn import_waits_for_the_replicas_that_are_configured() {
    let directory = Directory::new();
    let redis = Redis::start();
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        let key = exported_keys(&source).await.remove(0);
        let url = format!("\"{}\"", redis.url());
        let target = Installation::moving_to(&[url], ", durability: { replicas: 1, timeout: 500ms }").target().await;
        let records = [StateRecord::Org(org.clone()), StateRecord::Key(Box::new(key))];
        let imported = import(&records, &target).await;
        assert!(matches!(imported, Err(MigrationError::NotReplicated(_))), "{imported:?}");
    });
}
