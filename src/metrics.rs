//! The metrics and their handles, resolved once: counting costs an atomic addition, never a look-up by label.
//!
//! Names begin with `keygate_`, units are base units, and labels are bounded: never a key, user or organization.

mod decision;
mod edge;

use std::sync::Arc;
use std::sync::OnceLock;

use prometheus::core::Collector;
use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

pub use decision::{AuthMetrics, LimitMetrics, StateErrors, StateMetrics};
pub use edge::{ConnectionMetrics, FieldMetrics, TimeoutMetrics, TlsMetrics, UpstreamTimeouts};

/// Seconds from the request's head to the response's last byte: 0.5 ms to 60 s.
const REQUEST_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Seconds the gateway itself takes before forwarding: 5 µs to 50 ms.
const OVERHEAD_BUCKETS: &[f64] =
    &[0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05];

/// All metrics of a gateway.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    upstream_requests: IntCounterVec,
    upstream_up: IntGaugeVec,
    upstream_retries: IntCounter,
    /// What took too long on the upstream's side.
    pub upstream_timeouts: UpstreamTimeouts,
    /// Seconds from the head's arrival to its being forwarded, admission and audit included.
    pub overhead: Histogram,
    /// How credentials fared.
    pub auth: AuthMetrics,
    /// What the limits decided.
    pub limits: LimitMetrics,
    /// Requests in flight, of all organizations.
    pub in_flight: IntGauge,
    /// What the state costs.
    pub state: StateMetrics,
    /// What the journal did.
    pub audit: AuditMetrics,
    /// Requests in the middle of which the gateway failed.
    pub panics: IntCounter,
    /// Attempts with bad keys that were refused for their number.
    pub attempts_refused: IntCounter,
    /// Fields that were not passed on, because some server could misread their names.
    pub fields_dropped: FieldMetrics,
    /// Downstream connections.
    pub connections: ConnectionMetrics,
    /// What took too long.
    pub timeouts: TimeoutMetrics,
    /// Certificates of encrypted listeners.
    pub tls: TlsMetrics,
    /// Unix time of the last successful load of the configuration, seconds.
    pub config_loaded_at: Gauge,
    /// 1 when the last reload of the configuration succeeded, or there was none; else 0.
    pub config_reload_ok: IntGauge,
    /// Failed reloads of the configuration.
    pub config_reload_failures: IntCounter,
}

/// `audit_records_total{result}` and `audit_backlog`.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// Records begun and written.
    pub written: IntCounter,
    /// Records that could not be written, and whose request was refused for it.
    pub refused: IntCounter,
    /// Records that could not be written, and were dropped as configured.
    pub dropped: IntCounter,
    /// Attempts with unknown keys beyond the recorded rate.
    pub suppressed: IntCounter,
    /// Events waiting to be written or synced.
    pub backlog: IntGauge,
}

/// The metrics of one route: its counter per status, resolved at the first use of each.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    route: Arc<str>,
    vec: IntCounterVec,
    by_status: Arc<[OnceLock<IntCounter>]>,
    /// Seconds from the request's head to the response's last byte.
    pub duration: Histogram,
}

/// The metrics of one upstream endpoint.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct EndpointMetrics {
    pub ok: IntCounter,
    pub connect_failed: IntCounter,
    pub bad_response: IntCounter,
    pub timed_out: IntCounter,
    /// 1 when the last connection could be made, else 0.
    pub up: IntGauge,
    /// Requests sent again after a pooled connection died unanswered; of all endpoints.
    pub retries: IntCounter,
    /// Of all endpoints.
    pub timeouts: UpstreamTimeouts,
}

impl Metrics {
    /// A new set, in a registry of its own.
    pub fn new() -> Self {
        let registry = Registry::new_custom(Some("keygate".into()), None).expect("the prefix is a valid name");
        let r = &registry;
        let auth = counters(r, "auth_total", "Credentials, by how they fared", &["result"]);
        let timeouts = counters(r, "timeouts_total", "What took too long", &["kind"]);
        let build = gauges(r, "build_info", "1, with the version as a label", "version");
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let overhead = HistogramOpts::new("gateway_overhead_seconds", "From the head's arrival to its being forwarded")
            .buckets(OVERHEAD_BUCKETS.to_vec());
        Self {
            requests: counters(r, "requests_total", "Requests answered", &["route", "code"]),
            durations: histograms(r, "request_duration_seconds", "From head to last byte", "route", REQUEST_BUCKETS),
            upstream_requests: counters(r, "upstream_requests_total", "Requests forwarded", &["endpoint", "result"]),
            upstream_up: gauges(r, "upstream_endpoint_up", "1 when the last connection could be made", "endpoint"),
            upstream_retries: registered(
                r,
                IntCounter::new(
                    "upstream_retries_total",
                    "Requests sent again after a pooled connection died unanswered",
                ),
            ),
            upstream_timeouts: UpstreamTimeouts::new(&timeouts),
            overhead: registered(r, Histogram::with_opts(overhead)),
            auth: AuthMetrics::new(&auth),
            limits: LimitMetrics::new(r),
            in_flight: registered(r, IntGauge::new("in_flight", "Requests in flight")),
            state: StateMetrics::new(r),
            audit: AuditMetrics::new(r),
            panics: registered(r, IntCounter::new("panics_total", "Requests in which the gateway failed")),
            attempts_refused: registered(
                r,
                IntCounter::new("attempts_refused_total", "Attempts with bad keys refused for their number"),
            ),
            fields_dropped: FieldMetrics::new(r),
            connections: ConnectionMetrics::new(r),
            timeouts: TimeoutMetrics::new(&timeouts),
            tls: TlsMetrics::new(r),
            config_loaded_at: registered(
                r,
                Gauge::new("config_last_reload_success_timestamp_seconds", "When the configuration was last loaded"),
            ),
            config_reload_ok: registered(
                r,
                IntGauge::new("config_last_reload_successful", "1 when the last reload succeeded, else 0"),
            ),
            config_reload_failures: registered(r, IntCounter::new("config_reload_failures_total", "Failed reloads")),
            registry,
        }
    }

    /// The metrics of a route; the name must come from the configuration, never from a request.
    pub fn route(&self, name: &str) -> RouteMetrics {
        RouteMetrics {
            route: name.into(),
            vec: self.requests.clone(),
            by_status: (100..600).map(|_| OnceLock::new()).collect(),
            duration: self.durations.with_label_values(&[name]),
        }
    }

    /// The metrics of an endpoint.
    pub fn endpoint(&self, name: &str) -> EndpointMetrics {
        let result = |result| self.upstream_requests.with_label_values(&[name, result]);
        EndpointMetrics {
            ok: result("ok"),
            connect_failed: result("connect_failed"),
            bad_response: result("bad_response"),
            timed_out: result("timed_out"),
            up: self.upstream_up.with_label_values(&[name]),
            retries: self.upstream_retries.clone(),
            timeouts: self.upstream_timeouts.clone(),
        }
    }

    /// Says nothing more of whether an endpoint is up: it is none any more. What was counted of it stays.
    pub fn remove_endpoint(&self, name: &str) {
        if let Err(error) = self.upstream_up.remove_label_values(&[name]) {
            tracing::debug!(%error, name, "an endpoint had no metric");
        }
    }

    /// The text exposition format, version 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes every write");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl AuditMetrics {
    fn new(r: &Registry) -> Self {
        let records = counters(r, "audit_records_total", "Audit records, by how they fared", &["result"]);
        let result = |result| records.with_label_values(&[result]);
        Self {
            written: result("written"),
            refused: result("refused"),
            dropped: result("dropped"),
            suppressed: result("suppressed"),
            backlog: registered(r, IntGauge::new("audit_backlog", "Audit events not yet written or synced")),
        }
    }
}

impl RouteMetrics {
    /// Counts an answer with this status.
    pub fn count_response(&self, status: http::StatusCode) {
        let Some(cell) = self.by_status.get(usize::from(status.as_u16()).wrapping_sub(100)) else { return };
        cell.get_or_init(|| self.vec.with_label_values(&[&*self.route, status.as_str()])).inc();
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("names, labels and buckets are constants");
    registry.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauges(registry: &Registry, name: &str, help: &str, label: &str) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
}

fn histograms(registry: &Registry, name: &str, help: &str, label: &str, buckets: &[f64]) -> HistogramVec {
    registered(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), &[label]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_what_was_counted() {
        let metrics = Metrics::new();
        metrics.route("queries.list").count_response(http::StatusCode::OK);
        metrics.auth.count_refusal(crate::refusal::Refusal::Unknown);
        metrics.state.errors.late.inc();
        let text = String::from_utf8(metrics.render()).unwrap();
        assert!(text.contains("keygate_requests_total{code=\"200\",route=\"queries.list\"} 1"), "{text}");
        assert!(text.contains("keygate_auth_total{result=\"unknown\"} 1"), "{text}");
        assert!(text.contains("keygate_state_errors_total{kind=\"late\"} 1"), "{text}");
        assert!(text.contains("keygate_state_errors_total{kind=\"overloaded\"} 0"), "{text}");
    }
}
