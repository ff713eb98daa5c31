//! Conflicts of an import: all are reported, and the records on the target stay as they are.

use domain::key::KeyId;
use serde_json::Value;
use state::{Change, Key, Org, State, User};

use super::exported_keys;
use super::installation::{IMPORT, Installation, On, VERIFY, content, listed, runtime};
use super::records::{RecordMaker, new_key, new_org, new_user};
use crate::support::redis::Redis;

/// Organizations, each with its users and keys.
type Directory = Vec<(Org, Vec<User>, Vec<Key>)>;

/// An installation with three organizations of three keys each, and its records.
fn installed(redis: &Redis) -> (Installation, Directory) {
    let installation = Installation::moving_to(&[redis.url()], "");
    let state = State::Embedded(installation.source());
    let mut maker = RecordMaker::new(&state);
    let held = runtime().block_on(async {
        for name in ["one", "two", "three"] {
            maker.many(name, 3).await;
        }
        listed(&state).await
    });
    drop(state);
    (installation, held)
}

/// Makes changes on Redis before the import.
fn occupy(installation: &Installation, changes: Vec<Change>) {
    runtime().block_on(async {
        let target = installation.target().await;
        for change in changes {
            target.change(change).await.unwrap();
        }
        target.close().await;
    });
}

/// Runs an import with conflicts; returns its report and the texts of the conflicts.
fn refused(installation: &Installation, redis: &Redis) -> (Value, Vec<String>) {
    let before = content(std::slice::from_ref(redis));
    installation.export(On::Embedded);
    let told = installation.run(On::Redis, IMPORT);
    assert_eq!(told.code, 1, "{told:?}");
    let incomplete = "the import is incomplete: records are in the way; what is not in conflict was imported";
    assert!(told.err.contains(incomplete), "{told:?}");
    let report: Value = serde_json::from_str(&told.out).unwrap();
    // Of one that is there the stricter usage is taken over.
    let is_merged = |name: &str| {
        report["kept"].as_array().is_some_and(|kept| kept.iter().any(|of| name.ends_with(of["id"].as_str().unwrap())))
    };
    let after = content(std::slice::from_ref(redis));
    for (name, value) in before {
        let grows = ["list", "tags", "names", "looks", "keys", "listed", "users", "emails", "format", "{revocations}"]
            .iter()
            .any(|end| name.ends_with(end))
            || name.starts_with("keygate:email:");
        assert!(grows || is_merged(&name) || after[&name] == value, "{name} was overwritten");
    }
    let text =
        |finding: &Value| format!("{} {}: {}", finding["record"], finding["id"], finding["problem"]).replace('"', "");
    let told = report["in_the_way"].as_array().unwrap().iter().map(text).collect();
    (report, told)
}

#[test]
fn organization_with_the_same_name_or_tag_is_a_conflict_for_all_its_records() {
    let redis = Redis::start();
    let (installation, held) = installed(&redis);
    let (named, tagged) = (new_org("one"), Org { tag: held[1].0.tag, ..new_org("another") });
    occupy(&installation, vec![Change::CreateOrg(named.clone()), Change::CreateOrg(tagged.clone())]);
    let (report, told) = refused(&installation, &redis);
    let wanted = [
        format!("org {}: another organization has its name, one: {}", held[0].0.id, named.id),
        format!("org {}: another organization has its tag: {}", held[1].0.id, tagged.id),
    ];
    assert_eq!(told, wanted);
    assert_eq!((&report["left_out"]["users"], &report["left_out"]["keys"]), (&4.into(), &6.into()));
    assert_eq!((&report["orgs"]["copied"], &report["keys"]["copied"]), (&1.into(), &3.into()));
    let people = installation.run(On::Redis, "state import state.jsonl");
    assert_eq!(people.code, 1, "{people:?}");
    assert!(people.out.contains("another organization has its name, one"), "{people:?}");
    assert!(people.out.contains(&format!("in the way: organization {}", held[0].0.id)), "{people:?}");
    assert!(people.out.contains("left out, because their organization or user was: 4 users, 6 keys"), "{people:?}");
}

#[test]
fn user_with_the_same_address_is_a_conflict_for_user_and_keys() {
    let redis = Redis::start();
    let (installation, held) = installed(&redis);
    let (org, users, _) = &held[0];
    let other = new_user(org.id, "two@example.com");
    let same = User { permissions: vec!["other".parse().unwrap()], ..users[0].clone() };
    let changes = vec![Change::CreateOrg(org.clone()), Change::CreateUser(other.clone()), Change::CreateUser(same)];
    occupy(&installation, changes);
    let (report, told) = refused(&installation, &redis);
    let taken = "another user of the organization has its address, two@example.com";
    assert_eq!(told, [format!("user {}: {taken}: {}", users[1].id, other.id)]);
    assert_eq!(report["kept"][0]["id"], users[0].id.to_string(), "permissions are the target's");
    // The keys of the first are there, and may do there what it may do there; that of the second is not.
    assert_eq!((&report["left_out"]["keys"], &report["keys"]["copied"]), (&1.into(), &8.into()));
    let key: KeyId = held[0].2[0].id;
    let name = format!("keygate:{{{}}}:key:{key}", org.tag.as_str());
    assert_eq!(redis.cli::<String>(&["HGET", &name, "user"]), users[0].id.to_string());
    let name = format!("keygate:{{{}}}:user:{}", org.tag.as_str(), users[0].id);
    assert_eq!(redis.cli::<String>(&["HGET", &name, "permissions"]), "other");
}

#[test]
fn key_with_the_same_digest_or_id_is_a_conflict() {
    let redis = Redis::start();
    let (installation, held) = installed(&redis);
    let digest_of = |number: usize| {
        let exported = runtime().block_on(exported_keys(&State::Embedded(installation.source())));
        exported.iter().find(|key| key.key.id == held[0].2[number].id).unwrap().digest
    };
    let (org, users, keys) = &held[0];
    let elsewhere = new_org("elsewhere");
    let stranger = new_user(elsewhere.id, "eve@example.com");
    let (thief, _) = new_key(&elsewhere, stranger.id, "thief");
    let changed = Key { name: "another name".into(), uses: 1, ..keys[1].clone() };
    let changes = vec![
        Change::CreateOrg(elsewhere),
        Change::CreateUser(stranger),
        Change::CreateKey { key: thief.clone(), digest: digest_of(0) },
        Change::CreateOrg(org.clone()),
        Change::CreateUser(users[0].clone()),
        Change::CreateUser(users[1].clone()),
        Change::CreateKey { key: changed, digest: digest_of(1) },
    ];
    occupy(&installation, changes);
    let (report, told) = refused(&installation, &redis);
    assert_eq!(told, [format!("key {}: another key has, or had, one of its digests: {}", keys[0].id, thief.id)]);
    assert_eq!(report["kept"][0]["id"], keys[1].id.as_str(), "the name is the target's");
    assert_eq!((&report["keys"]["copied"], &report["keys"]["already_there"]), (&7.into(), &1.into()));
    assert_eq!((&report["orgs"]["copied"], &report["orgs"]["already_there"]), (&2.into(), &1.into()));
}

#[test]
fn abandoned_digest_claim_is_taken_over() {
    let redis = Redis::start();
    let (installation, held) = installed(&redis);
    let exported = runtime().block_on(exported_keys(&State::Embedded(installation.source())));
    let digest_of = |key: &Key| exported.iter().find(|export| export.key.id == key.id).unwrap().digest;
    let claim = |digest: &domain::key::KeyDigest, at: u64| {
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("keygate:digest:{hex}");
        redis.cli::<()>(&["HSET", &name, "key", "zzzabcdef", "at", &at.to_string()]);
    };
    let now = domain::clock::now();
    claim(&digest_of(&held[0].2[0]), now.0 - 61_000_000);
    claim(&digest_of(&held[0].2[1]), now.0);
    installation.export(On::Embedded);
    let told = installation.run(On::Redis, IMPORT);
    assert_eq!(told.code, 1, "{told:?}");
    let report: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(report["in_the_way"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["in_the_way"][0]["id"], held[0].2[1].id.as_str());
}

#[test]
fn records_that_were_lost_or_damaged_on_the_way_are_found_by_verify() {
    let redis = Redis::start();
    let (installation, held) = installed(&redis);
    installation.copy();
    let (org, _, keys) = &held[0];
    let record = |key: &Key| format!("keygate:{{{}}}:key:{}", org.tag.as_str(), key.id);
    redis.cli::<()>(&["DEL", &record(&keys[0])]);
    let live = redis.cli::<Vec<u8>>(&["HGET", &record(&keys[1]), "live"]);
    let full = [&live[..8], &1e10_f64.to_le_bytes(), &live[16..]].concat();
    let mut set = ::redis::cmd("HSET");
    set.arg(record(&keys[1])).arg("live").arg(full);
    redis.query::<()>(&set).unwrap();
    let told = installation.run(On::Redis, VERIFY);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.err.contains("2 differences"), "{told:?}");
    let comparison: Value = serde_json::from_str(&told.out).unwrap();
    let differences = comparison["differences"].as_array().unwrap();
    let of = |key: &Key| {
        let found = differences.iter().find(|finding| finding["id"] == key.id.as_str());
        found.map(|finding| finding["problem"].as_str().unwrap().to_owned())
    };
    assert_eq!(of(&keys[0]).unwrap(), "it is missing");
    assert_eq!(of(&keys[1]).unwrap(), "it is there, and is not the same: bucket");
}
