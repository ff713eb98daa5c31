//! Metrics of the upstream and its endpoints.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::edge::UpstreamTimeouts;
use super::latency::{Latency, LatencyCollector};
use super::registration::{counter, counters, gauge, gauges};

/// `upstream_requests_total{endpoint,result}`, `upstream_endpoint_up{endpoint}`, `upstream_ejections_total{endpoint,reason}`,
/// `upstream_checks_total{endpoint,result}`,
/// `upstream_in_flight{endpoint}`, `upstream_connections{endpoint}`, `upstream_latency_seconds{endpoint}`, `upstream_panic` and
/// `upstream_retries_total`.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    requests: IntCounterVec,
    up: IntGaugeVec,
    ejections: IntCounterVec,
    retries: IntCounter,
    checks: IntCounterVec,
    in_flight: IntGaugeVec,
    connections: IntGaugeVec,
    latency: LatencyCollector,
    /// 1 while requests also go to endpoints that are ejected, because too many fail; else 0.
    pub panic: IntGauge,
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
    /// Ejections of all endpoints, and the source of this one, their label.
    ejections: (IntCounterVec, String),
    /// Active checks that passed.
    check_ok: IntCounter,
    /// Active checks that failed.
    check_failed: IntCounter,
    /// Requests in flight, as of the last look of the maintenance.
    pub in_flight: IntGauge,
    /// Open connections, as of the same time.
    pub connections: IntGauge,
    /// Time from a request to the head of its response.
    pub latency: Arc<Latency>,
    /// Requests that were sent again because a pooled connection closed without a response; of all endpoints together.
    pub retries: IntCounter,
    /// Expired time-outs, of all endpoints together.
    pub timeouts: UpstreamTimeouts,
}

const UP: &str =
    "1 while requests go to the endpoint: it can be connected to, is not ejected, and its checks do not fail";
const EJECTIONS: &str = "Ejections of endpoints, by their reason";
const RETRIES: &str = "Requests sent again because a pooled connection closed without a response";
const PANIC: &str = "1 while requests also go to ejected endpoints, because too many fail; else 0";

impl UpstreamMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let latency = LatencyCollector::new();
        r.register(Box::new(latency.clone())).expect("each name is registered once");
        Self {
            latency,
            checks: counters(r, "upstream_checks_total", "Active checks, by their result", &["endpoint", "result"]),
            in_flight: gauges(r, "upstream_in_flight", "Requests in flight to the endpoint", "endpoint"),
            connections: gauges(r, "upstream_connections", "Open connections to the endpoint", "endpoint"),
            requests: counters(r, "upstream_requests_total", "Requests forwarded", &["endpoint", "result"]),
            up: gauges(r, "upstream_endpoint_up", UP, "endpoint"),
            ejections: counters(r, "upstream_ejections_total", EJECTIONS, &["endpoint", "reason"]),
            retries: counter(r, "upstream_retries_total", RETRIES),
            panic: gauge(r, "upstream_panic", PANIC),
        }
    }

    pub(super) fn endpoint(&self, source: &str, label: &str, timeouts: &UpstreamTimeouts) -> EndpointMetrics {
        let result = |result| self.requests.with_label_values(&[source, result]);
        EndpointMetrics {
            ok: result("ok"),
            connect_failed: result("connect_failed"),
            bad_response: result("bad_response"),
            timed_out: result("timed_out"),
            up: self.up.with_label_values(&[label]),
            ejections: (self.ejections.clone(), source.to_owned()),
            check_ok: self.checks.with_label_values(&[source, "ok"]),
            check_failed: self.checks.with_label_values(&[source, "failed"]),
            in_flight: self.in_flight.with_label_values(&[label]),
            connections: self.connections.with_label_values(&[label]),
            latency: self.latency.endpoint(label),
            retries: self.retries.clone(),
            timeouts: timeouts.clone(),
        }
    }

    pub(super) fn remove_endpoint(&self, name: &str) {
        for gauge in [&self.up, &self.in_flight, &self.connections] {
            if let Err(error) = gauge.remove_label_values(&[name]) {
                tracing::debug!(%error, name, "the removed endpoint had no metric");
            }
        }
        self.latency.remove(name);
    }
}

impl EndpointMetrics {
    /// Counts an active check.
    pub fn count_check(&self, ok: bool) {
        if ok { self.check_ok.inc() } else { self.check_failed.inc() }
    }

    /// Counts an ejection. Ejections are rare, so the counter is looked up.
    pub fn count_ejection(&self, reason: &str) {
        let (ejections, source) = &self.ejections;
        ejections.with_label_values(&[source.as_str(), reason]).inc();
    }
}
