//! Metrics of the export of traces.

metrics! {
    /// Spans on their way to the collector.
    pub struct TraceMetrics {
        /// Spans that the collector of traces has taken
        counter "trace_spans_exported_total" => pub exported;
        /// Spans that were to be exported and are lost, by reason
        counter "trace_spans_dropped_total" { reason } =>
            /// Those for which the queue had no room.
            pub dropped_queue("queue"),
            /// Those that could not be delivered.
            pub dropped_export("export"),
            /// Those that the collector has rejected.
            pub dropped_rejected("rejected");
    }
}
