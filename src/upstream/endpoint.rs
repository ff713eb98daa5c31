//! The endpoints, as all workers see them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::HeaderValue;

use super::settings::Endpoint;
use crate::metrics::{EndpointMetrics, Metrics};

/// The endpoints of the upstream, shared by the pools of all workers.
#[derive(Clone, Debug)]
pub struct Endpoints(pub(super) Arc<[Arc<Shared>]>);

/// One endpoint.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    /// The value of `Host`.
    pub(super) host: HeaderValue,
    /// Requests in flight to it, from all workers.
    in_flight: AtomicUsize,
    /// Whether the last connection could be made: only changes are logged.
    up: AtomicBool,
    pub(super) metrics: EndpointMetrics,
}

/// A request in flight to an endpoint; counted until dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    endpoints: Endpoints,
    index: usize,
}

impl Endpoints {
    /// The endpoints of the configuration.
    pub fn new(endpoints: &[Endpoint], metrics: &Metrics) -> Self {
        Self(endpoints.iter().map(|endpoint| Arc::new(Shared::new(endpoint, metrics))).collect())
    }

    /// The endpoints of another configuration. Those that are in both stay what they are: what is in flight to them stays
    /// counted.
    #[must_use]
    pub fn changed(&self, endpoints: &[Endpoint], metrics: &Metrics) -> Self {
        let shared = |endpoint: &Endpoint| {
            let known = self.0.iter().find(|shared| shared.endpoint == *endpoint);
            known.map_or_else(|| Arc::new(Shared::new(endpoint, metrics)), Arc::clone)
        };
        Self(endpoints.iter().map(shared).collect())
    }

    /// Their names in metrics.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|shared| &*shared.endpoint.authority)
    }

    /// The endpoint with the fewest requests in flight that was not `tried`, counted from `start` among equals.
    pub(super) fn least_busy(&self, start: usize, tried: &[usize]) -> Option<usize> {
        let count = self.0.len();
        let candidates = (0..count).map(|offset| (start + offset) % count).filter(|index| !tried.contains(index));
        candidates.min_by_key(|index| self.0[*index].in_flight.load(Ordering::Relaxed))
    }

    /// Counts a request in.
    pub(super) fn enter(&self, index: usize) -> InFlight {
        self.0[index].in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { endpoints: self.clone(), index }
    }
}

impl Shared {
    fn new(endpoint: &Endpoint, metrics: &Metrics) -> Self {
        Self {
            host: HeaderValue::from_str(&endpoint.authority).expect("the configuration holds valid authorities"),
            in_flight: AtomicUsize::new(0),
            up: AtomicBool::new(true),
            metrics: metrics.endpoint(&endpoint.authority),
            endpoint: endpoint.clone(),
        }
    }

    /// A connection could be made.
    pub(super) fn reached(&self) {
        self.metrics.up.set(1);
        if !self.up.swap(true, Ordering::Relaxed) {
            tracing::info!(endpoint = %self.endpoint.authority, "the upstream can be reached again");
        }
    }

    /// A connection could not be made.
    pub(super) fn unreachable(&self, error: &io::Error) {
        self.metrics.connect_failed.inc();
        self.metrics.up.set(0);
        if self.up.swap(false, Ordering::Relaxed) {
            tracing::warn!(endpoint = %self.endpoint.authority, %error, "the upstream cannot be reached");
        }
    }
}

impl InFlight {
    pub(super) fn shared(&self) -> &Shared {
        &self.endpoints.0[self.index]
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared().in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
