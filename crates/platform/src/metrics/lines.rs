//! Metrics of what goes through a queue: lines of the access log and of the log on standard error, and spans.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::Metrics;
use super::registration::counter;

/// Lines of a log, by what became of them.
#[derive(Clone, Debug)]
pub struct LineMetrics {
    /// Lines that the destination has taken.
    pub written: IntCounter,
    /// Lines that found no room in the queue, or could not be written when the log ended.
    pub dropped: IntCounter,
}

/// `log_lines_total{result}`. The log begins before there is a registry: [`Metrics::show_log`] shows them in one.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    family: IntCounterVec,
    /// The lines.
    pub lines: LineMetrics,
}

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

impl LineMetrics {
    /// `access_log_lines_total{result}`.
    pub(super) fn register(r: &Registry) -> Self {
        Self::of(&counter(r, "access_log_lines_total", "Lines of the access log, by what became of them", &["result"]))
    }

    fn of(family: &IntCounterVec) -> Self {
        let result = |result| family.with_label_values(&[result]);
        Self { written: result("written"), dropped: result("dropped") }
    }
}

impl Default for LogMetrics {
    fn default() -> Self {
        let help = "Lines of the log on standard error, by what became of them";
        let family = IntCounterVec::new(Opts::new("log_lines_total", help), &["result"]).expect("the name is valid");
        Self { lines: LineMetrics::of(&family), family }
    }
}

impl Metrics {
    /// Shows the lines of the process's log: `log_lines_total{result}`. To be called once.
    pub fn show_log(&self, log: &LogMetrics) {
        self.registry.register(Box::new(log.family.clone())).expect("they are shown once");
    }
}
