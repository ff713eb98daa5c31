//! Lines as the items of a delivery, and how whole lines are written to a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::LineMetrics;
use crate::outbound::delivery::{Backoff, Batch, Destination, Failure, Queue, RetryPolicy, Worker};

/// Pause between two attempts to write while writing fails, before its jitter.
const RETRY: Duration = Duration::from_secs(1);
/// Time for the lines that are left when the log is closed. A destination that fails is not tried again then.
const FLUSH: Duration = Duration::from_secs(4);

/// Queue of whole lines, bounded by their bytes.
pub(crate) type LineQueue = Queue<u8>;

/// A destination of lines.
pub(crate) trait LineSink: fmt::Display + Send + 'static {
    /// Writes what is left of the lines, and advances the batch as far as it came: whole lines. Counts them.
    ///
    /// # Errors
    /// Those of the destination.
    async fn write(&mut self, batch: &mut Batch<u8>, metrics: &LineMetrics) -> io::Result<()>;

    /// Opens it again, as a file that was renamed.
    ///
    /// # Errors
    /// It cannot be opened; the one of before stays in use.
    fn reopen(&mut self) -> io::Result<()>;
}

/// A sink that the lines of a log are delivered to.
struct Lines<S> {
    /// Name of the log.
    log: &'static str,
    sink: S,
    metrics: LineMetrics,
}

/// Starts the thread that writes the lines of a queue.
///
/// # Errors
/// There is no thread left, or no descriptor.
pub(crate) fn start<S: LineSink>(
    thread: &str,
    log: &'static str,
    queue: &Arc<LineQueue>,
    sink: S,
    metrics: &LineMetrics,
) -> io::Result<()> {
    let policy = RetryPolicy {
        pauses: Backoff::between(RETRY, RETRY),
        give_up_after: None,
        flush: FLUSH,
        retries_when_closed: false,
    };
    Worker::start(thread, queue, Lines { log, sink, metrics: metrics.clone() }, policy)
}

impl<S: LineSink> Destination for Lines<S> {
    type Item = u8;

    async fn deliver(&mut self, batch: &mut Batch<u8>) -> Result<(), Failure> {
        Ok(self.sink.write(batch, &self.metrics).await?)
    }

    fn part_len(&self, rest: &[u8]) -> usize {
        rest.len()
    }

    fn count_lost(&self, lines: &[u8]) {
        self.metrics.dropped.inc_by(count_lines(lines));
    }

    fn reopen(&mut self) {
        if let Err(error) = self.sink.reopen() {
            let Self { sink, log, .. } = self;
            tracing::error!(%sink, %error, "cannot open the {log} again; the file of before stays in use");
        }
    }

    fn log_failure(&self, failure: &Failure) {
        let Self { sink, log, .. } = self;
        tracing::error!(%sink, error = %failure,
            "cannot write the {log}; lines wait, and are dropped when too many do");
    }

    fn log_recovery(&self) {
        tracing::info!(sink = %self.sink, "the {} can be written again", self.log);
    }

    fn log_flush_timeout(&self) {
        tracing::warn!(sink = %self.sink, "the {} could not be written in time; its last lines are lost", self.log);
    }
}

/// Number of lines.
pub(crate) fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Writes as much as it can. Returns the bytes that were written, also of a failed write.
pub(crate) fn write_some(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// Length of the whole lines.
pub(crate) fn end_of_last_line(lines: &[u8]) -> usize {
    memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1)
}

/// Counts whole lines as written, and advances the batch by them.
pub(crate) fn note_written(batch: &mut Batch<u8>, bytes: usize, metrics: &LineMetrics) {
    metrics.written.inc_by(count_lines(&batch.rest()[..bytes]));
    batch.advance(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    /// Destination that takes nothing.
    struct Away;

    impl LineSink for Away {
        async fn write(&mut self, _: &mut Batch<u8>, _: &LineMetrics) -> io::Result<()> {
            Err(io::ErrorKind::NotConnected.into())
        }

        fn reopen(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl fmt::Display for Away {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("nowhere")
        }
    }

    #[test]
    fn lines_that_a_destination_never_takes_are_counted_when_the_log_is_closed() {
        let queue = LineQueue::new(1 << 10, Duration::ZERO);
        let metrics = Metrics::new().access_log;
        start("away", "log", &queue, Away, &metrics).unwrap();
        assert!((0..5).all(|_| queue.push_all(b"{}\n")), "they wait");
        queue.close();
        assert_eq!(queue.wait_for_end(Duration::from_secs(60)), None, "the destination is not waited for");
        assert_eq!((metrics.written.get(), metrics.dropped.get()), (0, 5));
    }
}
