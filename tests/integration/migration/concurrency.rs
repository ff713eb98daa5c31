//! Import while gateways serve from the target, while servers fail, and after it was interrupted.

use std::time::Duration;

use domain::key::KeyDigest;
use domain::refusal::Refusal;
use serde_json::Value;
use state::migration::import;
use state::{Change, Decision, Key, Org, State, User};

use super::installation::{Installation, listed, runtime};
use super::records::RecordMaker;
use super::{assert_same, counts, records_of};
use crate::support::Ended;
use crate::support::decide::decide_request;
use crate::support::redis::Redis;

#[test]
fn keys_of_a_user_removed_during_the_import_are_denied() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 500);
    let source = State::Embedded(installation.source());
    let (records, listed) = runtime().block_on(async { (records_of(&source).await, listed(&source).await) });
    runtime().block_on(async {
        let target = installation.target().await;
        for round in 0..12 {
            redis.cli::<()>(&["FLUSHDB"]);
            target.accept().await.unwrap();
            let removed = async |(org, users, _): &(Org, Vec<User>, Vec<Key>)| {
                for user in users {
                    let remove = Change::RemoveUser { org: org.id, user: user.id, at: domain::clock::now() };
                    while target.users(org.id).await.unwrap().is_empty() {}
                    // In each round the removal comes a few replies later after the user was copied.
                    for _ in 0..round {
                        target.key_of(&KeyDigest::of(b"unknown")).await.unwrap();
                    }
                    target.change(remove).await.unwrap();
                }
            };
            let (copied, (), ()) = tokio::join!(import(&records, &target), removed(&listed[0]), removed(&listed[1]));
            copied.unwrap();
            for digest in &digests {
                let ask = decide_request(digest, domain::clock::now());
                let decision = target.decide(ask).await.unwrap();
                let refused = matches!(decision, Decision::Denied { refusal: Refusal::UserRemoved, .. });
                assert!(refused, "in round {round}: {decision:?}");
            }
        }
        target.close().await;
    });
}

#[test]
fn killed_import_is_completed_by_another_run() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 3000);
    let mut copying = installation.begin(&redis, 1000);
    copying.kill().unwrap();
    copying.wait().unwrap();
    let there = redis.cli::<u64>(&["DBSIZE"]);
    assert!(there < 6000, "the first run copied everything: {there}");
    let report = installation.copy();
    assert!(counts(&report, "already_there")[2] > 0 && counts(&report, "copied")[2] > 0, "{report}");
    assert_same(&installation, &digests[..50]);
}

#[test]
fn import_survives_a_restart_of_its_server() {
    let redis = Redis::options().appendonly().start();
    let (installation, digests) = with_many(&redis, 2000);
    let copying = installation.begin(&redis, 1000);
    redis.kill();
    // The time for which the server is down, in which the import retries.
    std::thread::sleep(Duration::from_millis(500));
    redis.restart();
    let copied = Ended::of(copying.wait_with_output().unwrap());
    assert_eq!(copied.code, 0, "{copied:?}");
    let report: Value = serde_json::from_str(&copied.out).unwrap();
    assert_eq!(counts(&report, "copied"), [2, 4, 2000, 2000]);
    assert_same(&installation, &digests[..50]);
}

#[test]
fn paused_server_only_delays_the_import() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 2000);
    let copying = installation.begin(&redis, 1000);
    redis.stop_process();
    // The time for which the server does not reply.
    std::thread::sleep(Duration::from_secs(4));
    redis.resume();
    let copied = Ended::of(copying.wait_with_output().unwrap());
    assert_eq!(copied.code, 0, "{copied:?}");
    let report: Value = serde_json::from_str(&copied.out).unwrap();
    assert_eq!(counts(&report, "copied"), [2, 4, 2000, 2000]);
    assert_same(&installation, &digests[..50]);
}

#[test]
fn gateways_serve_and_change_during_the_import() {
    let redis = Redis::start();
    let (installation, digests) = with_many(&redis, 1500);
    let (copying, admitted) = runtime().block_on(async {
        let gateway = installation.target().await;
        let mut copying = installation.begin(&redis, 0);
        let mut maker = RecordMaker::new(&gateway);
        let changes = async {
            let org = maker.org("made on redis").await;
            let user = maker.user(&org, "ada@example.com").await;
            for number in 0..20 {
                maker.key(&org, user, &format!("key {number}")).await;
            }
        };
        let requests = async {
            let mut admitted = 0;
            while copying.try_wait().unwrap().is_none() {
                let now = domain::clock::now();
                let ask = decide_request(&digests[0], now);
                let decision = gateway.decide(ask).await.unwrap();
                admitted += u64::from(matches!(decision, Decision::Admitted(_)));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            admitted
        };
        let ((), admitted) = tokio::join!(changes, requests);
        gateway.close().await;
        (copying, admitted)
    });
    let copied = Ended::of(copying.wait_with_output().unwrap());
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

/// An installation with this many keys in two organizations.
fn with_many(redis: &Redis, keys: usize) -> (Installation, Vec<KeyDigest>) {
    let installation = Installation::moving_to(&[redis.url()], "");
    let state = State::Embedded(installation.source());
    let mut maker = RecordMaker::new(&state);
    runtime().block_on(async {
        maker.many("first", keys / 2).await;
        maker.many("second", keys / 2).await;
    });
    let digests = std::mem::take(&mut maker.digests);
    (installation, digests)
}
