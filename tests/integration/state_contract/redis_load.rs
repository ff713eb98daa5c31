//! A load on a Redis state during an outage, with the outcome of every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::clock;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::redis::Settings;
use state::{DecideRequest, Decision, Redis as RedisState, State, Unavailable};
use tokio::task::JoinHandle;

use super::fixture::{Fixture, HeldKey, new_fixture};
use super::redis::set_up;
use super::runtime::block_on;
use crate::support::decide::decide_request;
use crate::support::redis::Redis;
use crate::support::until;

/// A bucket that no load empties, and that is never full under load, so that a token taken twice or not at all shows.
pub(super) const PLENTY: Quota =
    Quota { requests: 1_000_000, per: Duration::from_secs(1), burst: 1_000_000_000, strict: false };
/// Keys, each used by one client.
const KEYS: usize = 8;
/// Duration of a request.
const PAUSE: Duration = Duration::from_millis(2);

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Admitted,
    /// Admitted offline.
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

/// Clients that send requests until the load ends.
pub(super) struct Load {
    pub(super) state: Arc<State>,
    pub(super) fixture: Fixture,
    pub(super) keys: Vec<HeldKey>,
    over: Arc<AtomicBool>,
    seen: tokio::sync::watch::Receiver<(u64, Outcome)>,
    clients: Vec<JoinHandle<Vec<Sample>>>,
}

impl Load {
    /// Opens a state, and waits until requests are admitted.
    pub(super) fn start(settings: Settings) -> Self {
        let (fixture, keys) = set_up(&settings, async |state| {
            let fixture = new_fixture(state).await;
            let mut keys = Vec::new();
            for _ in 0..KEYS {
                keys.push(fixture.key(state).await);
            }
            (fixture, keys)
        });
        let state = Arc::new(State::Redis(block_on(RedisState::open(settings)).unwrap()));
        let over = Arc::new(AtomicBool::new(false));
        let (seeing, seen) = tokio::sync::watch::channel((0, Outcome::Admitted));
        let seeing = Arc::new(seeing);
        let clients = keys.iter().map(|key| {
            let client = client(Arc::clone(&state), *key, Arc::clone(&over), Arc::clone(&seeing));
            tokio::spawn(client)
        });
        let clients = clients.collect();
        let load = Self { state, fixture, keys, over, seen, clients };
        load.see(20, |outcome| outcome == Outcome::Admitted);
        load
    }

    /// Waits until `count` requests in a row, ended from now on, have the outcome. Returns the time
    /// until the first of them.
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
        // Sentinels on a machine that stalled do nothing for half a minute, and an election may have to be repeated.
        if block_on(async { tokio::time::timeout(Duration::from_secs(240), sees).await }).is_err() {
            panic!("not seen within 240 s; the last outcome is {:?}", self.seen.borrow().1);
        }
        first
    }

    /// Ends the load. Returns all requests, in the order of their beginnings.
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
        let org = format!("keygate:{{{}}}:org", self.fixture.tag.as_str());
        until("no slot is taken", || {
            let live: Vec<u8> = server.try_cli(&["HGET", &org, "live"]).ok()?;
            let taken = f64::from_le_bytes(live.get(8..16)?.try_into().unwrap());
            (taken == 0.0).then_some(())
        });
    }

    /// Uses of all keys, as the server counts them.
    pub(super) fn uses(&self) -> u64 {
        // The deadline may be shorter than a busy machine takes to answer.
        let uses = |key: &HeldKey| until("Redis answers", || block_on(self.state.key(key.id)).ok()).unwrap().uses;
        self.keys.iter().map(uses).sum()
    }
}

async fn client(
    state: Arc<State>,
    key: HeldKey,
    over: Arc<AtomicBool>,
    seeing: Arc<tokio::sync::watch::Sender<(u64, Outcome)>>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let asked = state.decide(DecideRequest { id: Some(key.id), ..decide_request(&key.digest, clock::now()) });
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

/// Waits until the server counts at least so many uses, and returns them.
pub(super) fn settled_uses(load: &Load, least: u64) -> u64 {
    until("all uses are reported", || Some(load.uses()).filter(|uses| *uses >= least))
}
