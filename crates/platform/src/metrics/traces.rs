//! Metrics of the export of traces.

use prometheus::{IntCounter, Registry};

use super::registration::{counter, counters};

const EXPORTED: &str = "Spans that the collector of traces has taken";
const DROPPED: &str = "Spans that were to be exported and are lost, by reason";

/// `trace_spans_exported_total` and `trace_spans_dropped_total{reason}`.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    /// Spans that the collector has taken.
    pub exported: IntCounter,
    /// Spans for which the queue had no room.
    pub dropped_queue: IntCounter,
    /// Spans that could not be delivered.
    pub dropped_export: IntCounter,
    /// Spans that the collector has rejected.
    pub dropped_rejected: IntCounter,
}

impl TraceMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let dropped = counters(r, "trace_spans_dropped_total", DROPPED, &["reason"]);
        let dropped = |reason| dropped.with_label_values(&[reason]);
        Self {
            exported: counter(r, "trace_spans_exported_total", EXPORTED),
            dropped_queue: dropped("queue"),
            dropped_export: dropped("export"),
            dropped_rejected: dropped("rejected"),
        }
    }
}
