//! What systemd is told (`sd_notify(3)`), when it is what started this process, and the watchdog that it keeps.
//!
//! - `READY=1` when everything is bound and served, and again after each reload; `RELOADING=1` before it; `STOPPING=1`
//!   when the drain begins.
//! - `WATCHDOG=1` at half of what systemd asks for, but only while every worker answers: when one hangs, systemd
//!   restarts the service.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;

use super::shutdown::Phase;
use super::worker_pool::{WorkerCommand, WorkerPool};

/// Whoever started this process and wants to know how it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceNotifier {
    is_there: bool,
    /// Within which time it wants to hear of us, again and again.
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// The one that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`), or nobody.
    pub fn from_environment() -> Self {
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some();
        Self { is_there, watchdog: sd_notify::watchdog_enabled().filter(|period| is_there && !period.is_zero()) }
    }

    /// Serving, after the start or a reload.
    pub(super) fn ready(self, status: &str) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// A reload has begun; [`ServiceNotifier::ready`] ends it.
    pub(super) fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now, NotifyState::Status("reloading the configuration")]),
            Err(error) => tracing::warn!(%error, "there is no clock to notify systemd of a reload"),
        }
    }

    /// The end has begun.
    pub(super) fn stopping(self) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }

    fn notify(self, news: &[NotifyState<'_>]) {
        if self.is_there
            && let Err(error) = sd_notify::notify(news)
        {
            tracing::warn!(%error, "systemd cannot be told how we are (NOTIFY_SOCKET)");
        }
    }

    /// Starts to keep the watchdog quiet, if there is one, until the other end of `end` is dropped.
    pub(super) fn start_watchdog(
        self,
        worker_pool: WorkerPool,
        phase: watch::Receiver<Phase>,
        end: Receiver<()>,
    ) -> anyhow::Result<()> {
        let Some(period) = self.watchdog else { return Ok(()) };
        // Together less than the period, also when a worker is slow.
        let (interval, patience) = (period / 2, period / 4);
        let keep = move || keep(interval, &end, || is_well(&worker_pool, &phase, patience), || self.alive());
        std::thread::Builder::new().name("watchdog".into()).spawn(keep)?;
        Ok(())
    }

    fn alive(self) {
        self.notify(&[NotifyState::Watchdog]);
    }
}

/// Tells in every interval that all is well, while it is.
fn keep(interval: Duration, end: &Receiver<()>, is_well: impl Fn() -> bool, alive: impl Fn()) {
    let mut was_well = true;
    loop {
        let well = is_well();
        if well {
            alive();
        } else if was_well {
            tracing::error!("a worker does not answer: the watchdog is not kept quiet");
        }
        was_well = well;
        match end.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Whether every worker answers. One that has ended does not, unless it was told to end.
fn is_well(worker_pool: &WorkerPool, phase: &watch::Receiver<Phase>, patience: Duration) -> bool {
    let acks = worker_pool.broadcast(patience, WorkerCommand::Ping);
    acks.timed_out == 0 && (acks.exited == 0 || *phase.borrow() >= Phase::Draining)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_worker_that_hangs_or_died_lets_the_watchdog_fire() {
        let (phase, watched) = watch::channel(Phase::Serving);
        let mut worker_pool = WorkerPool::default();
        let mut commands = worker_pool.join();
        let patience = Duration::from_millis(50);
        assert!(!is_well(&worker_pool, &watched, patience), "it hangs");
        let works = std::thread::spawn(move || {
            while let Some(WorkerCommand::Ping(done)) = commands.blocking_recv() {
                // The first who asked has stopped waiting.
                if done.send(()).is_ok() {
                    return commands;
                }
            }
            commands
        });
        assert!(is_well(&worker_pool, &watched, Duration::from_secs(60)), "it works");
        drop(works.join().unwrap());
        assert!(!is_well(&worker_pool, &watched, patience), "it died");
        phase.send_replace(Phase::Draining);
        assert!(is_well(&worker_pool, &watched, patience), "it was told to end");
    }

    #[test]
    fn only_while_all_is_well_the_watchdog_is_kept_quiet() {
        let (told, looks) = (Cell::new(0), Cell::new(0));
        let (stop, end) = mpsc::channel();
        let stop = Cell::new(Some(stop));
        let is_well = || {
            looks.set(looks.get() + 1);
            if looks.get() == 4 {
                drop(stop.take());
            }
            looks.get() % 2 == 1
        };
        keep(Duration::from_millis(1), &end, is_well, || told.set(told.get() + 1));
        assert_eq!((looks.get(), told.get()), (4, 2));
    }
}
