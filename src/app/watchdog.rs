//! Watchdog thread: notifies systemd while every worker responds.
//!
//! - `WATCHDOG=1` is sent at half of the period that systemd asks for. When a worker hangs, the notifications stop, and
//!   systemd restarts the service.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::watch;

use super::shutdown::Phase;
use super::systemd::ServiceNotifier;
use super::worker_pool::{WorkerCommand, WorkerPool};

/// Starts the thread if systemd asks for a watchdog. It ends when the returned sender is dropped.
pub(super) fn start(
    notifier: ServiceNotifier,
    workers: WorkerPool,
    phase: watch::Receiver<Phase>,
) -> anyhow::Result<mpsc::Sender<()>> {
    let (sender, end) = mpsc::channel();
    let Some(period) = notifier.watchdog_period() else { return Ok(sender) };
    // Interval and time-out together stay below the period, so that a slow worker does not count as a hung one.
    let interval = period / 2;
    let timeout = period / 4;
    let run = move || run(interval, &end, || is_healthy(&workers, &phase, timeout), || notifier.notify_alive());
    std::thread::Builder::new().name("watchdog".into()).spawn(run)?;
    Ok(sender)
}

/// Notifies in every interval in which the service is healthy.
fn run(interval: Duration, end: &Receiver<()>, is_healthy: impl Fn() -> bool, notify_alive: impl Fn()) {
    let mut was_healthy = true;
    loop {
        let healthy = is_healthy();
        if healthy {
            notify_alive();
        } else if was_healthy {
            // Logged once for each failure, not in every interval.
            tracing::error!("a worker does not respond; systemd is not notified and will restart the service");
        }
        was_healthy = healthy;
        match end.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Returns whether every worker responds. An exited worker counts as failed, except in a drain, in which workers exit.
fn is_healthy(workers: &WorkerPool, phase: &watch::Receiver<Phase>, timeout: Duration) -> bool {
    let acks = workers.broadcast(timeout, WorkerCommand::Ping);
    acks.timed_out == 0 && (acks.exited == 0 || *phase.borrow() >= Phase::Draining)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn health_fails_for_hung_and_exited_workers() {
        let (phase, watched) = watch::channel(Phase::Serving);
        let mut workers = WorkerPool::default();
        let mut commands = workers.add_worker();
        let timeout = Duration::from_millis(50);
        assert!(!is_healthy(&workers, &watched, timeout), "the worker hangs");
        let worker = std::thread::spawn(move || {
            while let Some(WorkerCommand::Ping(ack)) = commands.blocking_recv() {
                // The first ping has timed out: nothing receives its acknowledgement.
                if ack.send(()).is_ok() {
                    return commands;
                }
            }
            commands
        });
        assert!(is_healthy(&workers, &watched, Duration::from_secs(60)), "the worker responds");
        drop(worker.join().unwrap());
        assert!(!is_healthy(&workers, &watched, timeout), "the worker exited");
        phase.send_replace(Phase::Draining);
        assert!(is_healthy(&workers, &watched, timeout), "the worker exited in the drain");
    }

    #[test]
    fn watchdog_notifies_only_while_healthy() {
        let notified = Cell::new(0);
        let checked = Cell::new(0);
        let (stop, end) = mpsc::channel();
        let stop = Cell::new(Some(stop));
        let is_healthy = || {
            checked.set(checked.get() + 1);
            if checked.get() == 4 {
                drop(stop.take());
            }
            checked.get() % 2 == 1
        };
        run(Duration::from_millis(1), &end, is_healthy, || notified.set(notified.get() + 1));
        assert_eq!((checked.get(), notified.get()), (4, 2));
    }
}
