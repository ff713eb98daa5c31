//! The endpoints, as all workers see them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;

use super::settings::{Endpoint, Protocol, Settings};
use super::socket::Encryption;
use crate::clock;
use crate::metrics::{EndpointMetrics, Metrics};
use crate::tls::{self, ClientTls};

/// How long an endpoint that could not be connected to is left alone while there are others: each attempt may take a
/// request the whole time-out.
const PAUSE: Duration = Duration::from_secs(1);

/// The endpoints of the upstream, shared by the pools of all workers.
#[derive(Clone, Debug)]
pub struct Endpoints(pub(super) Arc<[Arc<EndpointState>]>);

/// One endpoint.
#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) endpoint: Endpoint,
    pub(super) encryption: Option<Encryption>,
    /// The same, as a part of a target.
    pub(super) authority: Authority,
    /// The value of `Host`.
    pub(super) host: HeaderValue,
    /// Requests in flight to it, from all workers.
    in_flight: AtomicUsize,
    /// Whether the last connection could be made: only changes are logged.
    up: AtomicBool,
    /// When one that is not up is tried again; microseconds, as the clock has it.
    again: AtomicU64,
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
        let tls = store(settings)?;
        let shared = |endpoint| Arc::new(EndpointState::new(endpoint, tls.as_ref(), metrics));
        Ok(Self(settings.endpoints.iter().map(shared).collect()))
    }

    /// The endpoints of another configuration. Those that are in both, and encrypted the same, stay what they are: what is
    /// in flight to them stays counted.
    ///
    /// # Errors
    /// [`tls::Error`] when an endpoint is encrypted and a file for that is of no use.
    pub fn changed(&self, old: &Settings, new: &Settings, metrics: &Metrics) -> Result<Self, tls::Error> {
        let is_same = (&old.tls, old.protocol) == (&new.tls, new.protocol);
        let known = self.tls().filter(|_| is_same).cloned();
        let tls = known.map_or_else(|| store(new), |tls| Ok(Some(tls)))?;
        let shared = |endpoint: &Endpoint| {
            let stays =
                |shared: &&Arc<EndpointState>| shared.endpoint == *endpoint && (is_same || endpoint.tls.is_none());
            let known = self.0.iter().find(stays);
            known.map_or_else(|| Arc::new(EndpointState::new(endpoint, tls.as_ref(), metrics)), Arc::clone)
        };
        Ok(Self(new.endpoints.iter().map(shared).collect()))
    }

    /// How connections are encrypted; nothing when none is.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.0.iter().find_map(|shared| shared.encryption.as_ref()).map(|encryption| &encryption.store)
    }

    /// Their names in metrics.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|shared| &*shared.endpoint.authority)
    }

    /// The endpoint with the fewest requests in flight that was not `tried`, counted from `start` among equals. One that
    /// could not be connected to is the last, but for one request in each [`PAUSE`].
    pub(super) fn least_busy(&self, start: usize, tried: &[usize]) -> Option<usize> {
        let count = self.0.len();
        let candidates = (0..count).map(|offset| (start + offset) % count).filter(|index| !tried.contains(index));
        let busy = |shared: &EndpointState| (shared.is_paused(), shared.in_flight.load(Ordering::Relaxed));
        let chosen = candidates.min_by_key(|index| busy(&self.0[*index]))?;
        if !self.0[chosen].up.load(Ordering::Relaxed) {
            self.0[chosen].pause();
        }
        Some(chosen)
    }

    /// Counts a request in.
    pub(super) fn enter(&self, index: usize) -> InFlight {
        self.0[index].in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { endpoints: self.clone(), index }
    }
}

/// How encrypted connections are made, when any endpoint has them.
fn store(settings: &Settings) -> Result<Option<Arc<ClientTls>>, tls::Error> {
    let protocols: &[&[u8]] = match settings.protocol {
        Protocol::Http1 => &[b"http/1.1"],
        Protocol::Http2 => &[b"h2"],
    };
    let encrypted = settings.endpoints.iter().any(|endpoint| endpoint.tls.is_some());
    encrypted.then(|| ClientTls::open(&settings.tls, protocols).map(Arc::new)).transpose()
}

impl EndpointState {
    fn new(endpoint: &Endpoint, tls: Option<&Arc<ClientTls>>, metrics: &Metrics) -> Self {
        Self {
            encryption: tls.zip(endpoint.tls.as_ref()).map(|(store, name)| Encryption::new(store, name)),
            authority: endpoint.authority.parse().expect("the configuration holds valid authorities"),
            host: HeaderValue::from_str(&endpoint.authority).expect("the configuration holds valid authorities"),
            in_flight: AtomicUsize::new(0),
            up: AtomicBool::new(true),
            again: AtomicU64::new(0),
            metrics: metrics.endpoint(&endpoint.authority),
            endpoint: endpoint.clone(),
        }
    }

    /// Whether it was not to be connected to a moment ago.
    fn is_paused(&self) -> bool {
        !self.up.load(Ordering::Relaxed) && clock::now().0 < self.again.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        self.again.store(clock::now().after(PAUSE).0, Ordering::Relaxed);
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
        self.pause();
        if self.up.swap(false, Ordering::Relaxed) {
            tracing::warn!(endpoint = %self.endpoint.authority, %error, "the upstream cannot be reached");
        }
    }
}

impl InFlight {
    pub(super) fn shared(&self) -> &EndpointState {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::ClientSettings;
    use crate::upstream::settings::Timeouts;

    fn endpoints(count: u16) -> Endpoints {
        let endpoint = |port| Endpoint { host: "h".into(), port, authority: format!("h:{port}"), tls: None };
        let second = Duration::from_secs(1);
        let settings = Settings {
            endpoints: (1..=count).map(endpoint).collect(),
            protocol: Protocol::Http1,
            tls: ClientSettings::default(),
            timeouts: Timeouts { connect: second, response: second, response_idle: second, exchange: second },
        };
        Endpoints::new(&settings, &Metrics::new()).unwrap()
    }

    #[test]
    fn one_that_cannot_be_reached_is_left_alone_while_there_are_others() {
        let endpoints = endpoints(2);
        let _busy = endpoints.enter(1);
        assert_eq!(endpoints.least_busy(0, &[]), Some(0), "the one with fewer requests");
        endpoints.0[0].unreachable(&io::ErrorKind::TimedOut.into());
        assert!((0..10).all(|_| endpoints.least_busy(0, &[]) == Some(1)));
        assert_eq!(endpoints.least_busy(0, &[1]), Some(0), "unless there is no other");
        endpoints.0[0].again.store(0, Ordering::Relaxed);
        assert_eq!(endpoints.least_busy(0, &[]), Some(0), "one request tries it again");
        assert_eq!(endpoints.least_busy(0, &[]), Some(1), "and only one");
        endpoints.0[0].reached();
        assert_eq!(endpoints.least_busy(0, &[]), Some(0));
    }
}
