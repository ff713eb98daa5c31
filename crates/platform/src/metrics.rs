//! Prometheus metrics, and handles to them that are resolved once: counting is an atomic addition, never a look-up by
//! label.
//!
//! Names begin with `keygate_`, units are base units, and the values of labels are bounded: never a key, a user or an
//! organization. `CONTRIBUTING.md` has the steps to add a metric.

#[macro_use]
mod declaration;
mod registration;
mod computed;
mod decision;
mod edge;
mod discovery;
mod audit;
mod shipping;
mod lines;
mod latency;
mod conventions;
mod retries;
mod route;
mod upstream;

use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricType;
use prometheus::{Encoder as _, Histogram, IntGauge, Registry, TextEncoder};

use computed::ComputedFamily;
use conventions::ClientConventions;
use registration::{DELAY_BUCKETS, OVERHEAD_BUCKETS, REQUEST_BUCKETS};

pub use audit::AuditMetrics;
pub use conventions::{ClientDurations, RequestEnd, ServerConventions};
pub(crate) use conventions::{OTHER_METHOD, known_method};
pub use decision::{AuthMetrics, LimitMetrics, StateErrors, StateMetrics, TerminationMetrics};
pub use discovery::{DiscoveryFamilies, DiscoveryMetrics};
pub use edge::{ConnectionMetrics, FieldMetrics, TimeoutMetrics, TlsMetrics};
pub use latency::{Latency, LatencyCounts, quantile};
pub use lines::{LineMetrics, LogMetrics, TraceMetrics};
pub use retries::RetryMetrics;
pub use route::{PublicRouteMetrics, RouteMetrics};
pub use shipping::{ShippingMetrics, SinkLag, SinkMetrics};
use upstream::UpstreamFamilies;
pub use upstream::{EndpointMetrics, UpstreamMetrics};

metrics! {
    /// All metrics of a gateway.
    pub struct Metrics(registry) {
        /// Always 1; the label has the version
        gauges "build_info" { version } => build;
        /// Time by which a worker's event loop is late, looked at once a second
        histograms "worker_delay_seconds" { worker } in DELAY_BUCKETS => delays;
        /// Responses sent
        counters "requests_total" { route, code } => requests;
        /// Time from the request's head to the response's last byte
        histograms "request_duration_seconds" { route } in REQUEST_BUCKETS => durations;
        /// Time from the arrival of a request's head to its forwarding
        histogram "gateway_overhead_seconds" in OVERHEAD_BUCKETS =>
            /// With admission and audit.
            pub overhead;
        /// Requests in flight
        gauge "in_flight" => pub in_flight;
        /// Requests that failed with a panic of the gateway
        counter "panics_total" => pub panics;
        /// Attempts with invalid credentials refused because their address made too many
        counter "attempts_refused_total" => pub attempts_refused;
        /// Questions of other proxies refused because they lack a fact of the request, or have one twice
        counter "malformed_decisions_total" => pub malformed_decisions;
        /// Requests of trusted proxies with an X-Forwarded-Proto that is neither http nor https
        counter "forwarded_proto_unknown_total" => pub forwarded_proto_unknown;
        /// Streams of ext_proc that ended before the response began, so that their slots bounded nothing
        counter "decision_streams_early_total" => pub early_streams;
        /// Requests to public routes, which need no key
        counters "public_requests_total" { route, result } => public;
        /// Requests that cost more than they had reserved of a budget, by what their response said
        counters "cost_over_total" { route } => cost_over;
        /// Requests to the dashboard refused because their person had sent too many
        counter "dashboard_rate_limited_total" => pub dashboard_limited;
        /// Unix time of the last successful load of the configuration
        time_gauge "config_last_reload_success_timestamp_seconds" => pub config_loaded_at;
        /// 1 when the last reload of the configuration succeeded, else 0
        gauge "config_last_reload_successful" =>
            /// Also 1 when there was none.
            pub config_reload_ok;
        /// Failed reloads of the configuration
        counter "config_reload_failures_total" => pub config_reload_failures;
        /// Expired time-outs.
        set TimeoutMetrics => pub timeouts;
        /// Upstreams and their endpoints.
        set UpstreamFamilies => upstreams;
        /// Discovery of the upstreams' endpoints.
        set DiscoveryFamilies => pub discovery;
        /// Results of authentication and authorization.
        set AuthMetrics => pub auth;
        /// Decisions of the rate and concurrency limits.
        set LimitMetrics => pub limits;
        /// Open exchanges that were ended because their credential was revoked.
        set TerminationMetrics => pub terminated;
        /// Duration and failures of operations of the state.
        set StateMetrics => pub state;
        /// Records of the audit journal.
        set AuditMetrics => pub audit;
        /// Shipping of the audit to sinks.
        set ShippingMetrics => pub shipping;
        /// Lines of the access log.
        set LineMetrics => pub access_log;
        /// Header fields that were removed because a server could misread their names.
        set FieldMetrics => pub fields_dropped;
        /// Downstream connections.
        set ConnectionMetrics => pub connections;
        /// Certificates of TLS listeners.
        set TlsMetrics => pub tls;
        /// Export of traces.
        set TraceMetrics => pub traces;
    } with {
        /// Those whose names have the prefix.
        registry: Registry = registry.clone();
        /// Metrics whose names have no prefix: of the process (CPU time, memory, open files), and of the
        /// semantic conventions.
        plain: Registry = Registry::new();
        /// Metrics of requests by the semantic conventions; none unless configured.
        pub conventions: Option<ServerConventions> = None;
    }
}

/// Counts in a gauge while it lives.
#[derive(Debug)]
pub struct GaugeGuard(IntGauge);

// Help texts that do not fit their lines.
const READY: &str = "1 while this readiness check passes, else 0";
const MISSING_PLAN: &str = "Decisions about keys of plans that the configuration does not have";
const STATE_CONNECTED: &str = "1 while the shared state decides, else 0; always 1 with embedded state";
const STATE_FAULT: &str = "1 while decisions meet this fault at a server of the shared state, else 0";
const DISK_LOW: &str = "1 while the volume of the audit journal is below its low-water mark, else 0";
const SHIP_LAG_RECORDS: &str = "Lines of the audit journal that a sink has not taken, at most two for each record";
const SHIP_LAG_SECONDS: &str = "Age of the oldest line of the audit journal that a sink has not taken";
const REPLICAS: &str = "Replicas in step, of the Redis primary that has the fewest";
const REPLICA_LAG: &str = "Bytes that the slowest replica of Redis has not confirmed";
const CLOCK_AHEAD: &str = "Seconds by which the clock of a Redis primary is ahead of this machine's";
const EVICTS: &str = "1 when the eviction policy of a Redis primary allows it to delete records";

impl Metrics {
    /// A new set of metrics, in a registry of its own.
    pub fn new() -> Self {
        let registry = Registry::new_custom(Some("keygate".into()), None).expect("the prefix is a valid name");
        let metrics = Self::register(&registry);
        metrics.build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        metrics.plain.register(Box::new(ProcessCollector::for_self())).expect("it is registered once");
        metrics
    }

    /// The same set, with the metrics of the semantic conventions for HTTP. To be called once, before it is shared.
    #[must_use]
    pub fn with_conventions(mut self) -> Self {
        self.conventions = Some(ServerConventions::register(&self.plain));
        self.upstreams.conventions = Some(ClientConventions::register(&self.plain));
        self
    }

    /// The metrics of an upstream. Its name must come from the configuration.
    pub fn upstream(&self, name: &str) -> UpstreamMetrics {
        self.upstreams.upstream(name, &self.timeouts)
    }

    /// Delays of the event loop of a worker, in seconds.
    pub fn worker_delay(&self, number: usize) -> Histogram {
        self.delays.with_label_values(&[&number.to_string()])
    }

    /// Shows a readiness check: `ready{check}`. To be called once for each name.
    pub fn show_readiness(&self, check: &str, passes: impl Fn() -> bool + Send + Sync + 'static) {
        self.show("ready", READY, Some(("check", check)), passes);
    }

    /// Shows whether the state answers: `state_connected`. To be called once.
    pub fn show_state(&self, is_connected: impl Fn() -> bool + Send + Sync + 'static) {
        self.show("state_connected", STATE_CONNECTED, None, is_connected);
    }

    /// Shows decisions about keys of plans that the configuration does not have: `missing_plan_decisions_total`. To be
    /// called once.
    pub fn show_missing_plans(&self, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.register_computed(ComputedFamily::counter("missing_plan_decisions_total", MISSING_PLAN, read));
    }

    /// Shows what decisions of the state meet: `state_fault{fault}`, a series for each of these names. To be called
    /// once.
    pub fn show_state_faults(
        &self,
        names: impl IntoIterator<Item = &'static str>,
        read: impl Fn() -> Vec<&'static str> + Send + Sync + 'static,
    ) {
        let names: Vec<&str> = names.into_iter().collect();
        let read = move || {
            let met = read();
            names.iter().map(|name| ((*name).to_owned(), f64::from(u8::from(met.contains(name))))).collect()
        };
        self.register_computed(ComputedFamily::labelled(MetricType::GAUGE, "state_fault", STATE_FAULT, "fault", read));
    }

    /// Shows whether the volume of the journal is below its low-water mark: `audit_disk_low`. To be called once.
    pub fn show_disk_low(&self, is_low: impl Fn() -> bool + Send + Sync + 'static) {
        self.show("audit_disk_low", DISK_LOW, None, is_low);
    }

    /// Shows the replicas of Redis, the bytes by which they are behind, and 1 if a primary may evict: `redis_replicas`,
    /// `redis_replica_lag_bytes`, `redis_evicts`; and the seconds by which its clock is ahead of this machine's:
    /// `redis_clock_ahead_seconds`. They are not shown while they are unknown. To be called once.
    pub fn show_replication(&self, read: impl Fn() -> Option<[f64; 4]> + Clone + Send + Sync + 'static) {
        let lag = read.clone();
        let evicts = read.clone();
        let clock = read.clone();
        self.show_number("redis_replicas", REPLICAS, None, move || read().map(|[replicas, ..]| replicas));
        self.show_number("redis_replica_lag_bytes", REPLICA_LAG, None, move || lag().map(|[_, bytes, ..]| bytes));
        self.show_number("redis_evicts", EVICTS, None, move || evicts().map(|[_, _, evicts, _]| evicts));
        self.show_number("redis_clock_ahead_seconds", CLOCK_AHEAD, None, move || clock().map(|[.., ahead]| ahead));
    }

    /// Shows the lag of the audit's sinks: `audit_ship_lag_records{sink}`,
    /// `audit_ship_lag_seconds{sink}`. To be called once.
    #[allow(clippy::cast_precision_loss, reason = "numbers for people")]
    pub fn show_shipping(&self, read: impl Fn() -> Vec<SinkLag> + Clone + Send + Sync + 'static) {
        let seconds = read.clone();
        self.show_sinks("audit_ship_lag_records", SHIP_LAG_RECORDS, move || {
            read().into_iter().map(|lag| (lag.sink, lag.records as f64)).collect()
        });
        self.show_sinks("audit_ship_lag_seconds", SHIP_LAG_SECONDS, move || {
            seconds().into_iter().map(|lag| (lag.sink, lag.seconds)).collect()
        });
    }

    fn show(
        &self,
        name: &str,
        help: &str,
        label: Option<(&str, &str)>,
        read: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.show_number(name, help, label, move || Some(f64::from(u8::from(read()))));
    }

    fn show_number(
        &self,
        name: &str,
        help: &str,
        label: Option<(&str, &str)>,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        self.register_computed(ComputedFamily::gauge(name, help, label, read));
    }

    fn show_sinks(&self, name: &str, help: &str, read: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static) {
        self.register_computed(ComputedFamily::labelled(MetricType::GAUGE, name, help, "sink", read));
    }

    fn register_computed(&self, family: ComputedFamily) {
        self.registry.register(Box::new(family)).expect("each family is shown once");
    }

    /// Renders all metrics in the text exposition format, version 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for registry in [&self.registry, &self.plain] {
            TextEncoder::new().encode(&registry.gather(), &mut text).expect("a Vec takes every write");
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl GaugeGuard {
    /// Counts from now on.
    pub fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_events_are_rendered() {
        let metrics = Metrics::new();
        metrics.route("queries.list").count_response(http::StatusCode::OK);
        metrics.auth.count_refusal(domain::refusal::Refusal::Unknown);
        metrics.state.errors.late.inc();
        let text = String::from_utf8(metrics.render()).unwrap();
        assert!(text.contains("keygate_requests_total{code=\"200\",route=\"queries.list\"} 1"), "{text}");
        assert!(text.contains("keygate_auth_total{result=\"unknown\"} 1"), "{text}");
        assert!(text.contains("keygate_state_errors_total{kind=\"late\"} 1"), "{text}");
        assert!(text.contains("keygate_state_errors_total{kind=\"overloaded\"} 0"), "{text}");
    }
}
