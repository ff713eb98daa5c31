//! Graceful shutdown: the phases of a gateway, how threads wait for them, and how a drain is expedited.
//!
//! ```text
//! Serving --stop--> LameDuck --time-out or expedited--> Draining --all ended, time-out or expedited--> Ending
//! ```
//!
//! The phase only ever moves forward. Threads watch it; the thread that stops the gateway moves it and waits for the
//! workers in between ([`DrainWait`]).

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Phase of the gateway's life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// Serves every request, and asks clients to reconnect elsewhere.
    LameDuck,
    /// Accepts no new connections, and finishes the exchanges in flight.
    Draining,
    /// Drops the exchanges that are still in flight.
    Ending,
}

/// Completes when the gateway has reached a phase, or no longer exists.
pub(super) async fn wait_for_phase(mut phase: watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        tracing::debug!("the gateway was dropped before it reached a shutdown phase");
    }
}

/// Event that a stopping gateway waits for.
pub(super) enum ShutdownEvent {
    /// A worker has drained, or panicked.
    WorkerEnded,
    /// The current wait is to end now.
    Expedite,
}

/// Expedites the shutdown of a gateway. Usable from any thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle(pub(super) mpsc::Sender<ShutdownEvent>);

impl ShutdownHandle {
    /// Ends the current wait: the lame-duck time, or, when that is over, the drain. Ending the drain drops
    /// what is still in flight.
    pub fn expedite(&self) {
        // Sending fails only when the gateway has stopped already.
        self.0.send(ShutdownEvent::Expedite).ok();
    }
}

/// Waits for the workers of a stopping gateway.
pub(super) struct DrainWait {
    pub(super) events: mpsc::Receiver<ShutdownEvent>,
    /// Workers that have not ended.
    pub(super) running_workers: usize,
}

/// Reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainResult {
    AllEnded,
    Expedited,
    TimedOut,
}

impl DrainWait {
    /// Waits until all workers have ended, the shutdown is expedited, or `timeout` has passed.
    pub(super) fn wait(&mut self, timeout: Duration) -> DrainResult {
        let deadline = Instant::now() + timeout;
        while self.running_workers > 0 {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(ShutdownEvent::WorkerEnded) => self.running_workers -= 1,
                // Each expedite ends one wait only: the first skips the lame duck, the next one ends the drain.
                Ok(ShutdownEvent::Expedite) => return DrainResult::Expedited,
                Err(_) => return DrainResult::TimedOut,
            }
        }
        DrainResult::AllEnded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn drain_wait_ends_by_last_worker_expedite_or_time_out() {
        let (sender, events) = mpsc::channel();
        let mut drain_wait = DrainWait { events, running_workers: 2 };
        sender.send(ShutdownEvent::WorkerEnded).unwrap();
        assert_eq!(drain_wait.wait(Duration::from_millis(1)), DrainResult::TimedOut);
        ShutdownHandle(sender.clone()).expedite();
        assert_eq!(drain_wait.wait(LONG), DrainResult::Expedited);
        sender.send(ShutdownEvent::WorkerEnded).unwrap();
        assert_eq!(drain_wait.wait(LONG), DrainResult::AllEnded);
        assert_eq!(drain_wait.wait(LONG), DrainResult::AllEnded);
    }
}
