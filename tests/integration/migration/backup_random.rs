//! Export and import of random states.

use std::time::Duration;

use domain::budget::Cost;
use domain::key::policy::KeyPolicy;
use domain::quota::Quota;
use proptest::prelude::*;
use state::{Change, KeyPatch, LastRotation, OrgPatch, PolicyScope, State};

use super::backup::{Directory, assert_round_trip, export, on_redis};
use super::installation::runtime;
use super::records::{OVERLAP, RecordMaker, full_policy, monthly, policy_change};
use crate::support::redis::Redis;

/// A step of a property test.
#[derive(Clone, Debug)]
enum Step {
    Org,
    User(usize, bool),
    Key(usize),
    Take(usize, u8),
    Rotate(usize, bool),
    Revoke(usize),
    Limit(usize, u32),
    Policy(usize, u8),
    Budget(usize, u64),
    Suspend(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0..64_usize;
    proptest::collection::vec(
        prop_oneof![
            1 => Just(Step::Org),
            2 => (index.clone(), any::<bool>()).prop_map(|(org, removed)| Step::User(org, removed)),
            4 => index.clone().prop_map(Step::Key),
            4 => (index.clone(), 0..50_u8).prop_map(|(key, times)| Step::Take(key, times)),
            3 => (index.clone(), any::<bool>()).prop_map(|(key, overlap)| Step::Rotate(key, overlap)),
            2 => index.clone().prop_map(Step::Revoke),
            2 => (index.clone(), 1..100_u32).prop_map(|(key, burst)| Step::Limit(key, burst)),
            3 => (index.clone(), any::<u8>()).prop_map(|(key, fields)| Step::Policy(key, fields)),
            2 => (index.clone(), 1..60_u64).prop_map(|(of, units)| Step::Budget(of, units)),
            1 => index.prop_map(Step::Suspend),
        ],
        1..60,
    )
}

/// Takes steps; those that are refused, as a rotation of a revoked key, change nothing.
async fn take_steps(state: &State, steps: &[Step]) {
    let mut maker = RecordMaker::new(state);
    let (mut orgs, mut users, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        let pick = |index: usize, length: usize| (length > 0).then(|| index % length.max(1));
        match *step {
            Step::Org => orgs.push(maker.org(&format!("org {number}")).await),
            Step::User(index, removed) => {
                let Some(index) = pick(index, orgs.len()) else { continue };
                let user = maker.user(&orgs[index], &format!("user{number}@example.com")).await;
                if removed {
                    let remove = Change::RemoveUser { org: orgs[index].id, user, at: maker.now };
                    state.change(remove).await.unwrap();
                } else {
                    users.push((index, user));
                }
            }
            Step::Key(index) => {
                let Some(index) = pick(index, users.len()) else { continue };
                let (org, user) = users[index];
                keys.push(maker.key(&orgs[org], user, &format!("key {number}")).await.0);
            }
            Step::Take(index, times) => {
                let Some(index) = pick(index, maker.digests.len()) else { continue };
                for _ in 0..times {
                    let (digest, access) = (&maker.digests[index], state::RouteAccess::Everyone);
                    let ask = state::DecideRequest {
                        digest,
                        id: None,
                        access,
                        cost: Cost::ONE,
                        client: None,
                        now: maker.now,
                    };
                    drop(state.decide(ask).await.unwrap());
                }
            }
            Step::Rotate(index, overlap) => {
                let Some(index) = pick(index, keys.len()) else { continue };
                let digest = domain::key::KeyDigest::of(format!("{number} {}", keys[index]).as_bytes());
                let previous_until = if overlap { maker.now.after(OVERLAP) } else { maker.now };
                let rotate = Change::RotateKey {
                    key: keys[index],
                    digest,
                    at: maker.now,
                    previous_until,
                    last: LastRotation::Any,
                };
                drop(state.change(rotate).await);
            }
            Step::Revoke(index) => {
                let Some(index) = pick(index, keys.len()) else { continue };
                state.change(Change::RevokeKey { key: keys[index], at: maker.now }).await.unwrap();
            }
            Step::Limit(index, burst) => {
                let Some(index) = pick(index, keys.len()) else { continue };
                let quota = Quota { requests: burst, per: Duration::from_secs(60), burst, strict: false };
                drop(state.change(Change::limit_key(keys[index], Some(quota))).await);
            }
            Step::Policy(index, fields) => {
                let Some(index) = pick(index, keys.len()) else { continue };
                let patch = Box::new(policy_change(&KeyPolicy::default(), some_of(full_policy(), fields)));
                let change = Change::set_key_policy(keys[index], patch, PolicyScope::Operator);
                drop(state.change(change).await);
            }
            Step::Budget(index, units) => {
                if let Some(key) = pick(index, keys.len()) {
                    let patch = KeyPatch { budget: monthly(units), ..KeyPatch::default() };
                    drop(state.change(Change::UpdateKey { key: keys[key], patch }).await);
                }
                let Some(org) = pick(index, orgs.len()) else { continue };
                let patch = OrgPatch { budget: monthly(units), ..OrgPatch::default() };
                state.change(Change::UpdateOrg { org: orgs[org].id, patch }).await.unwrap();
            }
            Step::Suspend(index) => {
                let Some(index) = pick(index, orgs.len()) else { continue };
                state.change(Change::suspend_org(orgs[index].id, true)).await.unwrap();
            }
        }
    }
}

/// The fields of a policy whose bits are set.
fn some_of(policy: KeyPolicy, fields: u8) -> KeyPolicy {
    let has = |bit: u8| fields & 1 << bit != 0;
    KeyPolicy {
        permissions: policy.permissions.filter(|_| has(0)),
        expires: policy.expires.filter(|_| has(1)),
        networks: Some(policy.networks).filter(|_| has(2)).unwrap_or_default(),
        concurrent: policy.concurrent.filter(|_| has(3)),
        disabled: policy.disabled.filter(|_| has(4)),
        enabled: None,
        tags: Some(policy.tags).filter(|_| has(5)).unwrap_or_default(),
    }
}

#[test]
fn random_states_come_back_as_they_were() {
    let redis = Redis::start();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    let round_trip = |steps: Vec<Step>| {
        redis.cli::<()>(&["FLUSHDB"]);
        runtime().block_on(async {
            let directories = [Directory::new(), Directory::new()];
            let source = directories[0].open();
            take_steps(&source, &steps).await;
            let file = export(&source).await;
            let remote = on_redis(&[redis.url()]).await;
            assert_round_trip(&file, &remote).await;
            assert_round_trip(&export(&remote).await, &directories[1].open()).await;
            remote.close().await;
        });
        Ok(())
    };
    runner.run(&steps(), round_trip).unwrap();
}
