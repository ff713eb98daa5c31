//! Metrics of the shipping of the audit.

use prometheus::{IntCounter, IntCounterVec, Registry};

use super::registration::counters;

const SKIPPED: &str = "Segments of the audit journal that were removed or damaged before a sink had taken them";

/// `audit_ship_records_total{sink}`, `audit_ship_failures_total{sink}` and `audit_ship_skipped_segments_total{sink}`.
#[derive(Clone, Debug)]
pub struct ShippingMetrics {
    records: IntCounterVec,
    failures: IntCounterVec,
    skipped: IntCounterVec,
}

/// Metrics of one sink.
#[derive(Clone, Debug)]
pub struct SinkMetrics {
    /// Records delivered; one that comes again counts again.
    pub records: IntCounter,
    /// Failed connections and deliveries.
    pub failures: IntCounter,
    /// Segments that were removed or damaged before the sink had taken them.
    pub skipped: IntCounter,
}

/// Lag of a sink, as it is read.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkLag {
    /// Name of the sink.
    pub sink: String,
    /// Lines of the journal that it has not taken.
    pub records: u64,
    /// Age of the oldest of them, in seconds.
    pub seconds: f64,
}

impl ShippingMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let records = "Audit records delivered to a sink";
        let failures = "Failed connections and deliveries to a sink of the audit";
        Self {
            records: counters(r, "audit_ship_records_total", records, &["sink"]),
            failures: counters(r, "audit_ship_failures_total", failures, &["sink"]),
            skipped: counters(r, "audit_ship_skipped_segments_total", SKIPPED, &["sink"]),
        }
    }

    /// The metrics of a sink. Its name must come from the configuration.
    pub fn sink(&self, name: &str) -> SinkMetrics {
        let of = |family: &IntCounterVec| family.with_label_values(&[name]);
        SinkMetrics { records: of(&self.records), failures: of(&self.failures), skipped: of(&self.skipped) }
    }
}
