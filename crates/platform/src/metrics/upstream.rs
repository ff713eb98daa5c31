//! Metrics of the upstreams and their endpoints.

use std::sync::Arc;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::conventions::{ClientConventions, ClientDurations};
use super::edge::UpstreamTimeouts;
use super::latency::{Latency, LatencyCollector};
use super::registration::{WAIT_BUCKETS, counters, gauges, histograms};
use super::retries::{self, RetryMetrics};

/// Metrics of all upstreams: `upstream_requests_total{upstream,endpoint,result}`, `upstream_endpoint_up{upstream,endpoint}`,
/// `upstream_ejections_total{upstream,endpoint,reason}`, `upstream_checks_total{upstream,endpoint,result}`,
/// `upstream_in_flight{upstream,endpoint}`, `upstream_connections{upstream,endpoint}`,
/// `upstream_latency_seconds{upstream,endpoint}`, `upstream_waiting{upstream,endpoint}`,
/// `upstream_wait_refusals_total{upstream,endpoint,reason}`, `upstream_connection_wait_seconds{upstream}`,
/// `upstream_endpoint_paused{upstream,endpoint}`, `upstream_panic{upstream}`, `upstream_retries_total{upstream}`,
/// `upstream_retries_by_reason_total{upstream,reason}`, `upstream_retries_refused_total{upstream}` and
/// `upstream_requests_refused_total{upstream}`.
#[derive(Clone, Debug)]
pub(super) struct UpstreamFamilies {
    requests: IntCounterVec,
    up: IntGaugeVec,
    paused: IntGaugeVec,
    ejections: IntCounterVec,
    retries_by_reason: IntCounterVec,
    retries_refused: IntCounterVec,
    requests_refused: IntCounterVec,
    checks: IntCounterVec,
    in_flight: IntGaugeVec,
    connections: IntGaugeVec,
    waiting: IntGaugeVec,
    wait_refusals: IntCounterVec,
    connection_wait: HistogramVec,
    latency: LatencyCollector,
    panic: IntGaugeVec,
    /// Metrics of the semantic conventions; none unless configured.
    pub(super) conventions: Option<ClientConventions>,
}

/// Metrics of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    families: UpstreamFamilies,
    /// Name of the upstream.
    upstream: Arc<str>,
    timeouts: UpstreamTimeouts,
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
    /// 1 while requests go to the endpoint: the last attempt to connect succeeded, it is not ejected, and its active checks
    /// do not fail; else 0.
    pub up: IntGauge,
    /// 1 while requests avoid the endpoint because it has asked for a pause, as of the last look of the maintenance;
    /// else 0.
    pub paused: IntGauge,
    /// Ejections of all endpoints, and the labels of this one: its upstream and its source.
    ejections: (IntCounterVec, Arc<str>, String),
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
    pub timeouts: UpstreamTimeouts,
    /// Durations by the semantic conventions; none unless configured.
    pub client_durations: Option<ClientDurations>,
}

const REQUESTS: (&str, &str) = ("upstream_requests_total", "Requests forwarded");
const CHECKS: (&str, &str) = ("upstream_checks_total", "Active checks, by their result");
const UP: &str =
    "1 while requests go to the endpoint: it can be connected to, is not ejected, and its checks do not fail";
const PAUSED: &str = "1 while requests avoid the endpoint, because it has asked for a pause with Retry-After; else 0";
const EJECTIONS: &str = "Ejections of endpoints, by their reason";
const RETRIES_REFUSED: &str = "Requests not sent again because the budget of retries was exhausted";
const REQUESTS_REFUSED: &str = "Requests refused because the upstream had as many in flight as it may have";
const WAITING: &str = "Requests that wait for a connection to the endpoint";
const WAIT_REFUSALS: &str = "Requests refused because no connection was free, by the reason";
const CONNECTION_WAIT: &str =
    "Time that requests waited for a free connection; those that did not wait are not counted";
const PANIC: &str = "1 while requests also go to ejected endpoints, because too many fail; else 0";

impl UpstreamFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        let latency = LatencyCollector::new();
        r.register(Box::new(latency.clone())).expect("each name is registered once");
        let of_endpoint = ["upstream", "endpoint"];
        let [requests, checks] =
            [REQUESTS, CHECKS].map(|(name, help)| counters(r, name, help, &["upstream", "endpoint", "result"]));
        Self {
            latency,
            checks,
            requests,
            in_flight: gauges(r, "upstream_in_flight", "Requests in flight to the endpoint", &of_endpoint),
            connections: gauges(r, "upstream_connections", "Open connections to the endpoint", &of_endpoint),
            waiting: gauges(r, "upstream_waiting", WAITING, &of_endpoint),
            wait_refusals: counters(
                r,
                "upstream_wait_refusals_total",
                WAIT_REFUSALS,
                &["upstream", "endpoint", "reason"],
            ),
            connection_wait: histograms(
                r,
                "upstream_connection_wait_seconds",
                CONNECTION_WAIT,
                "upstream",
                WAIT_BUCKETS,
            ),
            up: gauges(r, "upstream_endpoint_up", UP, &of_endpoint),
            paused: gauges(r, "upstream_endpoint_paused", PAUSED, &of_endpoint),
            ejections: counters(r, "upstream_ejections_total", EJECTIONS, &["upstream", "endpoint", "reason"]),
            retries_by_reason: retries::register(r),
            retries_refused: counters(r, "upstream_retries_refused_total", RETRIES_REFUSED, &["upstream"]),
            requests_refused: counters(r, "upstream_requests_refused_total", REQUESTS_REFUSED, &["upstream"]),
            panic: gauges(r, "upstream_panic", PANIC, &["upstream"]),
            conventions: None,
        }
    }

    /// The metrics of an upstream.
    pub(super) fn upstream(&self, name: &str, timeouts: &UpstreamTimeouts) -> UpstreamMetrics {
        UpstreamMetrics {
            panic: self.panic.with_label_values(&[name]),
            retries: RetryMetrics::new(&self.retries_by_reason, name),
            retries_refused: self.retries_refused.with_label_values(&[name]),
            requests_refused: self.requests_refused.with_label_values(&[name]),
            families: self.clone(),
            upstream: name.into(),
            timeouts: timeouts.clone(),
        }
    }
}

impl UpstreamMetrics {
    /// The metrics of an endpoint. Its counters have the label of its source, the entry of the configuration, so that their
    /// number is bounded while addresses come and go; its gauges have its own.
    pub fn endpoint(&self, source: &str, label: &str) -> EndpointMetrics {
        let Self { families, upstream, timeouts, .. } = self;
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
            ejections: (families.ejections.clone(), Arc::clone(upstream), source.to_owned()),
            check_ok: check("ok"),
            check_failed: check("failed"),
            in_flight: gauge(&families.in_flight),
            connections: gauge(&families.connections),
            latency: families.latency.endpoint(upstream, label),
            client_durations: families.conventions.as_ref().map(|conventions| conventions.server(source)),
            timeouts: timeouts.clone(),
        }
    }

    /// Removes the gauges of an endpoint that is gone. The counters of its source stay, as counters must not fall.
    pub fn remove_endpoint(&self, label: &str) {
        let Self { families, .. } = self;
        for gauge in [&families.up, &families.paused, &families.in_flight, &families.connections, &families.waiting] {
            if let Err(error) = gauge.remove_label_values(&[&*self.upstream, label]) {
                tracing::debug!(%error, label, "the removed endpoint had no metric");
            }
        }
        self.families.latency.remove(&self.upstream, label);
    }

    /// Removes the gauge and the histogram of an upstream that is gone. The counters stay.
    pub fn remove(&self) {
        let Self { families, upstream, .. } = self;
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

    /// Counts an ejection. Ejections are rare, so the counter is looked up.
    pub fn count_ejection(&self, reason: &str) {
        let (ejections, upstream, source) = &self.ejections;
        ejections.with_label_values(&[&**upstream, source, reason]).inc();
    }
}
