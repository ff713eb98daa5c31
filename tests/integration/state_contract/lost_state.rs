//! Histories of changes, losses, restores and acceptance, over both variants of the state:
//!
//! - a key that was valid in a state that was lost is never refused as unknown;
//! - no change is acknowledged into a state that is not kept;
//! - nothing is refused after a loss that an ordinary failover makes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use domain::budget::Cost;
use domain::clock;
use domain::key::KeyDigest;
use domain::quota::Quota;
use domain::refusal::Refusal;
use proptest::prelude::*;
use state::redis::{Clock, Servers, Settings};
use state::{
    Change, ChangeError, DecideRequest, Decision, Embedded, Redis as RedisState, RouteAccess, State, embedded,
};

use super::fixture::{Fixture, HeldKey, new_fixture};
use super::redis::{at, settings};
use super::runtime::block_on;
use super::{CONCURRENT, QUOTA};
use crate::support::eventually;
use crate::support::redis::Redis;

/// A quota that no history meets.
const PLENTY: Quota = Quota { requests: 1_000_000, per: Duration::from_secs(1), burst: 1_000_000, strict: false };

/// Time in which a gateway finds that the state is back.
const FOUND_WITHIN: Duration = Duration::from_secs(10);

/// A step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A key is created, and is known from then on.
    Create,
    /// Another key is revoked.
    Revoke,
    /// A copy of the whole state is kept.
    Keep,
    /// The state is emptied.
    Empty,
    /// The kept copy takes the place of the state.
    Restore,
    /// The operator accepts the state that is there.
    Accept,
    /// Every key is decided.
    Decide,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Create),
        2 => Just(Step::Revoke),
        2 => Just(Step::Keep),
        1 => Just(Step::Empty),
        2 => Just(Step::Restore),
        1 => Just(Step::Accept),
        4 => Just(Step::Decide),
    ];
    proptest::collection::vec(step, 1..25)
}

/// The state that is there, as a history knows it.
#[derive(Clone, Default)]
struct Model {
    /// Live keys of the state, by their places.
    live: BTreeMap<usize, ()>,
    /// Changes so far.
    changes: u64,
}

/// The records of a Redis, by `DUMP`.
type Copy = Vec<(Vec<u8>, Vec<u8>)>;

fn copy(server: &Redis) -> Copy {
    let names: Vec<Vec<u8>> = server.cli(&["KEYS", "*"]);
    let dump = |name: Vec<u8>| {
        let content = server.query(::redis::cmd("DUMP").arg(&name)).unwrap();
        (name, content)
    };
    names.into_iter().map(dump).collect()
}

fn restore(server: &Redis, copy: &Copy) {
    server.cli::<()>(&["FLUSHALL"]);
    for (name, content) in copy {
        // Gateways write their signs of life meanwhile.
        server.query::<()>(::redis::cmd("RESTORE").arg(name).arg(0).arg(content).arg("REPLACE")).unwrap();
    }
}

/// A state under a gateway that remembers it, and what holds its data.
struct World {
    /// None while the file of an embedded state is closed.
    state: Option<State>,
    data: Data,
    memory: tempfile::TempDir,
}

enum Data {
    Redis(Box<Redis>),
    /// File of an embedded state.
    File(PathBuf),
}

/// Copy of the whole data.
enum Kept {
    Records(Copy),
    File(Vec<u8>),
}

impl World {
    async fn on_redis() -> Self {
        let server = Redis::start();
        // All losses are beyond what a failover may lose.
        let settings = Settings {
            max_loss: Duration::ZERO,
            quota: PLENTY,
            clock: Clock::Server,
            ..settings(Servers::Single(at(&server)))
        };
        let (state, memory) = (RedisState::open(settings).await.unwrap(), tempfile::tempdir().unwrap());
        let state = State::Redis(state);
        state.remember_in(memory.path()).await.unwrap();
        Self { state: Some(state), data: Data::Redis(Box::new(server)), memory }
    }

    async fn embedded() -> Self {
        let memory = tempfile::tempdir().unwrap();
        let data = Data::File(memory.path().join("state.db"));
        let mut world = Self { state: None, data, memory };
        world.reopen().await;
        world
    }

    fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    async fn keep(&mut self) -> Kept {
        match &self.data {
            Data::Redis(server) => Kept::Records(copy(server)),
            Data::File(path) => {
                let path = path.clone();
                self.close().await;
                let content = std::fs::read(path).unwrap();
                self.reopen().await;
                Kept::File(content)
            }
        }
    }

    /// Puts a copy in the place of the data; nothing without one.
    async fn replace(&mut self, kept: Option<&Kept>) {
        match (&self.data, kept) {
            (Data::Redis(server), None) => server.cli::<()>(&["FLUSHALL"]),
            (Data::Redis(server), Some(Kept::Records(copy))) => restore(server, copy),
            (Data::File(path), kept) => {
                let path = path.clone();
                self.close().await;
                std::fs::remove_file(&path).unwrap();
                if let Some(Kept::File(content)) = kept {
                    std::fs::write(&path, content).unwrap();
                }
                self.reopen().await;
            }
            (Data::Redis(_), Some(Kept::File(_))) => unreachable!("a copy is one of the same data"),
        }
    }

    async fn close(&mut self) {
        self.state.take().unwrap().close().await;
    }

    /// Opens the file, as the next process does.
    async fn reopen(&mut self) {
        let Data::File(path) = &self.data else { return };
        let settings = embedded::Settings {
            path: path.clone(),
            quota: PLENTY,
            concurrent: CONCURRENT,
            plans: state::LimitPlans::NONE,
        };
        let mut opened = None;
        eventually("the lock is free", || {
            opened = Embedded::open(&settings).ok();
            opened.is_some()
        });
        let state = State::Embedded(opened.unwrap());
        // An error where it is not the state that was served: then it serves nothing.
        drop(state.remember_in(self.memory.path()).await);
        self.state = Some(state);
    }
}

async fn decide(state: &State, key: &HeldKey) -> Option<Decision> {
    let HeldKey { id, digest } = key;
    let request = DecideRequest {
        digest,
        id: Some(*id),
        access: RouteAccess::Everyone,
        cost: Cost::ONE,
        client: None,
        now: clock::now(),
    };
    state.decide(request).await.ok()
}

fn is_unknown(decision: Option<&Decision>) -> bool {
    matches!(decision, Some(Decision::Denied { refusal: Refusal::Unknown, .. }))
}

fn is_lost(error: &ChangeError) -> bool {
    matches!(error, ChangeError::Unavailable(state::StorageError::Redis(state::Unavailable::Lost)))
}

fn carry_out(steps: &[Step], begin: impl Future<Output = World>) {
    block_on(async {
        let mut world = begin.await;
        let fixture: Fixture = new_fixture(world.state()).await;
        let mut keys: Vec<HeldKey> = Vec::new();
        // The state that is there, and the number of changes of the one that was served.
        let (mut there, mut served) = (Some(Model::default()), 0);
        let mut kept: Option<(Kept, Model)> = None;
        let mut revoked = BTreeSet::new();
        let mut restored = Instant::now();
        for step in steps {
            let is_right = there.as_ref().is_some_and(|model| model.changes >= served);
            match step {
                Step::Create => {
                    let (key, digest) = super::fixture::new_key(fixture.tag, fixture.org, fixture.user);
                    let id = key.id;
                    let made = world.state().change(Change::CreateKey { key, digest }).await;
                    match (&mut there, is_right) {
                        (Some(model), true) => {
                            made.unwrap();
                            model.live.insert(keys.len(), ());
                            model.changes += 1;
                            served = model.changes;
                            keys.push(HeldKey { id, digest });
                        }
                        _ => assert!(is_lost(&made.unwrap_err()), "no change of a state that is not kept"),
                    }
                }
                Step::Revoke => {
                    let Some(model) = &mut there else { continue };
                    let Some((place, ())) = model.live.first_key_value() else { continue };
                    let place = *place;
                    let change = Change::RevokeKey { key: keys[place].id, at: clock::now() };
                    let made = world.state().change(change).await;
                    if is_right {
                        made.unwrap();
                        revoked.insert(place);
                        model.live.remove(&place);
                        model.changes += 1;
                        served = model.changes;
                    } else {
                        assert!(is_lost(&made.unwrap_err()));
                    }
                }
                Step::Keep => {
                    kept = match there.clone() {
                        Some(model) => Some((world.keep().await, model)),
                        None => None,
                    }
                }
                Step::Empty => {
                    world.replace(None).await;
                    there = None;
                }
                Step::Restore => {
                    let Some((copy, model)) = &kept else { continue };
                    world.replace(Some(copy)).await;
                    restored = Instant::now();
                    there = Some(model.clone());
                }
                Step::Accept => {
                    // An empty state has no user of the fixture; what is accepted stays accepted.
                    if there.is_none() {
                        continue;
                    }
                    world.state().accept().await.unwrap();
                    served = there.as_ref().map_or(0, |model| model.changes);
                    // A copy of before has the identity of before.
                    kept = None;
                }
                Step::Decide => {
                    if !is_right {
                        // A reading: without one, known keys are admitted for up to half a second.
                        let made = world.state().change(Change::suspend_org(fixture.org, false)).await;
                        assert!(is_lost(&made.unwrap_err()));
                    }
                    for (place, key) in keys.iter().enumerate() {
                        let mut decision = decide(world.state(), key).await;
                        // A state that is back is found by the next of the readings, twice a second.
                        while is_right && decision.is_none() {
                            assert!(restored.elapsed() < FOUND_WITHIN, "a restored state is not found");
                            tokio::time::sleep(Duration::from_millis(10)).await;
                            decision = decide(world.state(), key).await;
                        }
                        assert!(is_right || decision.is_none(), "nothing of a lost state is decided: {decision:?}");
                        let is_live = there.as_ref().is_some_and(|model| model.live.contains_key(&place));
                        if is_right && is_live {
                            // A revocation that the gateway knows outlasts the state that has lost it.
                            let is_kept = revoked.contains(&place);
                            let is_admitted = matches!(decision, Some(Decision::Admitted(_)));
                            assert!(is_admitted || is_kept, "{decision:?}");
                        }
                        assert!(!is_unknown(decision.as_ref()) || is_right, "a key of a lost state is not unknown");
                    }
                }
            }
        }
        world.close().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn lost_redis_admits_nothing_refuses_nothing_for_good_and_takes_no_change(steps in steps()) {
        carry_out(&steps, World::on_redis());
    }

    #[test]
    fn lost_file_admits_nothing_refuses_nothing_for_good_and_takes_no_change(steps in steps()) {
        carry_out(&steps, World::embedded());
    }
}

/// A gateway that has found its state missing admits requests again when the state is back.
#[test]
fn restored_redis_is_served_again() {
    carry_out(&[Step::Create, Step::Keep, Step::Empty, Step::Decide, Step::Restore, Step::Decide], World::on_redis());
}

/// An ordinary failover loses changes of the last moments, a thousand times.
#[test]
fn losses_of_ordinary_failovers_refuse_nothing() {
    let server = Redis::start();
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { clock: Clock::Server, ..settings(Servers::Single(at(&server))) };
    block_on(async {
        let state = State::Redis(RedisState::open(settings).await.unwrap());
        state.remember_in(directory.path()).await.unwrap();
        let fixture = new_fixture(&state).await;
        let key = fixture.key(&state).await;
        let before = copy(&server);
        for round in 0..1000 {
            state.change(Change::suspend_org(fixture.org, round % 2 == 1)).await.unwrap();
            restore(&server, &before);
            state.change(Change::suspend_org(fixture.org, false)).await.unwrap();
            if round % 50 == 0 {
                assert!(decide(&state, &key).await.is_some(), "round {round}");
            }
        }
        state.close().await;
    });
}

/// A gateway that finds Redis only after its start remembers nothing, and believes those that miss their state.
#[test]
fn gateway_without_a_memory_takes_no_state_that_others_miss_for_a_new_one() {
    let server = Redis::start();
    let open = async || {
        let settings = Settings { clock: Clock::Server, ..settings(Servers::Single(at(&server))) };
        State::Redis(RedisState::open(settings).await.unwrap())
    };
    block_on(async {
        let served = open().await;
        let fixture = new_fixture(&served).await;
        let key = fixture.key(&served).await;
        server.cli::<()>(&["FLUSHALL"]);
        assert!(decide(&served, &key).await.is_none());
        let late = open().await;
        assert!(decide(&late, &key).await.is_none(), "the key is not unknown");
        late.close().await;
        served.close().await;
    });
}

#[test]
fn lost_embedded_state_takes_no_change_and_its_keys_are_not_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let open = || {
        Embedded::open(&embedded::Settings {
            path: path.clone(),
            quota: QUOTA,
            concurrent: CONCURRENT,
            plans: state::LimitPlans::NONE,
        })
    };
    block_on(async {
        let state = State::Embedded(open().unwrap());
        state.remember_in(directory.path()).await.unwrap();
        let fixture = new_fixture(&state).await;
        let key = fixture.key(&state).await;
        std::fs::remove_file(&path).unwrap();
        let made = state.change(Change::suspend_org(fixture.org, true)).await;
        assert!(is_lost(&made.unwrap_err()));
        assert!(decide(&state, &key).await.is_none());
        assert!(decide(&state, &HeldKey { digest: KeyDigest::of(b"any"), ..key }).await.is_none());
        state.close().await;
        drop(state);

        let mut opened = None;
        eventually("the lock is free", || {
            opened = open().ok();
            opened.is_some()
        });
        let state = State::Embedded(opened.unwrap());
        state.remember_in(directory.path()).await.unwrap_err();
        assert!(decide(&state, &key).await.is_none());
        state.accept().await.unwrap();
        assert!(is_unknown(decide(&state, &key).await.as_ref()), "the accepted state has no keys");
        new_fixture(&state).await;
        state.close().await;
    });
}
