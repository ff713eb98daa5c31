//! Worker: a thread that delivers what is in a queue.
//!
//! - A part that cannot be delivered is tried again by the policy; meanwhile the queue fills, and what is beyond its
//!   bound is dropped and counted.
//! - The beginning and the end of a failure are logged once each.
//! - When the queue is closed, what is left has a while to be delivered, and is given up then.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout_at};

use super::queue::{Batch, Queue};
use super::retry::{Next, Retry, RetryPolicy, Tries};
use crate::tls;

/// A destination of items.
pub(crate) trait Destination: Send + 'static {
    type Item: Send + 'static;

    /// Delivers the first part of what is left, and advances the batch as far as it came, also when it fails. May be
    /// dropped at any await.
    ///
    /// # Errors
    /// [`Failure`] of the destination.
    async fn deliver(&mut self, batch: &mut Batch<Self::Item>) -> Result<(), Failure>;

    /// Number of items of the part that is delivered, or given up, as one.
    fn part_len(&self, rest: &[Self::Item]) -> usize;

    /// Counts items that are given up.
    fn count_lost(&self, items: &[Self::Item]);

    /// Opens the destination again, such as a file that was renamed.
    fn reopen(&mut self) {}

    /// Logs that deliveries begin to fail.
    fn log_failure(&self, failure: &Failure);

    /// Logs that deliveries succeed again.
    fn log_recovery(&self);

    /// Logs that not all was delivered in time when the queue was closed.
    fn log_flush_timeout(&self);
}

/// Failure of a delivery.
#[derive(Debug)]
pub(crate) struct Failure {
    cause: Box<dyn Error + Send + Sync>,
    retry: Retry,
}

/// The worker of a queue.
pub(crate) struct Worker<D: Destination> {
    queue: Arc<Queue<D::Item>>,
    destination: D,
    policy: RetryPolicy,
    batch: Batch<D::Item>,
    /// True while deliveries fail.
    is_failing: bool,
}

impl Failure {
    pub(crate) fn new(cause: impl Into<Box<dyn Error + Send + Sync>>, retry: Retry) -> Self {
        Self { cause: cause.into(), retry }
    }

    /// The time of a part is up.
    fn timed_out() -> Self {
        Self::new(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer in time"), Retry::Never)
    }
}

impl fmt::Display for Failure {
    /// The failure with its causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_full(&*self.cause))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error, Retry::Later)
    }
}

impl<D: Destination> Worker<D> {
    /// Starts the thread of a worker, which ends when the queue is closed.
    ///
    /// # Errors
    /// There is no thread left, or no descriptor.
    pub(crate) fn start(
        thread: &str,
        queue: &Arc<Queue<D::Item>>,
        destination: D,
        policy: RetryPolicy,
    ) -> io::Result<()> {
        let queue = Arc::clone(queue);
        let worker = Self { queue, destination, policy, batch: Batch::from(Vec::new()), is_failing: false };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
            runtime.block_on(worker.run());
            // Does not wait for the look-up of a host name.
            runtime.shutdown_background();
        })?;
        Ok(())
    }

    async fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        let flush = self.policy.flush;
        let is_flushed = tokio::select! {
            () = self.deliver_until_closed() => true,
            () = queue.wait_until_closed_for(flush) => false,
        };
        if !is_flushed {
            self.destination.log_flush_timeout();
            self.destination.count_lost(self.batch.rest());
            queue.take_now(&mut self.batch);
            self.destination.count_lost(self.batch.rest());
        }
        queue.end();
    }

    async fn deliver_until_closed(&mut self) {
        loop {
            let taken = self.queue.take(&mut self.batch).await;
            // Nothing comes after the queue was closed.
            if taken.is_closed && self.batch.rest().is_empty() {
                return;
            }
            while !self.batch.rest().is_empty() {
                self.deliver_part().await;
                self.queue.note_in_delivery(self.batch.rest().len());
            }
            if taken.reopen && !taken.is_closed {
                self.destination.reopen();
            }
        }
    }

    /// Delivers the next part, or gives it up.
    async fn deliver_part(&mut self) {
        let mut tries = Tries::new(&self.policy, Instant::now());
        loop {
            let Some(retry) = self.try_part(tries.deadline).await else { return };
            match tries.after_failure(retry, self.queue.is_closed(), Instant::now()) {
                Next::Retry(pause) => {
                    let woken = self.queue.wait_to_retry(pause, !self.policy.retries_when_closed).await;
                    if woken.reopen {
                        self.destination.reopen();
                    }
                }
                Next::GiveUp(pause) => {
                    sleep(pause).await;
                    let rest = self.batch.rest();
                    let part = self.destination.part_len(rest);
                    self.destination.count_lost(&rest[..part]);
                    self.batch.advance(part);
                    return;
                }
            }
        }
    }

    /// Tries to deliver a part. Returns when it may be tried again; none when it is delivered.
    async fn try_part(&mut self, deadline: Option<Instant>) -> Option<Retry> {
        let delivered = self.destination.deliver(&mut self.batch);
        let delivered = match deadline {
            Some(deadline) => timeout_at(deadline, delivered).await.unwrap_or_else(|_| Err(Failure::timed_out())),
            None => delivered.await,
        };
        let was_failing = std::mem::replace(&mut self.is_failing, delivered.is_err());
        match delivered {
            Ok(()) if was_failing => self.destination.log_recovery(),
            Ok(()) => {}
            Err(failure) => {
                if !was_failing {
                    self.destination.log_failure(&failure);
                }
                return Some(failure.retry);
            }
        }
        None
    }
}

/// An error with its causes, in one line. Errors of TLS are in words.
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    let mut text = said(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let said = said(cause);
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

/// The text of an error without its causes; of one that is an error of TLS, its explanation.
fn said(error: &(dyn Error + 'static)) -> String {
    let is_of_tls = error.is::<rustls::Error>() || error.is::<io::Error>();
    let of_tls = tls::find_error(error).filter(|_| is_of_tls);
    of_tls.map_or_else(|| error.to_string(), |error| tls::explain(error).to_string())
}
