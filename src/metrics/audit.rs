//! Metrics of the audit journal.

use prometheus::{IntCounter, IntGauge, Registry};

use super::registration::{counter, counters, gauge};

const COALESCED: &str = "Refusals of known keys counted in a record of several, of the written audit records";

const RETENTION_PAUSED: &str = "1 while retention by size pauses for open uses that take up half of the size, else 0";

/// `audit_records_total{result}`, `audit_refusals_coalesced_total`, `audit_backlog`, `audit_disk_free_bytes` and
/// `audit_retention_paused`.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// Uses whose records were written; a record of several refusals counts as all of them.
    pub written: IntCounter,
    /// Records that could not be written, and whose requests were refused for it.
    pub refused: IntCounter,
    /// Records that could not be written, and whose requests went on unrecorded, as configured.
    pub dropped: IntCounter,
    /// Attempts with unknown keys beyond the recorded rate.
    pub suppressed: IntCounter,
    /// Refusals that were counted in a record of several; they are among those that were written.
    pub coalesced: IntCounter,
    /// Events that are not yet written or synced.
    pub backlog: IntGauge,
    /// Bytes free on the volume of the journal.
    pub disk_free: IntGauge,
    /// 1 while retention by size pauses, because open uses take up half of the size.
    pub retention_paused: IntGauge,
}

impl AuditMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let records = counters(r, "audit_records_total", "Audit records, by what became of them", &["result"]);
        let result = |result| records.with_label_values(&[result]);
        Self {
            written: result("written"),
            refused: result("refused"),
            dropped: result("dropped"),
            suppressed: result("suppressed"),
            coalesced: counter(r, "audit_refusals_coalesced_total", COALESCED),
            backlog: gauge(r, "audit_backlog", "Audit events not yet written or synced"),
            disk_free: gauge(r, "audit_disk_free_bytes", "Bytes free on the volume of the audit journal"),
            retention_paused: gauge(r, "audit_retention_paused", RETENTION_PAUSED),
        }
    }
}
