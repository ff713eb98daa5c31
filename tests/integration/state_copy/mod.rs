//! The copy of an embedded state to Redis: nothing is lost, nothing is overwritten, and it can be run again.

use std::time::Duration;

use keygate::app;
use keygate::audit::Use;
use keygate::key::KeyDigest;
use keygate::metrics::Metrics;
use keygate::migration::{Progress, migrate};
use keygate::refusal::Refusal;
use keygate::state::{
    Change, DecideRequest, Decision, OrgExport, RouteAccess, State, StateExport, is_session_quota_digest,
};
use serde_json::{Value, json};
use uuid::Uuid;

mod conflicts;
mod furnish;
mod rig;

use self::furnish::{Furnishing, OVERLAP};
use self::rig::{COPY, Installation, content, decisions, ended, listed, rate_limits, runtime};
use crate::support::redis::{Cluster, Redis};
use crate::support::until;

/// An installation with something of everything, and every digest that leads somewhere.
fn furnished(urls: &[String], more: &str) -> (Installation, Vec<KeyDigest>) {
    let installation = Installation::moving_to(urls, more);
    let state = State::Embedded(installation.source());
    let mut furnishing = Furnishing::of(&state);
    runtime().block_on(furnishing.everything());
    let digests = std::mem::take(&mut furnishing.digests);
    (installation, digests)
}

/// Both states list the same, stand the same and decide the same.
fn assert_same(installation: &Installation, digests: &[KeyDigest]) {
    let source = State::Embedded(installation.source());
    runtime().block_on(async {
        let target = installation.target().await;
        let now = keygate::clock::now();
        assert_eq!(listed(&target).await, listed(&source).await);
        // Only forwards: the embedded state's buckets follow a clock that is set back.
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
fn everything_arrives_and_decides_as_before() {
    let redis = Redis::start();
    let (installation, digests) = furnished(&[redis.url()], "");
    let report = installation.copy();
    assert_eq!(counts(&report, "copied"), [4, 7, 25, digests.len() as u64]);
    assert_eq!(counts(&report, "already_there"), [0; 4]);
    assert_same(&installation, &digests);
}

#[test]
fn everything_arrives_on_a_cluster() {
    let cluster = Cluster::start(3, 0);
    let (installation, digests) = furnished(&cluster.urls(), "");
    assert_eq!(counts(&installation.copy(), "copied"), [4, 7, 25, digests.len() as u64]);
    let before = content(cluster.nodes());
    assert_eq!(counts(&installation.copy(), "already_there"), [4, 7, 25, digests.len() as u64]);
    assert_eq!(content(cluster.nodes()), before);
    assert_same(&installation, &digests);
}

#[test]
fn a_bucket_is_copied_to_the_microsecond() {
    let redis = Redis::start();
    let (installation, _) = furnished(&[redis.url()], "");
    installation.copy();
    let export = installation.source().export();
    for key in export.orgs.iter().flat_map(|org| &org.keys) {
        let id = key.key.id.as_str();
        let live = redis.cli::<Vec<u8>>(&["HGET", &format!("keygate:{{{}}}:key:{id}", &id[..3]), "live"]);
        let numbers: Vec<f64> =
            live[8..].chunks(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap())).collect();
        let used = key.key.last_used.map_or(0, |at| at.0);
        let wanted = [key.bucket.level, key.bucket.at.0, key.per_us, key.key.uses, used];
        assert_eq!(numbers, wanted.map(|number| number as f64), "{}", key.key.name);
    }
}

#[test]
fn a_second_copy_changes_nothing() {
    let redis = Redis::start();
    let (installation, digests) = furnished(&[redis.url()], "");
    installation.copy();
    let before = content(std::slice::from_ref(&redis));
    let report = installation.copy();
    assert_eq!(counts(&report, "copied"), [0; 4]);
    assert_eq!(counts(&report, "already_there"), [4, 7, 25, digests.len() as u64]);
    assert_eq!(content(std::slice::from_ref(&redis)), before);
    let told = installation.run(COPY);
    assert!(told.out.contains("keys           0       25\n"), "{told:?}");
    assert!(told.out.ends_with("all records were read back and are equal\n"), "{told:?}");
    assert_eq!((told.code, told.err.as_str()), (0, ""));
}

#[test]
fn what_is_used_on_redis_meanwhile_stays_used() {
    let redis = Redis::start();
    let (installation, digests) = furnished(&[redis.url()], "");
    installation.copy();
    let before = runtime().block_on(async {
        let target = installation.target().await;
        decisions(&target, &digests, keygate::clock::now()).await;
        let listed = listed(&target).await;
        target.close().await;
        listed
    });
    let content_before = content(std::slice::from_ref(&redis));
    assert_eq!(counts(&installation.copy(), "copied"), [0; 4]);
    assert_eq!(content(std::slice::from_ref(&redis)), content_before);
    let uses = |listed: &[(_, _, Vec<keygate::state::Key>)]| -> u64 {
        listed.iter().flat_map(|(_, _, keys)| keys).map(|key| key.uses).sum()
    };
    let source = State::Embedded(installation.source());
    assert!(uses(&before) > uses(&runtime().block_on(listed(&source))));
}

#[test]
fn uses_that_came_after_a_first_copy_are_caught_up_with() {
    let redis = Redis::start();
    let (installation, mut digests) = furnished(&[redis.url()], "");
    installation.copy();
    let state = State::Embedded(installation.source());
    let mut furnishing = Furnishing::of(&state);
    runtime().block_on(async {
        furnishing.take(&digests[1], 12).await;
        furnishing.many("late", 3).await;
    });
    digests.append(&mut furnishing.digests);
    drop(state);
    let report = installation.copy();
    assert_eq!(report["caught_up"], 1, "{report}");
    assert_eq!(counts(&report, "copied"), [1, 2, 3, 3]);
    assert_same(&installation, &digests);
}

#[test]
fn catching_up_forgets_no_use_that_comes_at_the_same_moment() {
    const USES: u64 = 8;
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 60);
    let mut first = installation.source().export();
    first.orgs.iter_mut().for_each(|org| org.org.concurrent = Some(1000));
    runtime().block_on(async {
        let State::Redis(target) = installation.target().await else { unreachable!() };
        let copy = async |export: &StateExport| migrate(export, &target, &Progress::default()).await.unwrap();
        // The later the copy finds the keys behind, the more uses were counted already.
        for more in (1..=USES).chain(1..=USES) {
            redis.cli::<()>(&["FLUSHDB"]);
            copy(&first).await;
            let mut behind = first.clone();
            behind.orgs.iter_mut().flat_map(|org| &mut org.keys).for_each(|key| key.key.uses += more);
            let used = async {
                for _ in 0..USES {
                    let ask = |digest| DecideRequest {
                        digest,
                        id: None,
                        access: RouteAccess::Everyone,
                        now: keygate::clock::now(),
                    };
                    let decisions = digests.iter().map(|digest| target.decide(ask(digest)));
                    for decision in futures_util::future::join_all(decisions).await {
                        assert!(matches!(decision, Ok(Decision::Admitted(_))), "{decision:?}");
                    }
                }
            };
            tokio::join!(copy(&behind), used);
            for key in behind.orgs.iter().flat_map(|org| &org.keys) {
                let uses = target.key(key.key.id).await.unwrap().unwrap().uses;
                assert!(uses > USES, "of {} uses, {uses} are known, {more} were behind", USES + 1);
            }
        }
        target.close().await;
    });
}

#[test]
fn a_user_who_is_removed_while_its_keys_are_copied_takes_all_of_them_along() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 500);
    let export = installation.source().export();
    runtime().block_on(async {
        let State::Redis(target) = installation.target().await else { unreachable!() };
        for round in 0..12 {
            redis.cli::<()>(&["FLUSHDB"]);
            let removed = async |org: &OrgExport| {
                for user in &org.users {
                    let remove = Change::RemoveUser { org: org.org.id, user: user.id, at: keygate::clock::now() };
                    while target.users(org.org.id).await.unwrap().is_empty() {}
                    // Each round a few answers later after the user has come.
                    for _ in 0..round {
                        target.key_of(&KeyDigest::of(b"nobody's")).await.unwrap();
                    }
                    target.change(remove).await.unwrap();
                }
            };
            let progress = Progress::default();
            let (first, second) = (&export.orgs[0], &export.orgs[1]);
            let (copied, (), ()) = tokio::join!(migrate(&export, &target, &progress), removed(first), removed(second));
            copied.unwrap();
            for digest in &digests {
                let ask = DecideRequest { digest, id: None, access: RouteAccess::Everyone, now: keygate::clock::now() };
                let decision = target.decide(ask).await.unwrap();
                let refused = matches!(decision, Decision::Denied { refusal: Refusal::UserRemoved, .. });
                assert!(refused, "in round {round}: {decision:?}");
            }
        }
        target.close().await;
    });
}

#[test]
fn uses_that_only_the_journal_knows_of_are_copied() {
    let redis = Redis::start();
    let (installation, digests) = furnished(&[redis.url()], "");
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

/// Uses a key as a gateway does that serves from the state file.
fn use_with_journal(installation: &Installation, digest: &KeyDigest, times: u64) {
    let now = keygate::clock::now();
    runtime().block_on(async {
        let (state, journal) = app::open_and_recover(&installation.before(), &Metrics::new()).await.unwrap();
        for _ in 0..times {
            let ask = DecideRequest { digest, id: None, access: RouteAccess::Everyone, now };
            let Ok(Decision::Admitted(admitted)) = state.decide(ask).await else { panic!("admitted") };
            let opening = Use {
                id: Uuid::now_v7(),
                time: now,
                number: Some(admitted.number),
                key_id: admitted.principal.key_id,
                user_id: Some(admitted.principal.user_id),
                org_id: Some(admitted.principal.org_id),
                auth_method: admitted.principal.method,
                ip: None,
                user_agent: None,
                action: "GET /",
                method: "GET",
                path: "/",
                provisional: false,
            };
            drop(journal.begin(&opening).await.unwrap());
        }
        journal.close().await;
        state.close().await;
    });
}

#[test]
fn a_copy_that_was_killed_is_completed_by_another() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 3000);
    let mut copying = installation.begin(&redis, 1000);
    copying.kill().unwrap();
    copying.wait().unwrap();
    let there = redis.cli::<u64>(&["DBSIZE"]);
    assert!(there < 6000, "nothing was left to do: {there}");
    let report = installation.copy();
    assert!(counts(&report, "already_there")[2] > 0 && counts(&report, "copied")[2] > 0, "{report}");
    assert_same(&installation, &digests[..50]);
}

#[test]
fn a_copy_survives_the_death_of_its_server() {
    let redis = Redis::options().appendonly().start();
    let (installation, digests) = with_many(&redis, 2000);
    let copying = installation.begin(&redis, 1000);
    redis.kill();
    std::thread::sleep(Duration::from_millis(500));
    redis.restart();
    let copied = ended(copying.wait_with_output().unwrap());
    assert_eq!(copied.code, 0, "{copied:?}");
    let report: Value = serde_json::from_str(&copied.out).unwrap();
    assert_eq!(counts(&report, "copied"), [2, 4, 2000, 2000]);
    assert_same(&installation, &digests[..50]);
}

#[test]
fn a_server_that_stands_still_for_a_while_only_delays_it() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 2000);
    let copying = installation.begin(&redis, 1000);
    redis.stop_process();
    std::thread::sleep(Duration::from_secs(4));
    redis.resume();
    let copied = ended(copying.wait_with_output().unwrap());
    assert_eq!(copied.code, 0, "{copied:?}");
    let report: Value = serde_json::from_str(&copied.out).unwrap();
    assert_eq!(counts(&report, "copied"), [2, 4, 2000, 2000]);
    assert_same(&installation, &digests[..50]);
}

/// An installation with so many keys in two organizations.
fn with_many(redis: &Redis, keys: usize) -> (Installation, Vec<KeyDigest>) {
    let installation = Installation::moving_to(&[redis.url()], "");
    let state = State::Embedded(installation.source());
    let mut furnishing = Furnishing::of(&state);
    runtime().block_on(async {
        furnishing.many("first", keys / 2).await;
        furnishing.many("second", keys / 2).await;
    });
    let digests = std::mem::take(&mut furnishing.digests);
    (installation, digests)
}

#[test]
fn gateways_can_serve_and_change_while_it_copies() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 1500);
    let copying = installation.begin(&redis, 0);
    let admitted = runtime().block_on(async {
        let gateway = installation.target().await;
        let mut furnishing = Furnishing::of(&gateway);
        let org = furnishing.org("made on redis").await;
        let user = furnishing.user(&org, "ada@example.com").await;
        for number in 0..20 {
            furnishing.key(&org, user, &format!("key {number}")).await;
        }
        let mut admitted = 0;
        while redis.cli::<u64>(&["DBSIZE"]) < 2500 {
            let now = keygate::clock::now();
            let ask = DecideRequest { digest: &digests[0], id: None, access: RouteAccess::Everyone, now };
            let decision = gateway.decide(ask).await.unwrap();
            admitted += u64::from(matches!(decision, Decision::Admitted(_)));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        gateway.close().await;
        admitted
    });
    let copied = ended(copying.wait_with_output().unwrap());
    assert_eq!(copied.code, 0, "{copied:?}");
    assert!(admitted > 0, "nothing was served meanwhile");
    runtime().block_on(async {
        let target = installation.target().await;
        let key = target.key_of(&digests[0]).await.unwrap().unwrap();
        assert_eq!(target.key(key).await.unwrap().unwrap().uses, 1 + admitted);
        assert_eq!(listed(&target).await.len(), 3);
        target.close().await;
    });
}

#[test]
fn a_state_or_a_journal_in_use_is_not_copied() {
    let redis = Redis::start();
    let (installation, _) = furnished(&[redis.url()], "");
    let refused = || {
        let refused = installation.run_at_once(COPY);
        assert_eq!((refused.code, refused.out.as_str()), (75, ""), "{refused:?}");
        assert!(refused.err.contains("stop the gateway first") && refused.err.contains("in use"), "{refused:?}");
        assert_eq!(redis.cli::<u64>(&["DBSIZE"]), 0);
    };
    let state = installation.source();
    refused();
    drop(state);
    runtime().block_on(async {
        let (state, journal) = app::open_and_recover(&installation.config(), &Metrics::new()).await.unwrap();
        let told = installation.run_at_once(COPY);
        assert_eq!(told.code, 75, "{told:?}");
        assert!(told.err.contains("stop the gateway first"), "{told:?}");
        journal.close().await;
        state.close().await;
    });
    installation.copy();
}

#[test]
fn both_states_must_be_configured_and_one_must_be_there() {
    let redis = Redis::start();
    let installation = Installation::with_state("{ embedded: { path: state.db } }");
    let refused = installation.run(COPY);
    assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{refused:?}");
    assert!(refused.err.contains("state.redis: is missing") && refused.err.contains("redis: { url:"), "{refused:?}");
    installation.configure(&format!("{{ redis: {{ url: \"{}\" }} }}", redis.url()));
    let refused = installation.run(COPY);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("state.embedded: is missing") && refused.err.contains("path:"), "{refused:?}");
    installation.configure(&format!("{{ embedded: {{ path: wrong.db }}, redis: {{ url: \"{}\" }} }}", redis.url()));
    let refused = installation.run(COPY);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("wrong.db: there is no such file"), "{refused:?}");
    assert!(!installation.directory.path().join("wrong.db").exists());
    for line in ["state copy --from redis --to embedded", "state copy --from embedded", "state copy"] {
        assert_eq!(installation.run(line).code, 2, "{line}");
    }
}

#[test]
fn a_redis_that_is_away_or_unfit_is_told_at_once() {
    let redis = Redis::start();
    let (installation, _) = furnished(&[redis.url()], "");
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let refused = installation.run(COPY);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("cannot open the Redis state"), "{refused:?}");
    redis.kill();
    let refused = installation.run(COPY);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("Redis cannot be reached: cannot reach 127.0.0.1"), "{refused:?}");
    redis.restart();
    installation.copy();
}

#[test]
fn replicas_are_waited_for_as_configured() {
    let redis = Redis::start();
    let (installation, digests) = furnished(&[redis.url()], ", durability: { replicas: 1, timeout: 3s }");
    let refused = installation.run(COPY);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("only 0 of 1 replicas confirmed it in time"), "{refused:?}");
    let replica = Redis::start();
    replica.cli::<()>(&["REPLICAOF", "127.0.0.1", &redis.port().to_string()]);
    until("the replica follows", || (replica.info("replication", "master_link_status") == "up").then_some(()));
    let report = installation.copy();
    assert_eq!(counts(&report, "already_there"), [4, 7, 25, digests.len() as u64]);
    assert_eq!(replica.cli::<u64>(&["DBSIZE"]), redis.cli::<u64>(&["DBSIZE"]));
}

#[test]
fn a_change_on_redis_after_the_copy_is_told_and_stays() {
    let redis = Redis::start();
    let (installation, _) = furnished(&[redis.url()], "");
    installation.copy();
    let key = runtime().block_on(async {
        let target = installation.target().await;
        let (org, _, keys) = listed(&target).await.swap_remove(0);
        let key = keys[1].id;
        target.change(Change::RevokeKey { key, at: keygate::clock::now() }).await.unwrap();
        target.change(Change::SuspendOrg { org: org.id, suspended: true }).await.unwrap();
        target.close().await;
        key
    });
    let before = content(std::slice::from_ref(&redis));
    let told = installation.run(&format!("{COPY} --json"));
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(content(std::slice::from_ref(&redis)), before);
    let report: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(report["in_the_way"].as_array().unwrap().len(), 2, "{report}");
    let of_key = json!({ "record": "key", "id": key, "problem": "it is there already, and is not the same: revoked" });
    assert_eq!(report["in_the_way"][1], of_key);
    assert_eq!(report["differences"], json!([]));
}
