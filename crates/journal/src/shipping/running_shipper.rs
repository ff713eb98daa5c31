//! A shipper that runs on its thread, and how it ends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::settings::SinkSettings;
use super::shipper::ShipperCommand;
use super::status::Status;

/// Time without a delivery after which a sink is given up that is to finish: a sink that hangs delays no restart for
/// longer. One that has failed for as long is not tried again.
const HANGS_AFTER: Duration = Duration::from_secs(5);
/// Time in which a thread ends after its command: it reads one block of the journal at most.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// A shipper that runs. Dropped, it ends the thread at its next await, as [`ShipperCommand::Stop`] does.
#[derive(Debug)]
pub(super) struct RunningShipper {
    pub(super) settings: SinkSettings,
    /// Written by the thread.
    pub(super) status: Arc<Status>,
    /// Read by the thread; it only grows.
    pub(super) command: watch::Sender<ShipperCommand>,
    /// Disconnected when the thread has ended.
    pub(super) ended: Receiver<()>,
}

impl RunningShipper {
    /// Tells it to deliver what is left, or to end when its sink has failed for a while; returns the number of
    /// its deliveries so far.
    pub(super) fn begin_to_finish(&self) -> u64 {
        let (failing_since, deliveries) = {
            let progress = self.status.lock();
            (progress.failing_since, progress.deliveries)
        };
        let is_failing = failing_since.is_some_and(|since| since.elapsed() >= HANGS_AFTER);
        self.command.send_replace(if is_failing { ShipperCommand::Stop } else { ShipperCommand::Finish });
        deliveries
    }

    /// Waits until the thread has ended, up to the deadline, and while the sink takes something. `deliveries` is their
    /// number when it began to finish.
    pub(super) fn wait_while_it_delivers(&self, began: Instant, deadline: Instant, mut deliveries: u64) {
        let mut last_delivery = began;
        loop {
            let until = (last_delivery + HANGS_AFTER).min(deadline);
            if self.wait(until.saturating_duration_since(Instant::now())) {
                return;
            }
            let now = self.status.lock().deliveries;
            if now == deliveries || Instant::now() >= deadline {
                return;
            }
            (deliveries, last_delivery) = (now, Instant::now());
        }
    }

    /// Waits until the thread has ended; returns false when it has not in this time.
    fn wait(&self, within: Duration) -> bool {
        self.ended.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Ends shippers now. What they were delivering is delivered again by the next one.
pub(super) fn stop(shippers: Vec<RunningShipper>) {
    for shipper in &shippers {
        shipper.command.send_replace(ShipperCommand::Stop);
    }
    for shipper in shippers {
        if !shipper.wait(STOP_WITHIN) {
            tracing::error!(sink = shipper.settings.name, "a shipper of the audit has not ended in time");
        }
    }
}
