//! Writer thread of the access log.
//!
//! - Lines that cannot be written are kept, and tried again every second; meanwhile the queue fills, and what is beyond its
//!   bound is dropped and counted. Requests never wait.
//! - The beginning and the end of a failure are logged once each.
//! - A line is written whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use super::queue::{Queue, Taken};
use super::sink::Sink;
use crate::metrics::AccessLogMetrics;

/// Time between two attempts to write while writing fails.
const RETRY: Duration = Duration::from_secs(1);

/// The writer.
pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) sink: Sink,
    pub(super) metrics: AccessLogMetrics,
    /// True while writing fails.
    pub(super) is_failing: bool,
}

impl Writer {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut batch = Batch::default();
        loop {
            let mut taken = batch.refill(|lines| self.queue.take(lines));
            while !self.write(&mut batch) && !taken.is_closed {
                let woken = self.queue.wait_to_retry(RETRY);
                if woken.reopen {
                    self.reopen();
                }
                taken.is_closed |= woken.is_closed;
            }
            if self.finish(&mut batch, taken) {
                break;
            }
        }
        self.queue.end();
    }

    /// Opens the file again where that was asked for, and gives up what is left when the queue is closed. Returns whether the
    /// writer is to end.
    fn finish(&mut self, batch: &mut Batch, taken: Taken) -> bool {
        if taken.reopen && !taken.is_closed {
            self.reopen();
        }
        if !taken.is_closed {
            return false;
        }
        let left = batch.rest().len();
        self.metrics.dropped.inc_by(batch.advance(left));
        // The queue may have been closed while this batch was tried: what came in between is still there.
        let more = batch.refill(|lines| self.queue.take(lines));
        self.write(batch);
        let left = batch.rest().len();
        self.metrics.dropped.inc_by(batch.advance(left));
        more.is_closed
    }

    /// Writes what is left of a batch. Returns whether all of it is written.
    fn write(&mut self, batch: &mut Batch) -> bool {
        if batch.rest().is_empty() {
            return true;
        }
        let result = self.sink.write(batch, &self.metrics);
        match (&result, self.is_failing) {
            (Err(error), false) => tracing::error!(
                sink = %self.sink,
                %error,
                "cannot write the access log; lines wait, and are dropped when too many do"
            ),
            (Ok(()), true) => tracing::info!(sink = %self.sink, "the access log can be written again"),
            _ => {}
        }
        self.is_failing = result.is_err();
        result.is_ok()
    }

    fn reopen(&mut self) {
        if let Err(error) = self.sink.reopen() {
            tracing::error!(sink = %self.sink, %error, "cannot open the access log again; the file of before stays in use");
        }
    }
}
