//! Registration of families of metrics, and the buckets of histograms. A metric without labels is a
//! family of one series.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// Buckets for the duration of requests, in seconds: 0.5 ms to 60 s.
pub(super) const REQUEST_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets for the wait for a connection, in seconds: 0.25 ms to 10 s.
pub(super) const WAIT_BUCKETS: &[f64] =
    &[0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Buckets for the gateway's own share and for the state, in seconds: 5 µs to 50 ms.
pub(super) const OVERHEAD_BUCKETS: &[f64] =
    &[0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05];

/// Buckets for the delay of an event loop, in seconds: 2 ms, above the resolution of its timers, to 2.5 s.
pub(super) const DELAY_BUCKETS: &[f64] = &[0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Registers a family, and returns it.
fn register<C: Collector + Clone + 'static>(registry: &Registry, family: prometheus::Result<C>) -> C {
    let family = family.expect("names, labels and buckets are constants");
    registry.register(Box::new(family.clone())).expect("each name is registered once");
    family
}

/// A help text as Prometheus shows it: without the space that a doc comment begins with.
fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help.trim_start())
}

/// Registers a family of counters.
pub(super) fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(opts(name, help), labels))
}

/// Registers a family of gauges.
pub(super) fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(opts(name, help), labels))
}

/// Registers a family of gauges of times with fractions of a second.
pub(super) fn time_gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    register(registry, GaugeVec::new(opts(name, help), labels))
}

/// Registers a family of histograms.
pub(super) fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> HistogramVec {
    let opts = HistogramOpts { common_opts: opts(name, help), buckets: buckets.to_vec() };
    register(registry, HistogramVec::new(opts, labels))
}
