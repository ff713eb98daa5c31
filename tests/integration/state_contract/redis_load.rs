//! A load on a Redis state while something happens to Redis, and what became of every single request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keygate::clock;
use keygate::quota::Quota;
use keygate::refusal::Refusal;
use keygate::state::redis::Settings;
use keygate::state::{DecideRequest, Decision, Redis as RedisState, RouteAccess, State, Unavailable};
use tokio::task::JoinHandle;

use super::runtime::block_on;
use super::tenancy::{Held, Tenancy, tenancy};
use crate::support::redis::Redis;
use crate::support::until;

/// A bucket that no load empties, and is never full under one: what is taken twice or not at all shows.
pub(super) const PLENTY: Quota = Quota { requests: 1_000_000, per: Duration::from_secs(1), burst: 1_000_000_000 };
/// Keys, each used by one client.
const KEYS: usize = 8;
/// How long a client waits between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Admitted,
    /// Admitted without Redis.
    Provisional,
    Refused(Refusal),
    Unavailable(Unavailable),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) begun: Instant,
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
}

/// Clients that go on until they are told to stop.
pub(super) struct Load {
    pub(super) state: Arc<State>,
    pub(super) tenancy: Tenancy,
    pub(super) keys: Vec<Held>,
    over: Arc<AtomicBool>,
    seen: tokio::sync::watch::Receiver<(u64, Outcome)>,
    clients: Vec<JoinHandle<Vec<Sample>>>,
}

impl Load {
    /// Opens a state, and has every key used once before it returns.
    pub(super) fn start(settings: Settings) -> Self {
        let state = Arc::new(State::Redis(block_on(RedisState::open(settings)).unwrap()));
        let (tenancy, keys) = block_on(async {
            let tenancy = tenancy(&state).await;
            let mut keys = Vec::new();
            for _ in 0..KEYS {
                keys.push(tenancy.key(&state).await);
            }
            (tenancy, keys)
        });
        let over = Arc::new(AtomicBool::new(false));
        let (seeing, seen) = tokio::sync::watch::channel((0, Outcome::Admitted));
        let seeing = Arc::new(seeing);
        let clients = keys.iter().map(|key| {
            let client = client(Arc::clone(&state), *key, Arc::clone(&over), Arc::clone(&seeing));
            tokio::spawn(client)
        });
        let clients = clients.collect();
        let load = Self { state, tenancy, keys, over, seen, clients };
        load.see(20, |outcome| outcome == Outcome::Admitted);
        load
    }

    /// Waits until so many requests in a row, ended from now on, have become this; how long the first took to come.
    pub(super) fn see(&self, count: u64, what: impl Fn(Outcome) -> bool) -> Duration {
        let mut seen = self.seen.clone();
        let begun = Instant::now();
        let (mut in_a_row, mut first, mut last) = (0, Duration::ZERO, seen.borrow_and_update().0);
        let sees = async {
            while in_a_row < count {
                seen.changed().await.unwrap();
                let (number, outcome) = *seen.borrow_and_update();
                if !what(outcome) {
                    in_a_row = 0;
                } else {
                    first = if in_a_row == 0 { begun.elapsed() } else { first };
                    in_a_row += number - last;
                }
                last = number;
            }
        };
        // Sentinels whose machine stood still do nothing for half a minute, and an election may have to be held again.
        block_on(async { tokio::time::timeout(Duration::from_secs(240), sees).await }).expect("seen within 240 s");
        first
    }

    /// Ends the load: every request that there was, in the order of their beginnings.
    pub(super) fn end(&mut self) -> Vec<Sample> {
        self.over.store(true, Ordering::SeqCst);
        let mut samples = Vec::new();
        for client in self.clients.drain(..) {
            samples.extend(block_on(client).unwrap());
        }
        samples.sort_by_key(|sample| sample.begun);
        samples
    }

    /// Waits until the server counts no slot of the organization.
    pub(super) fn until_no_slot_is_taken(&self, server: &Redis) {
        let org = format!("keygate:{{{}}}:org", self.tenancy.tag.as_str());
        until("no slot is taken", || {
            let live: Vec<u8> = server.try_cli(&["HGET", &org, "live"]).ok()?;
            let taken = f64::from_le_bytes(live.get(8..16)?.try_into().unwrap());
            (taken == 0.0).then_some(())
        });
    }

    /// Uses that the server counts of all keys.
    pub(super) fn uses(&self) -> u64 {
        block_on(async {
            let mut uses = 0;
            for key in &self.keys {
                uses += self.state.key(key.id).await.unwrap().unwrap().uses;
            }
            uses
        })
    }
}

async fn client(
    state: Arc<State>,
    key: Held,
    over: Arc<AtomicBool>,
    seeing: Arc<tokio::sync::watch::Sender<(u64, Outcome)>>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let asked = state.decide(DecideRequest {
            digest: &key.digest,
            id: Some(key.id),
            access: RouteAccess::Everyone,
            now: clock::now(),
        });
        let decision = asked.await;
        let took = begun.elapsed();
        let outcome = match &decision {
            Ok(Decision::Admitted(admitted)) if admitted.provisional => Outcome::Provisional,
            Ok(Decision::Admitted(_)) => Outcome::Admitted,
            Ok(Decision::Denied { refusal, .. }) => Outcome::Refused(*refusal),
            Err(unavailable) => Outcome::Unavailable(*unavailable),
        };
        samples.push(Sample { begun, took, outcome });
        seeing.send_modify(|(number, last)| (*number, *last) = (*number + 1, outcome));
        // A request takes its time, holding its slot.
        tokio::time::sleep(PAUSE).await;
        drop(decision);
    }
    samples
}

/// Uses that the server counts when it was told of all that it is to be told of, or of as many as there must be.
pub(super) fn settled_uses(load: &Load, least: u64) -> u64 {
    until("the server knows of all uses", || Some(load.uses()).filter(|uses| *uses >= least))
}
