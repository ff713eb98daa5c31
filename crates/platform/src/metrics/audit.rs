//! Metrics of the audit journal.

metrics! {
    /// Records, files and checkpoints of the audit journal.
    pub struct AuditMetrics {
        /// Audit records, by what became of them
        counter "audit_records_total" { result } =>
            /// Written; a record of several refusals counts as all of them.
            pub written("written"),
            /// Could not be written, and their requests were refused for it.
            pub refused("refused"),
            /// Could not be written, and their requests went on unrecorded, as configured.
            pub dropped("dropped"),
            /// Attempts with unknown keys beyond the recorded rate.
            pub suppressed("suppressed");
        /// Refusals of known keys counted in a record of several, of the written audit records
        counter "audit_refusals_coalesced_total" => pub coalesced;
        /// Audit events not yet written or synced
        gauge "audit_backlog" => pub backlog;
        /// Failed syncs (fsync) of the audit journal: from the first on it is not known which records are on disk
        counter "audit_sync_failures_total" => pub sync_failures;
        /// Bytes free on the volume of the audit journal
        gauge "audit_disk_free_bytes" => pub disk_free;
        /// Closed segments of the audit journal that are not compressed and sealed yet
        gauge "audit_segments_waiting" => pub segments_waiting;
        /// 1 while retention by size pauses for open uses that take up half of the size, else 0
        gauge "audit_retention_paused" => pub retention_paused;
        /// Files beside the audit journal with damaged lines that starts have set aside
        gauge "audit_damaged_files" => pub damaged_files;
        /// Lines of the audit journal that the latest checkpoint covers
        gauge "audit_checkpoint_lines" => pub checkpoint_lines;
        /// Checkpoints of the audit journal
        counter "audit_checkpoints_total" { result } =>
            pub checkpoints_signed("signed"),
            /// Times that hashing failed, for a while or for good.
            pub checkpoints_failed("failed");
        /// Cosignatures of checkpoints, by witnesses
        counter "audit_cosignatures_total" { result } =>
            pub cosignatures_received("received"),
            /// Checkpoints that a witness has not cosigned.
            pub cosignatures_failed("failed");
        /// Segments of the audit journal that retention removed before every sink had taken them
        counter "audit_unshipped_removed_total" => pub unshipped_removed;
    }
}
