//! Metrics of the audit journal.

use prometheus::{IntCounter, IntGauge, Registry};

use super::registration::{counter, counters, gauge};

const COALESCED: &str = "Refusals of known keys counted in a record of several, of the written audit records";

const UNSHIPPED_REMOVED: &str = "Segments of the audit journal that retention removed before every sink had taken them";

const RETENTION_PAUSED: &str = "1 while retention by size pauses for open uses that take up half of the size, else 0";

const DAMAGED_FILES: &str = "Files beside the audit journal with damaged lines that starts have set aside";

/// `audit_records_total{result}`, `audit_refusals_coalesced_total`, `audit_backlog`, `audit_disk_free_bytes`,
/// `audit_retention_paused`, `audit_damaged_files`, `audit_unshipped_removed_total`, `audit_checkpoint_lines`, `audit_checkpoints_total{result}` and
/// `audit_cosignatures_total{result}`.
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
    /// Files of damaged lines that starts have set aside.
    pub damaged_files: IntGauge,
    /// Lines that the latest checkpoint covers.
    pub checkpoint_lines: IntGauge,
    /// Checkpoints that were signed.
    pub checkpoints_signed: IntCounter,
    /// Times that hashing failed, for a while or for good.
    pub checkpoints_failed: IntCounter,
    /// Cosignatures of witnesses.
    pub cosignatures_received: IntCounter,
    /// Checkpoints that a witness has not cosigned.
    pub cosignatures_failed: IntCounter,
    /// Segments that retention removed before every sink had taken them.
    pub unshipped_removed: IntCounter,
}

impl AuditMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let records = counters(r, "audit_records_total", "Audit records, by what became of them", &["result"]);
        let result = |result| records.with_label_values(&[result]);
        let checkpoints = counters(r, "audit_checkpoints_total", "Checkpoints of the audit journal", &["result"]);
        let cosignatures =
            counters(r, "audit_cosignatures_total", "Cosignatures of checkpoints, by witnesses", &["result"]);
        Self {
            written: result("written"),
            refused: result("refused"),
            dropped: result("dropped"),
            suppressed: result("suppressed"),
            coalesced: counter(r, "audit_refusals_coalesced_total", COALESCED),
            backlog: gauge(r, "audit_backlog", "Audit events not yet written or synced"),
            disk_free: gauge(r, "audit_disk_free_bytes", "Bytes free on the volume of the audit journal"),
            unshipped_removed: counter(r, "audit_unshipped_removed_total", UNSHIPPED_REMOVED),
            retention_paused: gauge(r, "audit_retention_paused", RETENTION_PAUSED),
            damaged_files: gauge(r, "audit_damaged_files", DAMAGED_FILES),
            checkpoint_lines: gauge(
                r,
                "audit_checkpoint_lines",
                "Lines of the audit journal that the latest checkpoint covers",
            ),
            checkpoints_signed: checkpoints.with_label_values(&["signed"]),
            checkpoints_failed: checkpoints.with_label_values(&["failed"]),
            cosignatures_received: cosignatures.with_label_values(&["received"]),
            cosignatures_failed: cosignatures.with_label_values(&["failed"]),
        }
    }
}
