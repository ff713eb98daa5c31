//! The workers as the rest of the gateway sees them: what they can be told, and whether they answer.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc as orders;

use crate::attempts::Attempts;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::tls;
use crate::upstream::Endpoints;

/// Orders that a worker may have before it; one that has more does not work.
const ORDERS: usize = 8;

/// What a worker serves by. Everything that can fail about a configuration has been done when there is one.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) config: Arc<Config>,
    pub(super) endpoints: Endpoints,
    pub(super) attempts: Attempts,
}

impl Plan {
    /// The plan of the start.
    pub(super) fn first(config: Config, endpoints: Endpoints) -> Self {
        Self { endpoints, attempts: Attempts::new(config.bad_keys), config: Arc::new(config) }
    }

    /// The plan after this one, by another configuration. Attempts with bad keys are forgotten when they are bounded in
    /// another way.
    ///
    /// # Errors
    /// [`tls::Error`] when a file for encrypted connections to the upstream is of no use.
    pub(super) fn next(&self, config: Config, metrics: &Metrics) -> Result<Self, tls::Error> {
        let endpoints = self.endpoints.changed(&self.config.upstream, &config.upstream, metrics)?;
        let is_same = config.bad_keys == self.config.bad_keys;
        let attempts = if is_same { self.attempts.clone() } else { Attempts::new(config.bad_keys) };
        Ok(Self { endpoints, attempts, config: Arc::new(config) })
    }
}

/// What a worker is told.
pub(super) enum Order {
    /// Serve by another plan from the next request on.
    Adopt(Plan, Done),
    /// Say that you are there.
    Answer(Done),
}

/// Where a worker says that an order was carried out; when it is dropped unused, it never will be.
pub(super) type Done = mpsc::Sender<()>;

/// All workers.
#[derive(Clone, Default)]
pub(super) struct Crew(Vec<orders::Sender<Order>>);

/// How the workers took an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Have carried it out.
    pub(super) done: usize,
    /// Have not, in time.
    pub(super) silent: usize,
    /// Have ended.
    pub(super) gone: usize,
}

impl Crew {
    /// One more worker, which takes its orders from here.
    pub(super) fn join(&mut self) -> orders::Receiver<Order> {
        let (sender, receiver) = orders::channel(ORDERS);
        self.0.push(sender);
        receiver
    }

    /// Tells all of them, and waits so long at most until they have done it. Not for the threads of workers.
    pub(super) fn tell(&self, patience: Duration, order: impl Fn(Done) -> Order) -> Heard {
        let (done, answers) = mpsc::channel();
        let (mut heard, mut waiting) = (Heard::default(), 0);
        for worker in &self.0 {
            match worker.try_send(order(done.clone())) {
                Ok(()) => waiting += 1,
                Err(orders::error::TrySendError::Full(_)) => heard.silent += 1,
                Err(orders::error::TrySendError::Closed(_)) => heard.gone += 1,
            }
        }
        drop(done);
        let deadline = Instant::now() + patience;
        while heard.done < waiting {
            match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => heard.done += 1,
                Err(mpsc::RecvTimeoutError::Timeout) => break,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    heard.gone += waiting - heard.done;
                    return heard;
                }
            }
        }
        heard.silent += waiting - heard.done;
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_do_it_are_told_from_those_that_hang_and_those_that_are_gone() {
        let mut crew = Crew::default();
        let (mut works, hangs, gone) = (crew.join(), crew.join(), crew.join());
        drop(gone);
        let worker = std::thread::spawn(move || {
            while let Some(Order::Answer(done)) = works.blocking_recv() {
                done.send(()).unwrap();
            }
        });
        let tell = |patience| crew.tell(Duration::from_millis(patience), Order::Answer);
        assert_eq!(tell(300), Heard { done: 1, silent: 1, gone: 1 });
        drop(hangs);
        assert_eq!(tell(60_000), Heard { done: 1, silent: 0, gone: 2 });
        drop(crew);
        worker.join().unwrap();
    }

    #[test]
    fn a_worker_that_takes_no_orders_is_not_told_for_ever() {
        let mut crew = Crew::default();
        let _hangs = crew.join();
        for _ in 0..ORDERS {
            crew.tell(Duration::ZERO, Order::Answer);
        }
        let before = Instant::now();
        assert_eq!(crew.tell(Duration::from_secs(60), Order::Answer), Heard { done: 0, silent: 1, gone: 0 });
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
