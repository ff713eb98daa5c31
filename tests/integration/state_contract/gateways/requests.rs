//! Requests with an idempotency key at several gateways: each makes its change once, whatever is lost on the way.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use domain::clock;
use domain::key::policy::{Field, PolicyPatch};
use futures_util::future::join_all;
use state::redis::{Address, Servers, Settings};
use state::{Change, ChangeError, IdempotencyPlace, IdempotentRequest, Org, PolicyScope, State};

use super::cutting_proxy::CuttingProxy;
use super::{open, shipped};
use crate::state_contract::cases_idempotency::{TASKS, new_token, only_resource, repeated, request};
use crate::state_contract::fixture::{Fixture, fixture_with_key, new_fixture, new_key, new_org, record};
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::redis::{at, settings};
use crate::state_contract::runtime::{block_on, enter};
use crate::support::Random;
use crate::support::redis::Cluster;

const LEASE: Duration = Duration::from_secs(30);
/// Requests over connections that are cut.
const REQUESTS: u32 = 400;

fn creation(fixture: &Fixture, equal: &IdempotentRequest) -> (String, Change) {
    let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let resource = key.id.to_string();
    let once = IdempotentRequest { resource: resource.clone(), ..equal.clone() };
    (resource, Change::CreateKey { key, digest }.once(once))
}

/// Equal requests at two gateways make one key, and leave nothing else behind.
async fn equal_requests_make_one_key(settings: &Settings) {
    let gateways = [open(settings).await, open(settings).await];
    let fixture = new_fixture(&gateways[0]).await;
    for _ in 0..5 {
        let before = gateways[0].keys(fixture.org).await.unwrap().len();
        let equal = request(new_token(), "");
        let tasks = (0..TASKS as usize).map(|task| {
            let (gateway, (resource, change)) = (Arc::clone(&gateways[task % 2]), creation(&fixture, &equal));
            tokio::spawn(async move { (resource, gateway.change(change).await) })
        });
        let results = join_all(tasks.collect::<Vec<_>>()).await;
        let resource = only_resource(results.into_iter().map(Result::unwrap).collect());
        let keys = gateways[1].keys(fixture.org).await.unwrap();
        assert_eq!(keys.len(), before + 1);
        assert!(keys.iter().any(|key| key.id.to_string() == resource));
    }
}

#[test]
fn equal_requests_at_two_gateways_make_one_key() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        equal_requests_make_one_key(&shipped(&server, LEASE)).await;
        // One claim for each key: those of the other requests were given back.
        let claims: Vec<String> = server.query(::redis::cmd("KEYS").arg("keygate:digest:*")).unwrap();
        assert_eq!(claims.len(), 5);
        // Each record, and each count, with what was not made taken out of it, expires by itself.
        let records: Vec<String> = server.query(::redis::cmd("KEYS").arg("*:idempotency*")).unwrap();
        assert_eq!(records.len(), 10, "{records:?}");
        for name in records {
            let left: i64 = server.query(::redis::cmd("PTTL").arg(&name)).unwrap();
            assert!(left > 0, "{name}");
            if name.ends_with(":idempotency") {
                let entries: i64 = server.query(::redis::cmd("ZCARD").arg(&name)).unwrap();
                assert_eq!(entries, 1);
            }
        }
    });
}

#[test]
fn equal_requests_at_two_gateways_of_a_cluster_make_one_key() {
    let _entered = enter();
    let cluster = Cluster::start(3, 0);
    let nodes = cluster.nodes().iter().map(at).collect();
    block_on(equal_requests_make_one_key(&settings(Servers::Cluster(nodes))));
}

#[test]
fn requests_over_cut_connections_are_made_once() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let near = shipped(&server, LEASE);
        let good = open(&near).await;
        let network = CuttingProxy::to(server.address(), 1).await;
        let mut far = near.clone();
        far.deadline = Duration::from_millis(500);
        far.servers = Servers::Single(Address { host: "127.0.0.1".into(), port: network.address.port() });
        let far = open(&far).await;
        let (fixture, key) = fixture_with_key(&good).await;
        let token = new_token();
        for number in 1..=REQUESTS {
            let once = request(token, "");
            let (resource, change) = creation(&fixture, &once);
            // An attempt whose reply was lost is found by the next one, and is no other request.
            match far.change(change).await {
                Ok(()) | Err(ChangeError::Unavailable(_)) => {}
                Err(error) => panic!("{number}: {error:?}"),
            }
            let (second, change) = creation(&fixture, &once);
            match good.change(change).await {
                Ok(()) => assert!(good.key(second.parse().unwrap()).await.unwrap().is_some()),
                Err(error) => assert_eq!(repeated(Err(error)).resource, resource),
            }
            let tag = record(&good, &key).await.etag();
            let patch = PolicyPatch { concurrent: Field::Set(number), ..PolicyPatch::default() };
            let change = Change::set_key_policy(key.id, Box::new(patch), PolicyScope::Operator).if_match(tag);
            match far.change(change).await {
                Ok(()) => {
                    let policy = record(&good, &key).await.policy.unwrap();
                    assert_eq!(policy.concurrent, Some(number));
                }
                Err(ChangeError::Unavailable(_)) => {}
                Err(error) => panic!("{number}: {error:?}, and nobody else changes the key"),
            }
        }
        assert!(network.cuts() > 10, "only {} connections were cut", network.cuts());
        let keys = good.keys(fixture.org).await.unwrap().len();
        assert_eq!(keys, REQUESTS as usize + 1);
    });
}

/// One organization for each request, although its first attempts ended anywhere: as at gateways that died.
#[test]
fn creation_of_an_organization_that_is_given_up_leaves_one() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let state = open(&shipped(&server, LEASE)).await;
        let mut random = Random::new(7);
        let (token, mut given_up) = (new_token(), 0);
        for _ in 0..60 {
            let (equal, name) = (request(token, ""), new_org().name);
            let create = || {
                let org = Org { name: name.clone(), ..new_org() };
                let resource = org.id.to_string();
                let once = IdempotentRequest { resource: resource.clone(), ..equal.clone() };
                (resource, Change::CreateOrg(org).once(once))
            };
            for _ in 0..3 {
                let made = polled(random.below(12), state.change(create().1)).await;
                given_up += u32::from(made.is_none());
            }
            let (resource, change) = create();
            let resource = match state.change(change).await {
                Ok(()) => resource,
                Err(error) => repeated(Err(error)).resource,
            };
            let found = org_ids(&state, &name).await;
            assert_eq!(found, std::slice::from_ref(&resource));
            let place = IdempotencyPlace::Installation;
            let stored = state.idempotency_record(place, &equal.id, clock::now()).await.unwrap();
            assert_eq!(stored.map(|stored| stored.resource), Some(resource));
        }
        assert!((20..180).contains(&given_up), "{given_up} of 180 given up");
    });
}

/// The result of a future that is dropped after so many polls, each of which carries it to its next command or reply;
/// none when it is.
async fn polled<T>(mut polls: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn org_ids(state: &State, name: &str) -> Vec<String> {
    let orgs = state.orgs().await.unwrap();
    orgs.into_iter().filter(|org| org.name == name).map(|org| org.id.to_string()).collect()
}
