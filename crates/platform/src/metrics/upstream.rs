//! Metrics of the upstreams and their endpoints.

use std::sync::Arc;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::conventions::{ClientConventions, ClientDurations};
use super::edge::TimeoutMetrics;
use super::latency::{Latency, LatencyCollector};
use super::registration::WAIT_BUCKETS;
use super::retries::{self, RetryMetrics};

metrics! {
    /// Families of all upstreams.
    struct Families {
        /// Requests forwarded
        counters "upstream_requests_total" { upstream, endpoint, result } => requests;
        /// Active checks, by their result
        counters "upstream_checks_total" { upstream, endpoint, result } => checks;
        /// 1 while requests go to the endpoint: it can be connected to, is not ejected, and its checks do not fail
        gauges "upstream_endpoint_up" { upstream, endpoint } => up;
        /// 1 while requests avoid the endpoint, because it has asked for a pause with Retry-After; else 0
        gauges "upstream_endpoint_paused" { upstream, endpoint } => paused;
        /// Ejections of endpoints, by their reason
        counters "upstream_ejections_total" { upstream, reason } => ejections;
        /// Requests not sent again because the budget of retries was exhausted
        counters "upstream_retries_refused_total" { upstream } => retries_refused;
        /// Requests refused because the upstream had as many in flight as it may have
        counters "upstream_requests_refused_total" { upstream } => requests_refused;
        /// Requests in flight to the endpoint
        gauges "upstream_in_flight" { upstream, endpoint } => in_flight;
        /// Open connections to the endpoint
        gauges "upstream_connections" { upstream, endpoint } => connections;
        /// Requests that wait for a connection to the endpoint
        gauges "upstream_waiting" { upstream, endpoint } => waiting;
        /// Requests refused because no connection was free, by the reason
        counters "upstream_wait_refusals_total" { upstream, endpoint, reason } => wait_refusals;
        /// Time that requests waited for a free connection; those that did not wait are not counted
        histograms "upstream_connection_wait_seconds" { upstream } in WAIT_BUCKETS => connection_wait;
        /// 1 while requests also go to ejected endpoints, because too many fail; else 0
        gauges "upstream_panic" { upstream } => panic;
    }
}

/// Reasons of ejections. Each upstream has a counter for each from the start, so that the first one is an increase.
/// There is none for each endpoint: an upstream may have thousands.
const EJECTION_REASONS: [&str; 4] = ["server_errors", "gateway_errors", "connect_failures", "timeouts"];

/// Metrics of all upstreams.
#[derive(Clone, Debug)]
pub(super) struct UpstreamFamilies {
    families: Families,
    retries_by_reason: IntCounterVec,
    latency: LatencyCollector,
    /// Metrics of the semantic conventions; none unless configured.
    pub(super) conventions: Option<ClientConventions>,
}

/// Metrics of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    all: UpstreamFamilies,
    /// Name of the upstream.
    upstream: Arc<str>,
    timeouts: TimeoutMetrics,
    /// 1 while requests also go to endpoints that are ejected, because too many fail; else 0.
    pub panic: IntGauge,
    /// Requests that were sent again.
    pub retries: RetryMetrics,
    /// Requests that were not sent again because the budget was exhausted.
    pub retries_refused: IntCounter,
    /// Requests that were refused because as many were in flight as may be.
    pub requests_refused: IntCounter,
}

/// Metrics of one upstream endpoint.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct EndpointMetrics {
    pub ok: IntCounter,
    pub connect_failed: IntCounter,
    pub bad_response: IntCounter,
    pub timed_out: IntCounter,
    /// 1 while requests go to the endpoint: the last attempt to connect succeeded, it is not ejected, and its active
    /// checks do not fail; else 0.
    pub up: IntGauge,
    /// 1 while requests avoid the endpoint because it has asked for a pause, as of the last look of the maintenance;
    /// else 0.
    pub paused: IntGauge,
    /// Ejections of the endpoints of all upstreams, and the name of its own.
    ejections: (IntCounterVec, Arc<str>),
    /// Active checks that passed.
    check_ok: IntCounter,
    /// Active checks that failed.
    check_failed: IntCounter,
    /// Requests in flight, as of the last look of the maintenance.
    pub in_flight: IntGauge,
    /// Open connections, as of the same time.
    pub connections: IntGauge,
    /// Requests that wait for a connection, as of the same time.
    pub waiting: IntGauge,
    /// Requests that were refused because as many as may waited for a connection.
    pub refused_queue_full: IntCounter,
    /// Requests that were refused because they had waited for a connection for too long.
    pub refused_timeout: IntCounter,
    /// Seconds that requests waited for a connection; of the upstream's endpoints together.
    pub connection_wait: Histogram,
    /// Time from the end of a request to the head of its response.
    pub latency: Arc<Latency>,
    /// Expired time-outs, of all upstreams together.
    pub timeouts: TimeoutMetrics,
    /// Durations by the semantic conventions; none unless configured.
    pub client_durations: Option<ClientDurations>,
}

impl UpstreamFamilies {
    pub(super) fn register(r: &Registry) -> Self {
        let latency = LatencyCollector::new();
        r.register(Box::new(latency.clone())).expect("each name is registered once");
        Self { families: Families::register(r), retries_by_reason: retries::register(r), latency, conventions: None }
    }

    /// The metrics of an upstream.
    pub(super) fn upstream(&self, name: &str, timeouts: &TimeoutMetrics) -> UpstreamMetrics {
        EJECTION_REASONS.iter().for_each(|reason| drop(self.families.ejections.with_label_values(&[name, reason])));
        UpstreamMetrics {
            panic: self.families.panic.with_label_values(&[name]),
            retries: RetryMetrics::new(&self.retries_by_reason, name),
            retries_refused: self.families.retries_refused.with_label_values(&[name]),
            requests_refused: self.families.requests_refused.with_label_values(&[name]),
            all: self.clone(),
            upstream: name.into(),
            timeouts: timeouts.clone(),
        }
    }
}

impl UpstreamMetrics {
    /// The metrics of an endpoint. Its counters have the label of its source, the entry of the configuration, so that
    /// their number is bounded while addresses come and go; its gauges have its own.
    pub fn endpoint(&self, source: &str, label: &str) -> EndpointMetrics {
        let Self { all, upstream, timeouts, .. } = self;
        let families = &all.families;
        let result = |result| families.requests.with_label_values(&[&**upstream, source, result]);
        let check = |result| families.checks.with_label_values(&[&**upstream, source, result]);
        let refused = |reason| families.wait_refusals.with_label_values(&[&**upstream, source, reason]);
        let gauge = |gauges: &IntGaugeVec| gauges.with_label_values(&[&**upstream, label]);
        EndpointMetrics {
            waiting: gauge(&families.waiting),
            refused_queue_full: refused("queue_full"),
            refused_timeout: refused("timeout"),
            connection_wait: families.connection_wait.with_label_values(&[&**upstream]),
            ok: result("ok"),
            connect_failed: result("connect_failed"),
            bad_response: result("bad_response"),
            timed_out: result("timed_out"),
            up: gauge(&families.up),
            paused: gauge(&families.paused),
            ejections: (families.ejections.clone(), Arc::clone(upstream)),
            check_ok: check("ok"),
            check_failed: check("failed"),
            in_flight: gauge(&families.in_flight),
            connections: gauge(&families.connections),
            latency: all.latency.endpoint(upstream, label),
            client_durations: all.conventions.as_ref().map(|conventions| conventions.server(source)),
            timeouts: timeouts.clone(),
        }
    }

    /// Removes the gauges of an endpoint that is gone. The counters of its source stay, as counters must not fall.
    pub fn remove_endpoint(&self, label: &str) {
        let families = &self.all.families;
        for gauge in [&families.up, &families.paused, &families.in_flight, &families.connections, &families.waiting] {
            if let Err(error) = gauge.remove_label_values(&[&*self.upstream, label]) {
                tracing::debug!(%error, label, "the removed endpoint had no metric");
            }
        }
        self.all.latency.remove(&self.upstream, label);
    }

    /// Removes the gauge and the histogram of an upstream that is gone. The counters stay.
    pub fn remove(&self) {
        let Self { all: UpstreamFamilies { families, .. }, upstream, .. } = self;
        let removed = families.panic.remove_label_values(&[upstream]);
        if let Err(error) = removed.and(families.connection_wait.remove_label_values(&[upstream])) {
            tracing::debug!(%error, upstream = &**upstream, "the removed upstream had no metric");
        }
    }
}

impl EndpointMetrics {
    /// Counts an active check.
    pub fn count_check(&self, ok: bool) {
        if ok { self.check_ok.inc() } else { self.check_failed.inc() }
    }

    /// Counts an ejection for one of the reasons. Ejections are rare, so the counter is looked up.
    pub fn count_ejection(&self, reason: &str) {
        debug_assert!(EJECTION_REASONS.contains(&reason), "{reason} is counted from the start");
        let (ejections, upstream) = &self.ejections;
        ejections.with_label_values(&[&**upstream, reason]).inc();
    }
}
