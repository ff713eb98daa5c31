//! Metrics of the access log.

use prometheus::{IntCounter, Registry};

use super::registration::counters;

/// `access_log_lines_total{result}`.
#[derive(Clone, Debug)]
pub struct AccessLogMetrics {
    /// Lines that the destination has taken.
    pub written: IntCounter,
    /// Lines that found no room in the queue, or could not be written when the log ended.
    pub dropped: IntCounter,
}

impl AccessLogMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let lines =
            counters(r, "access_log_lines_total", "Lines of the access log, by what became of them", &["result"]);
        let result = |result| lines.with_label_values(&[result]);
        Self { written: result("written"), dropped: result("dropped") }
    }
}
