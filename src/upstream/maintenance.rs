//! Maintenance of the endpoints, by one task of the process: ends ejections, and probes the endpoints that could not be
//! connected to, so that no request has to find out.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::endpoint::{EndpointState, Endpoints};
use super::socket::connect_socket;
use crate::clock;

/// Time between two looks at the endpoints.
const INTERVAL: Duration = Duration::from_millis(100);

/// Maintains the endpoints that `current` returns. Never completes.
pub async fn maintain(current: impl Fn() -> Endpoints) {
    let mut probes = JoinSet::new();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let endpoints = current();
        while probes.try_join_next().is_some() {}
        for endpoint in endpoints.tick(clock::steady()) {
            probes.spawn(probe(endpoints.clone(), endpoint));
        }
    }
}

/// Tries to connect to an endpoint, as a request would.
async fn probe(endpoints: Endpoints, endpoint: Arc<EndpointState>) {
    let connecting = connect_socket(&endpoint.address, endpoint.encryption.as_ref());
    let connected = matches!(tokio::time::timeout(endpoints.connect_timeout, connecting).await, Ok(Ok(_)));
    endpoints.end_probe(&endpoint, connected, clock::steady());
}
