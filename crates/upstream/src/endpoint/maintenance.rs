//! Maintenance of the endpoints, by one task of the process: ends ejections, probes the endpoints that could not be
//! connected to, so that no request has to find out, and runs the active checks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::ejection::chance;
use super::endpoints::{EndpointState, Endpoints};
use super::health::{self, CheckReport, HealthSettings};
use crate::connection::socket::connect_socket;
use domain::clock::{self, Micros};

/// Time between two looks at the endpoints.
const INTERVAL: Duration = Duration::from_millis(100);

/// Checks and probes of one upstream that are under way at most: each is a connection. Those of another upstream do
/// not wait for them.
const MAX_RUNNING: usize = 32;

/// Maintains the endpoints of the upstreams that `current` returns. Never completes.
pub async fn maintain(current: impl Fn() -> Arc<[Endpoints]>) {
    let mut running: HashMap<Arc<str>, JoinSet<()>> = HashMap::new();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let upstreams = current();
        running.retain(|name, _| upstreams.iter().any(|upstream| upstream.name == *name));
        for endpoints in &*upstreams {
            maintain_upstream(endpoints, running.entry(Arc::clone(&endpoints.name)).or_default());
        }
    }
}

/// Looks once at all endpoints of an upstream. `running` are its checks and probes.
fn maintain_upstream(endpoints: &Endpoints, running: &mut JoinSet<()>) {
    while running.try_join_next().is_some() {}
    let now = clock::steady();
    for endpoint in endpoints.tick(now) {
        running.spawn(probe(endpoints.clone(), endpoint));
    }
    for endpoint in &*endpoints.list {
        start_check(endpoints, endpoint, now, running);
        endpoint.show_load(now);
    }
}

/// Tries to connect to an endpoint, as a request would.
async fn probe(endpoints: Endpoints, endpoint: Arc<EndpointState>) {
    let connecting = connect_socket(&endpoint.address, endpoint.encryption.as_ref());
    let connected = matches!(tokio::time::timeout(endpoints.connect_timeout, connecting).await, Ok(Ok(_)));
    endpoints.end_probe(&endpoint, connected, clock::steady());
}

/// Starts an active check that is due, unless too much is under way: then the next look starts it.
fn start_check(endpoints: &Endpoints, endpoint: &Arc<EndpointState>, now: Micros, running: &mut JoinSet<()>) {
    let Some(settings) = &endpoints.health else { return endpoints.reset_checks(endpoint) };
    if running.len() < MAX_RUNNING && endpoint.check.take(settings.interval, chance(), now) {
        running.spawn(check(endpoints.clone(), Arc::clone(endpoint), Arc::clone(settings)));
    }
}

async fn check(endpoints: Endpoints, endpoint: Arc<EndpointState>, settings: Arc<HealthSettings>) {
    let exchange = health::check(&endpoint.address, endpoint.encryption.as_ref(), endpoints.protocol, &settings);
    let (ok, detail) = match tokio::time::timeout(settings.timeout, exchange).await {
        Ok(Ok(answer)) => (true, answer),
        Ok(Err(error)) => (false, error.to_string()),
        Err(_) => (false, "no response in time".to_owned()),
    };
    endpoints.end_check(&endpoint, CheckReport { time: Micros::wall(), ok, detail }, &settings);
}

impl EndpointState {
    /// Sets the metrics that are read now and then, and keeps the latencies.
    fn show_load(&self, now: Micros) {
        self.metrics.in_flight.set(i64::try_from(self.in_flight.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
        self.metrics.connections.set(i64::try_from(self.connections.count()).unwrap_or(i64::MAX));
        self.metrics.waiting.set(i64::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
        self.metrics.paused.set(i64::from(self.pause.lasts(now)));
        self.recent_latency.keep(|| self.metrics.latency.counts(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::health::every_second;
    use crate::settings::tests::settings;
    use platform::metrics::Metrics;

    #[tokio::test(flavor = "current_thread")]
    async fn checks_that_are_under_way_are_bounded() {
        let health = every_second();
        let settings = crate::Settings { health: Some(Arc::new(health)), ..settings(MAX_RUNNING + 8) };
        let endpoints = Endpoints::new(&settings, &Metrics::new()).unwrap();
        let mut running = JoinSet::new();
        // All are due at the first look.
        maintain_upstream(&endpoints, &mut running);
        assert_eq!(running.len(), MAX_RUNNING);
    }
}
