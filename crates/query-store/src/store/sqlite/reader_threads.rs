//! Threads that read, each with a connection of its own.
//!
//! - They take jobs from one queue: a job waits only while all threads are busy.
//! - A job runs in a transaction of its own, which sees what was committed before it began, also what
//!   the caller has written.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::{Connection, Result};
use tokio::sync::{mpsc, oneshot};

use crate::store::StoreError;

/// Number of jobs that may wait before callers are suspended.
const QUEUE: usize = 256;

/// A job: reads, and sends its result.
type Job = Box<dyn FnOnce(&mut Connection) + Send>;
/// The queue: one thread at a time waits for the next job.
type Queue = Arc<Mutex<mpsc::Receiver<Job>>>;

/// Handle of the threads. Dropping it completes the accepted jobs, then closes the connections.
pub(super) struct ReaderThreads {
    /// `None` only within `drop`.
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl ReaderThreads {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let queue: Queue = Arc::new(Mutex::new(queue));
        let start = |connection| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name("query-store-read".into()).spawn(move || run(connection, &queue))
        };
        let threads = connections.into_iter().map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), threads })
    }

    /// Runs `work` in a transaction, and returns its result.
    pub(super) async fn run<F, T>(&self, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let read = connection.transaction().and_then(|transaction| work(&transaction));
            // The caller may have stopped waiting.
            let _ = caller.send(read.map_err(StoreError::Statement));
        });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ReaderThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReaderThreads")
    }
}

/// Runs jobs until the handle is dropped.
fn run(mut connection: Connection, queue: &Queue) {
    loop {
        // The lock is held while this thread waits, and not while it reads.
        let job = queue.lock().blocking_recv();
        match job {
            Some(job) => job(&mut connection),
            None => return,
        }
    }
}
