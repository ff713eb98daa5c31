//! Metrics of the upstream and its endpoints.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::edge::UpstreamTimeouts;
use super::registration::{counter, counters, gauge, gauges};

/// `upstream_requests_total{endpoint,result}`, `upstream_endpoint_up{endpoint}`, `upstream_ejections_total{endpoint,reason}`,
/// `upstream_panic` and `upstream_retries_total`.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    requests: IntCounterVec,
    up: IntGaugeVec,
    ejections: IntCounterVec,
    retries: IntCounter,
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
    /// 1 while requests go to the endpoint: the last attempt to connect succeeded, and it is not ejected; else 0.
    pub up: IntGauge,
    /// Ejections of all endpoints, and the name of this one in them.
    ejections: (IntCounterVec, String),
    /// Requests that were sent again because a pooled connection closed without a response; of all endpoints together.
    pub retries: IntCounter,
    /// Expired time-outs, of all endpoints together.
    pub timeouts: UpstreamTimeouts,
}

const UP: &str = "1 while requests go to the endpoint: it can be connected to, and is not ejected; else 0";
const EJECTIONS: &str = "Ejections of endpoints, by their reason";
const RETRIES: &str = "Requests sent again because a pooled connection closed without a response";
const PANIC: &str = "1 while requests also go to ejected endpoints, because too many fail; else 0";

impl UpstreamMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            requests: counters(r, "upstream_requests_total", "Requests forwarded", &["endpoint", "result"]),
            up: gauges(r, "upstream_endpoint_up", UP, "endpoint"),
            ejections: counters(r, "upstream_ejections_total", EJECTIONS, &["endpoint", "reason"]),
            retries: counter(r, "upstream_retries_total", RETRIES),
            panic: gauge(r, "upstream_panic", PANIC),
        }
    }

    pub(super) fn endpoint(&self, name: &str, timeouts: &UpstreamTimeouts) -> EndpointMetrics {
        let result = |result| self.requests.with_label_values(&[name, result]);
        EndpointMetrics {
            ok: result("ok"),
            connect_failed: result("connect_failed"),
            bad_response: result("bad_response"),
            timed_out: result("timed_out"),
            up: self.up.with_label_values(&[name]),
            ejections: (self.ejections.clone(), name.to_owned()),
            retries: self.retries.clone(),
            timeouts: timeouts.clone(),
        }
    }

    pub(super) fn remove_endpoint(&self, name: &str) {
        if let Err(error) = self.up.remove_label_values(&[name]) {
            tracing::debug!(%error, name, "the removed endpoint had no metric");
        }
    }
}

impl EndpointMetrics {
    /// Counts an ejection. Ejections are rare, so the counter is looked up.
    pub fn count_ejection(&self, reason: &str) {
        let (ejections, name) = &self.ejections;
        ejections.with_label_values(&[name.as_str(), reason]).inc();
    }
}
