//! The endpoints, as all workers see them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::HeaderValue;

use super::settings::{Endpoint, Settings};
use super::stream::Encryption;
use crate::metrics::{EndpointMetrics, Metrics};
use crate::tls::{self, ClientStore};

/// The endpoints of the upstream, shared by the pools of all workers.
#[derive(Clone, Debug)]
pub struct Endpoints(pub(super) Arc<[Shared]>);

/// One endpoint.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) encryption: Option<Encryption>,
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
    ///
    /// # Errors
    /// [`tls::Error`] when an endpoint is encrypted and a file for that is of no use.
    pub fn new(settings: &Settings, metrics: &Metrics) -> Result<Self, tls::Error> {
        let encrypted = settings.endpoints.iter().any(|endpoint| endpoint.tls.is_some());
        let tls = encrypted.then(|| ClientStore::open(&settings.tls, &[b"http/1.1"]).map(Arc::new)).transpose()?;
        let shared = |endpoint: &Endpoint| Shared {
            host: HeaderValue::from_str(&endpoint.authority).expect("the configuration holds valid authorities"),
            in_flight: AtomicUsize::new(0),
            up: AtomicBool::new(true),
            metrics: metrics.endpoint(&endpoint.authority),
            encryption: tls.as_ref().zip(endpoint.tls.as_ref()).map(|(store, name)| Encryption::new(store, name)),
            endpoint: endpoint.clone(),
        };
        Ok(Self(settings.endpoints.iter().map(shared).collect()))
    }

    /// How connections are encrypted; nothing when none is.
    pub fn tls(&self) -> Option<&Arc<ClientStore>> {
        self.0.iter().find_map(|shared| shared.encryption.as_ref()).map(|encryption| &encryption.store)
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
