//! The contract with several gateways on one Redis. Each has a state of its own, with its own cache, connections and
//! heartbeat, as if it were in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use domain::clock;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::redis::{Clock, Servers, Settings};
use state::{Admitted, Decision, Redis as RedisState, State, Unavailable};

use super::redis::{at, settings};
use crate::support::decide::decide_request;
use crate::support::lenient;
use crate::support::redis::Redis;

mod gateway_thread;
mod cutting_proxy;

mod revocations;
mod slots;
mod key_slots;
mod leases;
mod lost_replies;
mod pauses;
mod absences;
mod many_leases;
mod requests;

/// A quota that never refuses.
const PLENTY: Quota =
    Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000, strict: false };
/// Concurrency limit of the organization.
const LIMIT: u32 = 100;

/// Settings as shipped, but for a deadline that a loaded machine can keep, and a quota that never refuses.
fn shipped(server: &Redis, lease: Duration) -> Settings {
    let mut settings = settings(Servers::Single(at(server)));
    (settings.lease, settings.clock) = (lease, Clock::Server);
    (settings.quota, settings.concurrent) = (PLENTY, LIMIT);
    settings
}

async fn open(settings: &Settings) -> Arc<State> {
    Arc::new(State::Redis(RedisState::open(settings.clone()).await.unwrap()))
}

async fn open_four(settings: &Settings) -> Vec<Arc<State>> {
    let mut gateways = Vec::new();
    for _ in 0..4 {
        gateways.push(open(settings).await);
    }
    gateways
}

/// One decision at the server's time.
async fn ask(state: &State, digest: &KeyDigest) -> Result<Decision, Unavailable> {
    state.decide(decide_request(digest, clock::now())).await
}

/// Acquires a slot; `None` when none is free or the reply is late.
async fn slot(state: &State, digest: &KeyDigest) -> Option<Admitted> {
    match ask(state, digest).await {
        Ok(Decision::Admitted(admitted)) => Some(admitted),
        Ok(Decision::Denied { refusal: Refusal::TooManyInFlight | Refusal::KeyTooManyInFlight, .. }) | Err(_) => None,
        Ok(Decision::Denied { refusal, .. }) => panic!("{refusal:?}"),
    }
}

/// Acquires slots until there are `count`, within the time-out, which is ten times as long on a busy machine.
async fn fill(state: &State, digest: &KeyDigest, held: &mut Vec<Admitted>, count: usize, limit: Duration) {
    let (begun, limit) = (Instant::now(), lenient(limit));
    while held.len() < count {
        match slot(state, digest).await {
            Some(admitted) => held.push(admitted),
            None => {
                assert!(begun.elapsed() < limit, "{} of {count} slots after {limit:?}", held.len());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
}

/// Slots as Redis counts them: all of an organization, and those of each lease.
fn counted(server: &Redis, tag: OrgTag) -> (u32, Vec<u32>) {
    counted_in(server, &format!("keygate:{{{}}}:org", tag.as_str())).unwrap()
}

/// Slots of a key as Redis counts them; `None` while there is no record of them.
fn counted_of_key(server: &Redis, key: KeyId) -> Option<(u32, Vec<u32>)> {
    counted_in(server, &format!("keygate:{{{}}}:key:{key}:slots", key.tag().as_str()))
}

fn counted_in(server: &Redis, name: &str) -> Option<(u32, Vec<u32>)> {
    let fields: Vec<(String, Vec<u8>)> = server.query(::redis::cmd("HGETALL").arg(name)).unwrap();
    let number = |bytes: &[u8]| f64::from_le_bytes(bytes[..8].try_into().unwrap()) as u32;
    let live = fields.iter().find(|(name, _)| name == "live")?;
    let held = fields.iter().filter(|(name, _)| name.starts_with("h:")).map(|(_, value)| number(value)).collect();
    Some((number(&live.1[8..]), held))
}

/// Slots that are really held, counted without Redis.
#[derive(Default)]
struct Gauge {
    held: AtomicU32,
    most: AtomicU32,
}

/// One counted slot.
struct Counted<'a>(&'a Gauge, Admitted);

impl Gauge {
    fn count(&self, admitted: Admitted) -> Counted<'_> {
        let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(held, Ordering::SeqCst);
        Counted(self, admitted)
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Counted<'_> {
    /// Runs before the slot is released, so that the count is never too high.
    fn drop(&mut self) {
        assert!(!self.1.provisional);
        self.0.held.fetch_sub(1, Ordering::SeqCst);
    }
}
