//! Writer thread.
//!
//! - Lines that cannot be written are kept, and tried again every second; meanwhile the queue fills, and what is beyond its
//!   bound is dropped and counted.
//! - The beginning and the end of a failure are logged once each.
//! - A line is written whole or not at all.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use super::queue::{Queue, Taken};
use crate::metrics::LineMetrics;

/// Time between two attempts to write while writing fails.
const RETRY: Duration = Duration::from_secs(1);

/// A destination of lines.
pub(crate) trait Destination: fmt::Display {
    /// Writes what is left of a batch, and notes how far it came: whole lines.
    ///
    /// # Errors
    /// Those of the destination.
    fn write(&mut self, batch: &mut Batch, metrics: &LineMetrics) -> io::Result<()>;

    /// Opens it again, as a file that was renamed.
    ///
    /// # Errors
    /// It cannot be opened; the one of before stays in use.
    fn reopen(&mut self) -> io::Result<()>;
}

/// The writer.
pub(crate) struct Writer<D> {
    /// Name of the log that the lines are of.
    log: &'static str,
    queue: Arc<Queue>,
    destination: D,
    metrics: LineMetrics,
    /// True while writing fails.
    is_failing: bool,
}

impl<D: Destination> Writer<D> {
    pub(crate) fn new(log: &'static str, queue: &Arc<Queue>, destination: D, metrics: &LineMetrics) -> Self {
        Self { log, queue: Arc::clone(queue), destination, metrics: metrics.clone(), is_failing: false }
    }

    /// Writes until the queue is closed and empty.
    pub(crate) fn run(mut self) {
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
        let result = self.destination.write(batch, &self.metrics);
        match (&result, self.is_failing) {
            (Err(error), false) => tracing::error!(
                sink = %self.destination,
                %error,
                "cannot write the {}; lines wait, and are dropped when too many do", self.log
            ),
            (Ok(()), true) => tracing::info!(sink = %self.destination, "the {} can be written again", self.log),
            _ => {}
        }
        self.is_failing = result.is_err();
        result.is_ok()
    }

    fn reopen(&mut self) {
        if let Err(error) = self.destination.reopen() {
            let (sink, log) = (&self.destination, self.log);
            tracing::error!(%sink, %error, "cannot open the {log} again; the file of before stays in use");
        }
    }
}
