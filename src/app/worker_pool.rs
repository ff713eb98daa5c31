//! The workers as the rest of the gateway sees them: what they can be told, and whether they answer.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc as commands;

use crate::config::Config;
use crate::failed_auth::FailedAuthLimiter;
use crate::metrics::Metrics;
use crate::tls;
use crate::upstream::Endpoints;

/// Orders that a worker may have before it; one that has more does not work.
const MAX_PENDING_COMMANDS: usize = 8;

/// What a worker serves by. Everything that can fail about a configuration has been acked when there is one.
#[derive(Clone)]
pub(super) struct ConfigSnapshot {
    pub(super) config: Arc<Config>,
    pub(super) endpoints: Endpoints,
    pub(super) failed_auth: FailedAuthLimiter,
}

impl ConfigSnapshot {
    /// The snapshot of the start.
    pub(super) fn first(config: Config, endpoints: Endpoints) -> Self {
        Self { endpoints, failed_auth: FailedAuthLimiter::new(config.bad_keys), config: Arc::new(config) }
    }

    /// The snapshot after this one, by another configuration. FailedAuthLimiter with bad keys are forgotten when they are bounded in
    /// another way.
    ///
    /// # Errors
    /// [`tls::Error`] when a file for encrypted connections to the upstream is of no use.
    pub(super) fn next(&self, config: Config, metrics: &Metrics) -> Result<Self, tls::Error> {
        let endpoints = self.endpoints.changed(&self.config.upstream, &config.upstream, metrics)?;
        let is_same = config.bad_keys == self.config.bad_keys;
        let failed_auth = if is_same { self.failed_auth.clone() } else { FailedAuthLimiter::new(config.bad_keys) };
        Ok(Self { endpoints, failed_auth, config: Arc::new(config) })
    }
}

/// What a worker is told.
pub(super) enum WorkerCommand {
    /// Serve by another snapshot from the next request on.
    ApplyConfig(ConfigSnapshot, AckSender),
    /// Say that you are there.
    Ping(AckSender),
}

/// Where a worker says that an command was carried out; when it is dropped unused, it never will be.
pub(super) type AckSender = mpsc::Sender<()>;

/// All workers.
#[derive(Clone, Default)]
pub(super) struct WorkerPool(Vec<commands::Sender<WorkerCommand>>);

/// How the workers took an command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acks {
    /// Have carried it out.
    pub(super) acked: usize,
    /// Have not, in time.
    pub(super) timed_out: usize,
    /// Have ended.
    pub(super) exited: usize,
}

impl WorkerPool {
    /// One more worker, which takes its commands from here.
    pub(super) fn join(&mut self) -> commands::Receiver<WorkerCommand> {
        let (sender, receiver) = commands::channel(MAX_PENDING_COMMANDS);
        self.0.push(sender);
        receiver
    }

    /// Tells all of them, and waits so long at most until they have acked it. Not for the threads of workers.
    pub(super) fn broadcast(&self, patience: Duration, command: impl Fn(AckSender) -> WorkerCommand) -> Acks {
        let (acked, answers) = mpsc::channel();
        let (mut acks, mut waiting) = (Acks::default(), 0);
        for worker in &self.0 {
            match worker.try_send(command(acked.clone())) {
                Ok(()) => waiting += 1,
                Err(commands::error::TrySendError::Full(_)) => acks.timed_out += 1,
                Err(commands::error::TrySendError::Closed(_)) => acks.exited += 1,
            }
        }
        drop(acked);
        let deadline = Instant::now() + patience;
        while acks.acked < waiting {
            match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => acks.acked += 1,
                Err(mpsc::RecvTimeoutError::Timeout) => break,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    acks.exited += waiting - acks.acked;
                    return acks;
                }
            }
        }
        acks.timed_out += waiting - acks.acked;
        acks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_do_it_are_told_from_those_that_hang_and_those_that_are_gone() {
        let mut pool = WorkerPool::default();
        let (mut works, hangs, exited) = (pool.join(), pool.join(), pool.join());
        drop(exited);
        let worker = std::thread::spawn(move || {
            while let Some(WorkerCommand::Ping(acked)) = works.blocking_recv() {
                acked.send(()).unwrap();
            }
        });
        let broadcast = |patience| pool.broadcast(Duration::from_millis(patience), WorkerCommand::Ping);
        assert_eq!(broadcast(300), Acks { acked: 1, timed_out: 1, exited: 1 });
        drop(hangs);
        assert_eq!(broadcast(60_000), Acks { acked: 1, timed_out: 0, exited: 2 });
        drop(pool);
        worker.join().unwrap();
    }

    #[test]
    fn a_worker_that_takes_no_orders_is_not_told_for_ever() {
        let mut pool = WorkerPool::default();
        let _hangs = pool.join();
        for _ in 0..MAX_PENDING_COMMANDS {
            pool.broadcast(Duration::ZERO, WorkerCommand::Ping);
        }
        let before = Instant::now();
        assert_eq!(
            pool.broadcast(Duration::from_secs(60), WorkerCommand::Ping),
            Acks { acked: 0, timed_out: 1, exited: 0 }
        );
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
