//! Endpoints of the upstream: their state is shared by all workers.
//!
//! State of an endpoint:
//!
//! | state | event | next state |
//! |---|---|---|
//! | up | connecting failed | down, paused for [`PAUSE`] |
//! | down, paused | the pause is over | down: one request tries it, and pauses it again for the others |
//! | down | connecting failed | down, paused |
//! | down | connected | up |

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

/// Pause before an endpoint that is down is tried again while there are others: each attempt may cost a request the
/// whole connect time-out.
const PAUSE: Duration = Duration::from_secs(1);

/// Endpoints of the upstream, shared by the pools of all workers.
#[derive(Clone, Debug)]
pub struct Endpoints(pub(super) Arc<[Arc<EndpointState>]>);

/// One endpoint and its state.
#[derive(Debug)]
pub(super) struct EndpointState {
    /// Address, as configured.
    pub(super) address: Endpoint,
    pub(super) encryption: Option<Encryption>,
    /// Authority of targets (HTTP/2).
    pub(super) authority: Authority,
    /// Value of `Host` (HTTP/1.1).
    pub(super) host: HeaderValue,
    /// Requests in flight to the endpoint, of all workers.
    in_flight: AtomicUsize,
    /// True if the last attempt to connect succeeded.
    up: AtomicBool,
    /// End of the pause; microseconds, as the clock has it.
    paused_until: AtomicU64,
    pub(super) metrics: EndpointMetrics,
}

/// Request in flight to an endpoint. Counted until dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    endpoints: Endpoints,
    index: usize,
}

impl Endpoints {
    /// Endpoints of the configuration, all of them up.
    ///
    /// # Errors
    /// [`tls::Error`] when an endpoint has TLS and a file for that cannot be used.
    pub fn new(settings: &Settings, metrics: &Metrics) -> Result<Self, tls::Error> {
        let tls = open_tls(settings)?;
        let state = |endpoint| Arc::new(EndpointState::new(endpoint, tls.as_ref(), metrics));
        Ok(Self(settings.endpoints.iter().map(state).collect()))
    }

    /// Endpoints of a changed configuration. Those that are in both, with the same TLS, keep their state, so that their
    /// requests in flight stay counted.
    ///
    /// # Errors
    /// [`tls::Error`] when an endpoint has TLS and a file for that cannot be used.
    pub fn changed(&self, old: &Settings, new: &Settings, metrics: &Metrics) -> Result<Self, tls::Error> {
        let is_same = (&old.tls, old.protocol) == (&new.tls, new.protocol);
        let tls = self.tls().filter(|_| is_same).cloned();
        let tls = tls.map_or_else(|| open_tls(new), |tls| Ok(Some(tls)))?;
        let state = |endpoint: &Endpoint| {
            let stays = |state: &&Arc<EndpointState>| state.address == *endpoint && (is_same || endpoint.tls.is_none());
            let existing = self.0.iter().find(stays);
            existing.map_or_else(|| Arc::new(EndpointState::new(endpoint, tls.as_ref(), metrics)), Arc::clone)
        };
        Ok(Self(new.endpoints.iter().map(state).collect()))
    }

    /// TLS of the connections; none when no endpoint has it.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.0.iter().find_map(|state| state.encryption.as_ref()).map(|encryption| &encryption.store)
    }

    /// Labels of the endpoints in metrics.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|state| &*state.address.authority)
    }

    /// Finds the endpoint with the fewest requests in flight that was not `tried`; among equals the first from `start` on.
    /// An endpoint that is down comes last, except for one request after each [`PAUSE`].
    pub(super) fn least_busy(&self, start: usize, tried: &[usize]) -> Option<usize> {
        let count = self.0.len();
        let candidates = (0..count).map(|offset| (start + offset) % count).filter(|index| !tried.contains(index));
        let load = |state: &EndpointState| (state.is_paused(), state.in_flight.load(Ordering::Relaxed));
        let chosen = candidates.min_by_key(|index| load(&self.0[*index]))?;
        // This request tries the endpoint; the others leave it alone until it is known whether it is up again.
        if !self.0[chosen].up.load(Ordering::Relaxed) {
            self.0[chosen].pause();
        }
        Some(chosen)
    }

    /// Counts a request to an endpoint.
    pub(super) fn enter(&self, index: usize) -> InFlight {
        self.0[index].in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { endpoints: self.clone(), index }
    }
}

/// Opens the files of TLS, when any endpoint has it.
fn open_tls(settings: &Settings) -> Result<Option<Arc<ClientTls>>, tls::Error> {
    let protocols: &[&[u8]] = match settings.protocol {
        Protocol::Http1 => &[b"http/1.1"],
        Protocol::Http2 => &[b"h2"],
    };
    let has_tls = settings.endpoints.iter().any(|endpoint| endpoint.tls.is_some());
    has_tls.then(|| ClientTls::open(&settings.tls, protocols).map(Arc::new)).transpose()
}

impl EndpointState {
    fn new(endpoint: &Endpoint, tls: Option<&Arc<ClientTls>>, metrics: &Metrics) -> Self {
        Self {
            encryption: tls.zip(endpoint.tls.as_ref()).map(|(store, name)| Encryption::new(store, name)),
            authority: endpoint.authority.parse().expect("the configuration holds valid authorities"),
            host: HeaderValue::from_str(&endpoint.authority).expect("the configuration holds valid authorities"),
            in_flight: AtomicUsize::new(0),
            up: AtomicBool::new(true),
            paused_until: AtomicU64::new(0),
            metrics: metrics.endpoint(&endpoint.authority),
            address: endpoint.clone(),
        }
    }

    fn is_paused(&self) -> bool {
        !self.up.load(Ordering::Relaxed) && clock::now().0 < self.paused_until.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        self.paused_until.store(clock::now().after(PAUSE).0, Ordering::Relaxed);
    }

    /// Notes that a connection could be made. Logs only a change.
    pub(super) fn mark_up(&self) {
        self.metrics.up.set(1);
        if !self.up.swap(true, Ordering::Relaxed) {
            tracing::info!(endpoint = %self.address.authority, "the upstream can be reached again");
        }
    }

    /// Notes that a connection could not be made. Logs only a change.
    pub(super) fn mark_down(&self, error: &io::Error) {
        self.metrics.connect_failed.inc();
        self.metrics.up.set(0);
        self.pause();
        if self.up.swap(false, Ordering::Relaxed) {
            tracing::warn!(endpoint = %self.address.authority, %error, "the upstream cannot be reached; requests go to other endpoints, if there are any");
        }
    }
}

impl InFlight {
    pub(super) fn endpoint(&self) -> &EndpointState {
        &self.endpoints.0[self.index]
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.endpoint().in_flight.fetch_sub(1, Ordering::Relaxed);
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
    fn endpoint_that_is_down_is_avoided_while_there_are_others() {
        let endpoints = endpoints(2);
        let _busy = endpoints.enter(1);
        assert_eq!(endpoints.least_busy(0, &[]), Some(0), "the one with fewer requests");
        endpoints.0[0].mark_down(&io::ErrorKind::TimedOut.into());
        assert!((0..10).all(|_| endpoints.least_busy(0, &[]) == Some(1)));
        assert_eq!(endpoints.least_busy(0, &[1]), Some(0), "unless there is no other");
        endpoints.0[0].paused_until.store(0, Ordering::Relaxed);
        assert_eq!(endpoints.least_busy(0, &[]), Some(0), "one request tries it again");
        assert_eq!(endpoints.least_busy(0, &[]), Some(1), "and only one");
        endpoints.0[0].mark_up();
        assert_eq!(endpoints.least_busy(0, &[]), Some(0));
    }
}
