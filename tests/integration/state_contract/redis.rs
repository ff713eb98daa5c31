//! The Redis state under the contract: on a single server, and on a Cluster that concurrent cases share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use state::redis::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings};
use state::{Redis as RedisState, State};
use tokio::runtime::EnterGuard;

use super::runtime::{block_on, enter};
use super::{CONCURRENT, QUOTA};
use crate::support::redis::{Cluster, Redis};
use crate::support::until;

/// Settings with generous time-outs, for cases that choose the times.
pub(super) fn settings(servers: Servers) -> Settings {
    Settings {
        servers,
        login: Login::default(),
        sentinel_login: Login::default(),
        database: 0,
        tls: None,
        prefix: "keygate".into(),
        quota: QUOTA,
        concurrent: CONCURRENT,
        plans: state::LimitPlans::NONE,
        deadline: Duration::from_secs(20),
        lease: Duration::from_secs(60),
        max_loss: Duration::from_secs(60),
        on_unavailable: OnUnavailable::Deny,
        durability: Durability { replicas: 0, timeout: Duration::from_secs(1) },
        clock: Clock::Caller,
    }
}

/// Sets a test up by a gateway of its own, which is closed then: one with the same settings, but for time-outs that
/// a busy machine keeps.
pub(super) fn set_up<T>(settings: &Settings, create: impl AsyncFnOnce(&State) -> T) -> T {
    let (deadline, lease) = (Duration::from_secs(20), Duration::from_secs(80));
    let patient = Settings { deadline, lease, on_unavailable: OnUnavailable::Deny, ..settings.clone() };
    block_on(async {
        let state = State::Redis(RedisState::open(patient).await.unwrap());
        let created = create(&state).await;
        state.close().await;
        created
    })
}

/// Waits for the first heartbeat of a gateway. It reads and writes beside the requests of a test that counts commands,
/// and a gateway that is not registered admits nothing offline.
pub(super) fn await_registration(server: &Redis) {
    until("the gateway is registered", || (server.cli::<u64>(&["HLEN", "keygate:{gateways}"]) > 0).then_some(()));
}

pub(super) fn at(server: &Redis) -> Address {
    Address { host: "127.0.0.1".into(), port: server.port() }
}

/// Enters the runtime of the cases, and starts a server.
pub(super) fn enter_with_server() -> (EnterGuard<'static>, Redis) {
    (enter(), Redis::start())
}

/// A state on a server of its own.
pub(crate) fn on_a_server() -> (State, Redis) {
    let server = Redis::start();
    (gateway_on(&server), server)
}

/// The state of a gateway on a server.
pub(super) fn gateway_on(server: &Redis) -> State {
    open_patiently(Servers::Single(at(server)))
}

/// A state whose changes have the time that many at once take on a busy machine.
fn open_patiently(servers: Servers) -> State {
    let durability = Durability { replicas: 0, timeout: Duration::from_secs(10) };
    State::Redis(block_on(RedisState::open(Settings { durability, ..settings(servers) })).unwrap())
}

/// A state on a Cluster of three primaries. Cases that run at the same time share it: one takes seconds to start.
pub(super) fn on_a_cluster() -> (State, Arc<Cluster>) {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    let cluster = shared.upgrade().unwrap_or_else(|| Arc::new(Cluster::start(3, 0)));
    *shared = Arc::downgrade(&cluster);
    drop(shared);
    let nodes = cluster.nodes().iter().map(at).collect();
    (open_patiently(Servers::Cluster(nodes)), cluster)
}
