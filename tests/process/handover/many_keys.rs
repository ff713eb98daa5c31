//! Time for which requests wait while a gateway with many keys is replaced.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::clock;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag, PlainKey};
use domain::quota::Quota;
use futures_util::future::join_all;
use state::{Change, Embedded, Key, Org, State, User, embedded};

use super::{BLOCKS, Backend, Lineage};
use crate::support::{Client, SetOnDrop, Setup, eventually};

/// Writes the state of an organization with so many keys, and returns the first of them.
async fn write_state(setup: &Setup, count: usize) -> String {
    let settings = embedded::Settings {
        path: setup.path().join("state.db"),
        quota: Quota::DEFAULT,
        concurrent: 100,
        plans: state::LimitPlans::NONE,
    };
    let state = State::Embedded(Embedded::open(&settings).unwrap());
    let (org, created) = (OrgId::generate(), clock::now());
    let tag = OrgTag::generate().unwrap();
    let record = Org::new(org, tag, "many", created);
    state.change(Change::CreateOrg(record)).await.unwrap();
    let user = UserId::generate();
    let record = User::new(user, org, "ada@example.com", created);
    state.change(Change::CreateUser(record)).await.unwrap();
    let keys: Vec<PlainKey> = (0..count).map(|_| PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap()).collect();
    let changes = keys.iter().enumerate().map(|(number, key)| {
        let digest = key.digest();
        let key = Key::new(key.id(), org, user, format!("key {number}"), created);
        state.change(Change::CreateKey { key, digest })
    });
    join_all(changes).await.into_iter().for_each(|made| made.unwrap());
    state.close().await;
    keys[0].expose().expose().to_owned()
}

/// Sends requests one after the other, and counts them, until it is told to stop; returns the longest wait for one.
fn load(lineage: &Lineage, key: &str, answered: &AtomicUsize, stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::SeqCst) {
        let mut client = Client::connect(lineage.setup.address);
        loop {
            let begun = Instant::now();
            let response = client.get("/", key);
            assert_eq!(response.status, 200);
            longest = longest.max(begun.elapsed());
            answered.fetch_add(1, Ordering::SeqCst);
            if response.header("connection") == Some("close") || stop.load(Ordering::SeqCst) {
                break;
            }
        }
    }
    longest
}

/// Replaces a gateway with so many keys under load, and returns the time of the upgrade and the longest wait.
fn replace(count: usize) -> (Duration, Duration) {
    let backend = Backend::start();
    let setup = Setup::new(backend.upstream.address, BLOCKS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let key = runtime.block_on(write_state(&setup, count));
    let mut lineage = Lineage::start(setup);
    let (answered, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (replaced, upgrade, longest) = std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        let client = scope.spawn(|| load(&lineage, &key, &answered, &stop));
        eventually("requests are answered", || answered.load(Ordering::SeqCst) > 20);
        let begun = Instant::now();
        let replaced = lineage.upgrade();
        let upgrade = begun.elapsed();
        stop.store(true, Ordering::SeqCst);
        (replaced, upgrade, client.join().expect("no request fails"))
    });
    lineage.wait_for_end(replaced);
    assert_eq!(lineage.taken(&key), answered.into_inner());
    lineage.stop();
    (upgrade, longest)
}

#[test]
fn gateway_with_thousands_of_keys_is_replaced() {
    replace(5000);
}

/// The figure of `docs/install.md`: `cargo test --test process -- --ignored --nocapture hundred_thousand_keys`.
#[test]
#[ignore = "takes a minute: prints the time for which requests wait"]
fn gateway_with_a_hundred_thousand_keys_is_replaced() {
    for count in [1000, 100_000] {
        let (upgrade, longest) = replace(count);
        println!("{count} keys: upgrade {upgrade:.2?}, longest wait for a response {longest:.2?}");
    }
}
