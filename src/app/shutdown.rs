//! The phases of a gateway's life, how its threads learn of them, and how its end is hastened.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// What the gateway's threads are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// Serve everybody, and ask them to go elsewhere.
    LameDuck,
    /// Take nothing new, end what is in flight.
    Draining,
    /// Drop what is still in flight.
    Ending,
}

/// Completes when the gateway has come to a phase, or is gone.
pub(super) async fn wait_for_phase(mut phase: watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        tracing::debug!("the gateway is gone");
    }
}

/// What happens while a gateway stops.
pub(super) enum ShutdownEvent {
    /// A worker has nothing left to do.
    WorkerEnded,
    /// Somebody is in a hurry.
    Expedite,
}

/// Makes a gateway that stops be quicker. Usable from any thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle(pub(super) mpsc::Sender<ShutdownEvent>);

impl ShutdownHandle {
    /// Skips the lame duck; when that is over, drops what is still in flight.
    pub fn expedite(&self) {
        // A gateway that is gone cannot be quicker.
        self.0.send(ShutdownEvent::Expedite).ok();
    }
}

/// What a stopping gateway waits for.
pub(super) struct DrainWait {
    pub(super) events: mpsc::Receiver<ShutdownEvent>,
    /// Workers that have not ended.
    pub(super) left: usize,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainResult {
    /// Nothing is left to wait for.
    AllEnded,
    Expedited,
    TimedOut,
}

impl DrainWait {
    /// Waits for so long at most.
    pub(super) fn wait(&mut self, patience: Duration) -> DrainResult {
        let deadline = Instant::now() + patience;
        while self.left > 0 {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(ShutdownEvent::WorkerEnded) => self.left -= 1,
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
    fn a_wait_ends_with_the_last_worker_a_hurry_or_its_time() {
        let (sender, events) = mpsc::channel();
        let mut drain_wait = DrainWait { events, left: 2 };
        sender.send(ShutdownEvent::WorkerEnded).unwrap();
        assert_eq!(drain_wait.wait(Duration::from_millis(1)), DrainResult::TimedOut);
        ShutdownHandle(sender.clone()).expedite();
        assert_eq!(drain_wait.wait(LONG), DrainResult::Expedited);
        sender.send(ShutdownEvent::WorkerEnded).unwrap();
        assert_eq!(drain_wait.wait(LONG), DrainResult::AllEnded);
        assert_eq!(drain_wait.wait(LONG), DrainResult::AllEnded);
    }
}
