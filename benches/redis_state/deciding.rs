//! Gateways without their HTTP: each a state of its own on a thread of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::budget::Cost;
use domain::clock;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::quota::{MAX_TOKENS, Quota};
use state::redis::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings};
use state::{Change, DecideRequest, Decision, Key, Org, Redis as State, RouteAccess, User};

use crate::support::redis::Redis;

/// A bucket that no benchmark empties.
pub(crate) const PLENTY: Quota =
    Quota { requests: MAX_TOKENS, per: Duration::from_secs(1), burst: MAX_TOKENS, strict: false };
/// A concurrency that none reaches half of.
pub(crate) const CONCURRENT: u32 = 1000;

/// Keys of one organization.
#[derive(Clone)]
pub(crate) struct Directory {
    port: u16,
    keys: Arc<Vec<Held>>,
}

/// A key as its holder has it.
pub(crate) struct Held {
    id: KeyId,
    digest: KeyDigest,
    text: String,
}

impl Directory {
    pub(crate) fn new(server: &Redis, keys: usize) -> Self {
        let port = server.port();
        let keys = run(async { create(&open(port).await, keys).await });
        Self { port, keys: Arc::new(keys) }
    }

    /// The keys in the clear.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.text.clone()).collect()
    }

    /// The ids of so many keys; one comes again where there are fewer.
    pub(crate) fn keys(&self, count: usize) -> Vec<KeyId> {
        self.keys.iter().cycle().take(count).map(|key| key.id).collect()
    }

    /// Has so many gateways make so many decisions in all; how many they make per second.
    pub(crate) fn decide(&self, gateways: usize, at_once: usize, decisions: usize) -> f64 {
        let each = decisions / gateways;
        let barrier = std::sync::Barrier::new(gateways);
        let times: Vec<Duration> = std::thread::scope(|scope| {
            let gateway = || {
                run(async {
                    let state = Arc::new(open(self.port).await);
                    // Once through all keys, so that all are known.
                    self.ask(&state, at_once, self.keys.len()).await;
                    barrier.wait();
                    let started = Instant::now();
                    self.ask(&state, at_once, each).await;
                    let took = started.elapsed();
                    state.close().await;
                    took
                })
            };
            let gateways: Vec<_> = (0..gateways).map(|_| scope.spawn(gateway)).collect();
            gateways.into_iter().map(|gateway| gateway.join().unwrap()).collect()
        });
        let longest = times.into_iter().max().unwrap();
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let decisions = (each * gateways) as f64;
        decisions / longest.as_secs_f64()
    }

    async fn ask(&self, state: &Arc<State>, at_once: usize, decisions: usize) {
        let asking: Vec<_> = (0..at_once)
            .map(|first| {
                let (state, keys) = (Arc::clone(state), Arc::clone(&self.keys));
                tokio::spawn(async move {
                    for number in (first..decisions).step_by(at_once) {
                        let key = &keys[number % keys.len()];
                        let ask = DecideRequest {
                            digest: &key.digest,
                            id: Some(key.id),
                            access: RouteAccess::Everyone,
                            cost: Cost::ONE,
                            client: None,
                            now: clock::now(),
                        };
                        let decision = state.decide(ask).await.unwrap();
                        assert!(matches!(decision, Decision::Admitted(_)), "{decision:?}");
                    }
                })
            })
            .collect();
        for task in asking {
            task.await.unwrap();
        }
    }
}

/// As a worker of the gateway runs.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn open(port: u16) -> State {
    let settings = Settings {
        servers: Servers::Single(Address { host: "127.0.0.1".into(), port }),
        login: Login::default(),
        sentinel_login: Login::default(),
        database: 0,
        tls: None,
        prefix: "keygate".into(),
        quota: PLENTY,
        concurrent: CONCURRENT,
        plans: state::LimitPlans::NONE,
        deadline: Duration::from_secs(2),
        lease: Duration::from_secs(10),
        max_loss: Duration::from_secs(10),
        on_unavailable: OnUnavailable::Deny,
        durability: Durability { replicas: 0, timeout: Duration::from_secs(1) },
        clock: Clock::Server,
    };
    State::open(settings).await.unwrap()
}

async fn create(state: &State, keys: usize) -> Vec<Held> {
    let (tag, now) = (OrgTag::generate().unwrap(), clock::now());
    let org = Org::new(OrgId::generate(), tag, "bench", now);
    let permissions = vec!["queries:read".parse().unwrap()];
    let user = User { permissions, ..User::new(UserId::generate(), org.id, "bench@example.com", now) };
    let (org_id, user_id) = (org.id, user.id);
    state.change(Change::CreateOrg(org)).await.unwrap();
    state.change(Change::CreateUser(user)).await.unwrap();
    let mut made = Vec::with_capacity(keys);
    for _ in 0..keys {
        let plain = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
        let (id, digest, text) = (plain.id(), plain.digest(), plain.expose().expose().to_owned());
        let key = Key::new(id, org_id, user_id, "bench", now);
        state.change(Change::CreateKey { key, digest }).await.unwrap();
        made.push(Held { id, digest, text });
    }
    made
}
