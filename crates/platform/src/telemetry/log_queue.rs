//! Queue of the log on standard error: a thread that logs never waits for its reader.
//!
//! - A line that finds no room, because the reader has stalled, is dropped and counted (`log_lines_total`).
//! - A line is on standard error within moments, and at once when [`LogQueue::flush`] returns: before the process ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::lines::{self, LineQueue, StandardStream};
use crate::metrics::LogMetrics;

/// Bytes of lines that wait: some thousand lines. The oldest ones are kept: they say most about what went wrong.
const MAX_WAITING: usize = 1 << 20;

/// Queue of the log; clones share it.
#[derive(Clone, Debug)]
pub(super) struct LogQueue {
    queue: Arc<LineQueue>,
    metrics: LogMetrics,
}

impl LogQueue {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// There is no descriptor or no thread left.
    pub(super) fn start(metrics: &LogMetrics) -> io::Result<Self> {
        // Lines are few: each is written at once, and others that come meanwhile with the next write.
        let queue = LineQueue::new(MAX_WAITING, Duration::ZERO);
        lines::start("log", "log", &queue, StandardStream::stderr()?, &metrics.lines)?;
        Ok(Self { queue, metrics: metrics.clone() })
    }

    /// Waits until all lines are written, at most for this time.
    pub(super) fn flush(&self, timeout: Duration) {
        self.queue.flush(timeout);
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine(self)
    }
}

/// Writer of one line, which comes as a whole.
pub(super) struct LogLine<'a>(&'a LogQueue);

impl io::Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.0.queue.push_all(line) {
            self.0.metrics.lines.dropped.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
