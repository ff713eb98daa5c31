//! Metrics of the shipping of the audit.

use prometheus::{IntCounter, IntCounterVec};

metrics! {
    /// Deliveries to all sinks.
    pub struct ShippingMetrics {
        /// Audit records delivered to a sink
        counters "audit_ship_records_total" { sink } => records;
        /// Failed connections and deliveries to a sink of the audit
        counters "audit_ship_failures_total" { sink } => failures;
        /// Segments of the audit journal that were removed or damaged before a sink had taken them
        counters "audit_ship_skipped_segments_total" { sink } => skipped;
        /// Damaged lines of the audit journal that a sink did not get
        counters "audit_ship_skipped_lines_total" { sink } => skipped_lines;
        /// Audit records that a sink has refused (refused), or that were older than its retention (too_old)
        counters "audit_ship_rejected_records_total" { sink, reason } => rejected;
        /// Connections at which the audit journal lacked the last lines that a sink had taken
        counters "audit_ship_older_journal_total" { sink } => older_journal;
    }
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
    /// Lines that were damaged.
    pub skipped_lines: IntCounter,
    /// Records that the sink has refused.
    pub refused: IntCounter,
    /// Records that were older than the retention of the sink.
    pub too_old: IntCounter,
    /// Connections at which the journal lacked the last lines that the sink had taken.
    pub older_journal: IntCounter,
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
    /// The metrics of a sink. Its name must come from the configuration.
    pub fn sink(&self, name: &str) -> SinkMetrics {
        let of = |family: &IntCounterVec| family.with_label_values(&[name]);
        let rejected = |reason: &str| self.rejected.with_label_values(&[name, reason]);
        SinkMetrics {
            records: of(&self.records),
            failures: of(&self.failures),
            skipped: of(&self.skipped),
            skipped_lines: of(&self.skipped_lines),
            refused: rejected("refused"),
            too_old: rejected("too_old"),
            older_journal: of(&self.older_journal),
        }
    }
}
