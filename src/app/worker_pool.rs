//! Worker control channel: broadcasts commands to all workers and collects their acknowledgements.
//!
//! Workers are single threads that must never block, so the channel to each is bounded and a broadcast never waits for
//! room in it. The thread that broadcasts waits for acknowledgements, at most until its deadline.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc as commands;

use super::config_snapshot::ConfigSnapshot;

/// Commands that may wait for one worker. A worker takes them between two polls, so one with more than these hangs.
const MAX_PENDING_COMMANDS: usize = 8;

/// A command to one worker, with the channel on which the worker acknowledges it.
pub(super) enum WorkerCommand {
    /// Serve by another configuration from the next request on.
    ApplyConfig(Box<ConfigSnapshot>, AckSender),
    /// Acknowledge and do nothing else; shows that the worker's runtime still runs.
    Ping(AckSender),
}

/// Acknowledges a command by `()`. Dropped unused, it says that the worker exited before it ran the command.
pub(super) type AckSender = mpsc::Sender<()>;

/// Control channels of all workers.
#[derive(Clone, Default)]
pub(super) struct WorkerPool(Vec<commands::Sender<WorkerCommand>>);

/// Number of workers by how they took a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acks {
    /// Ran the command.
    pub(super) acked: usize,
    /// Still run, and did not take the command before the deadline.
    pub(super) timed_out: usize,
    /// Have ended.
    pub(super) exited: usize,
}

impl WorkerPool {
    /// Adds a worker, and returns the channel on which it receives its commands.
    pub(super) fn add_worker(&mut self) -> commands::Receiver<WorkerCommand> {
        let (sender, receiver) = commands::channel(MAX_PENDING_COMMANDS);
        self.0.push(sender);
        receiver
    }

    /// Sends a command to every worker, and waits at most `within` for all acknowledgements.
    ///
    /// Blocks, so it must not be called on the thread of a worker.
    pub(super) fn broadcast(&self, within: Duration, command: impl Fn(AckSender) -> WorkerCommand) -> Acks {
        let (ack, received) = mpsc::channel();
        let mut acks = Acks::default();
        let mut sent = 0;
        for worker in &self.0 {
            match worker.try_send(command(ack.clone())) {
                Ok(()) => sent += 1,
                // The worker has not taken earlier commands: waiting for it would only delay the others.
                Err(commands::error::TrySendError::Full(_)) => acks.timed_out += 1,
                Err(commands::error::TrySendError::Closed(_)) => acks.exited += 1,
            }
        }
        // Only the workers hold a sender now, so the channel disconnects when the last of them is done or gone.
        drop(ack);
        let deadline = Instant::now() + within;
        while acks.acked < sent {
            match received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => acks.acked += 1,
                Err(mpsc::RecvTimeoutError::Timeout) => break,
                // All senders are gone: the workers without an acknowledgement exited, they did not time out.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    acks.exited += sent - acks.acked;
                    return acks;
                }
            }
        }
        acks.timed_out += sent - acks.acked;
        acks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_counts_acked_hung_and_exited_workers() {
        let mut pool = WorkerPool::default();
        let mut running = pool.add_worker();
        let hung = pool.add_worker();
        let exited = pool.add_worker();
        drop(exited);
        let worker = std::thread::spawn(move || {
            while let Some(WorkerCommand::Ping(ack)) = running.blocking_recv() {
                ack.send(()).unwrap();
            }
        });
        let ping = |within| pool.broadcast(Duration::from_millis(within), WorkerCommand::Ping);
        assert_eq!(ping(300), Acks { acked: 1, timed_out: 1, exited: 1 });
        drop(hung);
        assert_eq!(ping(60_000), Acks { acked: 1, timed_out: 0, exited: 2 });
        drop(pool);
        worker.join().unwrap();
    }

    #[test]
    fn broadcast_returns_at_once_when_command_queue_is_full() {
        let mut pool = WorkerPool::default();
        let _hung = pool.add_worker();
        for _ in 0..MAX_PENDING_COMMANDS {
            pool.broadcast(Duration::ZERO, WorkerCommand::Ping);
        }
        let before = Instant::now();
        let acks = pool.broadcast(Duration::from_secs(60), WorkerCommand::Ping);
        assert_eq!(acks, Acks { acked: 0, timed_out: 1, exited: 0 });
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
