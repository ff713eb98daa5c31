//! Endpoints of one upstream: their state is shared by all workers.
//!
//! - Requests read and write atomics only.
//! - An endpoint that is in two configurations, one after the other, keeps its state.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderValue, Method};

use super::balance::{BalancePolicy, Load, hash};
use super::circuit::{Circuit, RequestPermit};
use super::episode::Episode;
use super::health::{Check, HealthSettings};
use super::observed_try::ObservedTry;
use super::outlier::{Detector, Ejection};
use super::pause::Pause;
use super::recent_latency::RecentLatency;
use super::retry_budget::RetryBudget;
use crate::connection::limits::{ConnectionLimiter, OpenConnections};
use crate::connection::socket::Encryption;
use crate::settings::{Address, Endpoint, Protocol, Settings};
use platform::metrics::{EndpointMetrics, Metrics, UpstreamMetrics};
use platform::tls::{self, ClientTls};

/// Endpoints of one upstream, shared by the pools of all workers.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Name of the upstream.
    pub(crate) name: Arc<str>,
    pub(crate) list: Arc<[Arc<EndpointState>]>,
    /// Sets aside those that fail.
    pub(crate) detector: Arc<Detector>,
    /// Time-out of a connection attempt.
    pub(crate) connect_timeout: Duration,
    /// Bounds the connections of all workers.
    pub(crate) limiter: Arc<ConnectionLimiter>,
    /// Active checks; none when none are configured.
    pub(crate) health: Option<Arc<HealthSettings>>,
    pub(crate) protocol: Protocol,
    pub(crate) policy: BalancePolicy,
    /// Shares of the endpoints by their weights, in the order of the list; the largest is 1.
    pub(crate) shares: Arc<[f32]>,
    /// Retries that the workers may make.
    pub(crate) retry_budget: Arc<RetryBudget>,
    /// Bound of the requests in flight.
    pub(crate) circuit: Circuit,
    pub(crate) metrics: UpstreamMetrics,
}

/// One endpoint and its state.
#[derive(Debug)]
pub(crate) struct EndpointState {
    /// Name and address.
    pub(crate) address: Endpoint,
    /// Name of the upstream.
    pub(crate) upstream: Arc<str>,
    /// Label in logs and metrics.
    pub(crate) label: String,
    pub(crate) encryption: Option<Encryption>,
    /// Authority of targets (HTTP/2).
    pub(crate) authority: Authority,
    /// Value of `Host` (HTTP/1.1).
    pub(crate) host: HeaderValue,
    /// Requests in flight to the endpoint, of all workers.
    pub(crate) in_flight: AtomicUsize,
    /// True if the last attempt to connect succeeded.
    pub(crate) is_reachable: AtomicBool,
    /// Attempts to connect that failed, in the log.
    pub(crate) outage: Episode,
    pub(crate) ejection: Ejection,
    /// Time for which the endpoint has asked for no requests.
    pub(crate) pause: Pause,
    pub(crate) load: Load,
    /// Hash of the name, by which identities are assigned.
    pub(crate) hash: u64,
    pub(crate) check: Check,
    pub(crate) connections: Arc<OpenConnections>,
    /// Requests that wait for a connection, and would go to the endpoint first.
    pub(crate) waiting: AtomicUsize,
    pub(crate) recent_latency: RecentLatency,
    pub(crate) metrics: EndpointMetrics,
}

/// Request in flight to an endpoint. Counted until dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    endpoints: Arc<Endpoints>,
    index: usize,
    /// Counts the request at the upstream, whichever endpoint has it.
    permit: Option<RequestPermit>,
    /// The try as the metrics of the semantic conventions see it; none without them. Boxed, because it is rare.
    observed: Option<Box<ObservedTry>>,
}

impl Endpoints {
    /// Endpoints of the configuration, all of them up.
    ///
    /// # Errors
    /// [`tls::Error`] when an endpoint has TLS and a file for that cannot be used.
    pub fn new(settings: &Settings, metrics: &Metrics) -> Result<Self, tls::Error> {
        let tls = open_tls(settings)?;
        let metrics = metrics.upstream(&settings.name);
        let state = |endpoint| Arc::new(EndpointState::new(endpoint, &settings.name, tls.as_ref(), &metrics));
        Ok(Self {
            name: Arc::clone(&settings.name),
            list: settings.endpoints.iter().map(state).collect(),
            detector: Arc::new(Detector::new(settings.outlier)),
            connect_timeout: settings.timeouts.connect,
            limiter: Arc::default(),
            health: settings.health.clone(),
            protocol: settings.protocol,
            policy: settings.balance.policy,
            shares: shares(settings),
            retry_budget: Arc::new(RetryBudget::new(&settings.name)),
            circuit: Circuit::new(settings.max_requests, &settings.name),
            metrics,
        })
    }

    /// Endpoints of a changed configuration. Those that are in both, with the same TLS, keep their state, so that their
    /// requests in flight stay counted.
    ///
    /// # Errors
    /// [`tls::Error`] when an endpoint has TLS and a file for that cannot be used.
    pub fn changed(&self, old: &Settings, new: &Settings) -> Result<Self, tls::Error> {
        let is_same = (&old.tls, old.protocol) == (&new.tls, new.protocol);
        let tls = self.tls().filter(|_| is_same).cloned();
        let tls = tls.map_or_else(|| open_tls(new), |tls| Ok(Some(tls)))?;
        let ours: HashMap<Endpoint, &Arc<EndpointState>> =
            self.list.iter().map(|state| (state.address.server(), state)).collect();
        let state = |endpoint: &Endpoint| {
            let existing = ours.get(&endpoint.server()).filter(|_| is_same || endpoint.tls.is_none());
            existing.map_or_else(
                || Arc::new(EndpointState::new(endpoint, &new.name, tls.as_ref(), &self.metrics)),
                |state| Arc::clone(state),
            )
        };
        Ok(Self {
            name: Arc::clone(&new.name),
            list: new.endpoints.iter().map(state).collect(),
            detector: Arc::new(self.detector.changed(new.outlier)),
            connect_timeout: new.timeouts.connect,
            health: new.health.clone(),
            protocol: new.protocol,
            policy: new.balance.policy,
            shares: shares(new),
            circuit: self.circuit.changed(new.max_requests),
            ..self.clone()
        })
    }

    /// Returns whether these are the same ones, of a configuration that did not change them.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.list, &other.list) && Arc::ptr_eq(&self.detector, &other.detector)
    }

    /// Returns whether an upstream that the gateway cannot do without is down: each endpoint fails its active checks,
    /// which go on when no request comes any more.
    pub fn is_required_and_down(&self) -> bool {
        let is_required = self.health.as_ref().is_some_and(|health| health.required);
        is_required && self.list.iter().all(|endpoint| endpoint.ejection.fails_checks())
    }

    /// Name of the upstream.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// TLS of the connections; none when no endpoint has it.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.list.iter().find_map(|state| state.encryption.as_ref()).map(|encryption| &encryption.store)
    }

    /// Removes from the metrics what these upstreams no longer have.
    pub fn remove_metrics_unless_in(&self, upstreams: &[Self]) {
        let stays = upstreams.iter().find(|upstream| upstream.name == self.name);
        let labels: HashSet<&str> =
            stays.iter().flat_map(|stays| stays.list.iter()).map(|state| &*state.label).collect();
        for removed in self.list.iter().filter(|state| !labels.contains(&*state.label)) {
            self.metrics.remove_endpoint(&removed.label);
        }
        if stays.is_none() {
            self.metrics.remove();
        }
    }

    /// Counts a request to an endpoint.
    pub(crate) fn enter(self: &Arc<Self>, index: usize, permit: Option<RequestPermit>) -> InFlight {
        self.list[index].in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { endpoints: Arc::clone(self), index, permit, observed: None }
    }
}

fn shares(settings: &Settings) -> Arc<[f32]> {
    settings.balance.shares(settings.endpoints.iter().map(|endpoint| (&*endpoint.authority, endpoint.weight)))
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
    fn new(endpoint: &Endpoint, upstream: &Arc<str>, tls: Option<&Arc<ClientTls>>, metrics: &UpstreamMetrics) -> Self {
        let label = endpoint.label();
        let metrics = metrics.endpoint(&endpoint.source, &label);
        metrics.up.set(i64::from(endpoint.address != Address::Unresolved));
        Self {
            encryption: tls.zip(endpoint.tls.as_ref()).map(|(store, name)| Encryption::new(store, name)),
            authority: endpoint.authority.parse().expect("the configuration holds valid authorities"),
            host: HeaderValue::from_str(&endpoint.authority).expect("the configuration holds valid authorities"),
            in_flight: AtomicUsize::new(0),
            is_reachable: AtomicBool::new(true),
            outage: Episode::default(),
            ejection: Ejection::default(),
            pause: Pause::default(),
            load: Load::default(),
            hash: hash(label.as_bytes()),
            check: Check::default(),
            connections: Arc::default(),
            waiting: AtomicUsize::new(0),
            recent_latency: RecentLatency::default(),
            metrics,
            upstream: Arc::clone(upstream),
            label,
            address: endpoint.clone(),
        }
    }

    /// Sets the metric by what connections, ejection and active checks say.
    pub(crate) fn show_up(&self) {
        let is_up = self.is_reachable.load(Ordering::Relaxed) && !self.ejection.is_out();
        self.metrics.up.set(i64::from(is_up));
    }
}

impl InFlight {
    pub(crate) fn endpoint(&self) -> &EndpointState {
        &self.endpoints.list[self.index]
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Observes the try, where the metrics of the semantic conventions are configured.
    pub(crate) fn observe(&mut self, method: &Method) {
        if let Some(durations) = &self.endpoint().metrics.client_durations {
            self.observed = Some(Box::new(ObservedTry::new(method, durations)));
        }
    }

    /// The observed try; none without such metrics.
    pub(crate) fn observed(&self) -> Option<&ObservedTry> {
        self.observed.as_deref()
    }

    /// Takes the request's permit, for its next try.
    pub(crate) fn take_permit(&mut self) -> Option<RequestPermit> {
        self.permit.take()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.endpoint().in_flight.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "each request is counted once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    #[test]
    fn endpoint_that_stays_keeps_its_state_also_with_another_weight() {
        let old = settings(3);
        let endpoints = Endpoints::new(&old, &Metrics::new()).unwrap();
        let mut new = old.clone();
        new.endpoints.remove(0);
        new.endpoints[0].weight = 500;
        let changed = endpoints.changed(&old, &new).unwrap();
        assert!(Arc::ptr_eq(&changed.list[0], &endpoints.list[1]) && Arc::ptr_eq(&changed.list[1], &endpoints.list[2]));
        assert_eq!(*changed.shares, [0.5, 1.0]);
        new.protocol = Protocol::Http2;
        let changed = endpoints.changed(&old, &new).unwrap();
        assert!(Arc::ptr_eq(&changed.list[0], &endpoints.list[1]), "nothing of the state depends on the protocol");
    }
}
