//! Access log: one line of JSON for each request, with the names of the Elastic Common Schema.
//!
//! - A request hands its line (`line`) to a bounded queue, and never waits; a writer thread (`super::lines`) brings the
//!   lines to a file or the standard output (`sink`). A line that finds no room is dropped and counted.
//! - A file is opened again when that is asked for, as after its rotation: no line is lost or torn.
//! - Dropping the last clone has the writer write what is there; [`AccessLog::close`] waits for it.

mod settings;
mod json;
pub(super) mod query;
mod line;
mod sink;
mod file;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lines::{self, LineQueue, count_lines};
use crate::metrics::LineMetrics;

use sink::Sink;

pub(super) use line::write_line;
pub use query::redact_credentials;
pub use settings::{LoggedRequests, Settings, SinkSettings};

/// Bytes of lines that wait: a second of 20,000 requests, and far more than one write takes.
const MAX_WAITING: usize = 16 << 20;
/// Time for which the writer collects lines, so that one write serves many.
const COLLECT: Duration = Duration::from_millis(20);
/// Time for the writer to write what is left when the gateway stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The access log; clones share it.
#[derive(Clone, Debug)]
pub struct AccessLog {
    settings: Arc<Settings>,
    handle: Arc<Handle>,
}

/// Handle of the writer. Dropping it has the writer end.
#[derive(Debug)]
struct Handle {
    queue: Arc<LineQueue>,
    /// Queues of destinations before this one, whose last requests may still end.
    earlier: Vec<Arc<LineQueue>>,
    metrics: LineMetrics,
}

impl AccessLog {
    /// Opens an access log, and starts its writer.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(settings: &Settings, metrics: &LineMetrics) -> io::Result<Self> {
        Self::open_after(Vec::new(), settings, metrics)
    }

    fn open_after(earlier: Vec<Arc<LineQueue>>, settings: &Settings, metrics: &LineMetrics) -> io::Result<Self> {
        let sink = Sink::open(&settings.sink)?;
        let queue = LineQueue::new(MAX_WAITING, COLLECT);
        lines::start("access-log", "access log", &queue, sink, metrics)?;
        let handle = Handle { queue, earlier, metrics: metrics.clone() };
        Ok(Self { settings: Arc::new(settings.clone()), handle: Arc::new(handle) })
    }

    /// The access log of changed settings. One that stays at its destination keeps its writer.
    ///
    /// # Errors
    /// As [`AccessLog::open`].
    pub fn follow(
        existing: Option<&Self>,
        settings: Option<&Settings>,
        metrics: &LineMetrics,
    ) -> io::Result<Option<Self>> {
        let Some(settings) = settings else { return Ok(None) };
        match existing {
            Some(log) if log.settings.sink == settings.sink => {
                Ok(Some(Self { settings: Arc::new(settings.clone()), handle: Arc::clone(&log.handle) }))
            }
            Some(log) => Self::open_after(log.handle.unfinished(), settings, metrics).map(Some),
            None => Self::open(settings, metrics).map(Some),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a line, which ends in a line feed. It never waits; a line that finds no room is counted.
    pub fn push(&self, line: &[u8]) {
        if !self.handle.queue.push_all(line) {
            self.handle.metrics.dropped.inc();
        }
    }

    /// Opens the file again, after it was renamed.
    pub fn reopen(&self) {
        self.handle.queue.reopen();
    }

    /// Takes no more lines, and waits until all of them are written, for five seconds at most. To be called when no
    /// request is left.
    pub fn close(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        for queue in self.handle.unfinished() {
            queue.close();
            if let Some(left) = queue.wait_for_end(deadline.saturating_duration_since(Instant::now())) {
                let lines = count_lines(&left);
                self.handle.metrics.dropped.inc_by(lines);
                tracing::warn!(lines, "the access log could not be written in time; its last lines are lost");
            }
        }
    }
}

impl Handle {
    /// The queues whose writers have not ended: this one, and those before it.
    fn unfinished(&self) -> Vec<Arc<LineQueue>> {
        let queues = self.earlier.iter().chain([&self.queue]);
        queues.filter(|queue| !queue.has_ended()).cloned().collect()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn closed_log_has_written_its_lines_and_takes_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let sink = SinkSettings::File(path.clone());
        let settings = Settings { sink, requests: LoggedRequests::All, gateway: "gw".into() };
        let metrics = Metrics::new().access_log;
        let log = AccessLog::open(&settings, &metrics).unwrap();
        (0..5).for_each(|_| log.push(b"{}\n"));
        log.close();
        log.push(b"{}\n");
        assert_eq!((metrics.written.get(), metrics.dropped.get()), (5, 1));
        assert_eq!(std::fs::read(path).unwrap(), b"{}\n".repeat(5));
    }
}
