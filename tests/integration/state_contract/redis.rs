//! The Redis state: the contract over a server and over a Cluster, each of which all cases of a variant share.

use std::time::Duration;

use keygate::state::redis::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings};
use keygate::state::{Redis as RedisState, State};

use super::runtime::block_on;
use super::{CONCURRENT, QUOTA};
use crate::redis::Redis;

/// Settings for these servers that have no hurry, at times that the cases choose.
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
        deadline: Duration::from_secs(5),
        lease: Duration::from_secs(60),
        on_unavailable: OnUnavailable::Deny,
        durability: Durability { replicas: 0, timeout: Duration::from_secs(1) },
        clock: Clock::Asker,
    }
}

pub(super) fn at(server: &Redis) -> Address {
    Address { host: "127.0.0.1".into(), port: server.port() }
}

/// A state on a server of its own.
pub(super) fn on_a_server() -> (State, Redis) {
    let server = Redis::start();
    let state = block_on(RedisState::open(settings(Servers::Single(at(&server))))).unwrap();
    (State::Redis(state), server)
}
