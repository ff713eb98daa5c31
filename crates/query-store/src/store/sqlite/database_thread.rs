//! The thread that owns the connection, with group commit.
//!
//! - Jobs run in the order of their arrival. Those that wait at the same time share one transaction and one fsync. Each
//!   job runs in a savepoint of its own, so a failed one does not affect the others.
//! - The result of a job is sent after the commit of its transaction, never before.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::store::StoreError;

/// Maximum number of jobs in one transaction: enough to share the fsync, few enough that no job waits long.
const MAX_GROUP: usize = 64;
/// Number of jobs that may wait before callers are suspended: that of some groups.
const QUEUE: usize = 256;

/// Handle of the thread. Dropping it completes the accepted jobs, then closes the connection.
pub(super) struct DatabaseThread {
    /// `None` only within `drop`.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    /// `None` only within `drop`.
    thread: Option<JoinHandle<()>>,
}

/// A job: runs in a transaction, and sends its result after the commit.
trait Job: Send {
    fn run(&mut self, transaction: &mut Transaction<'_>);
    fn send_result(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>);
}

struct PendingJob<F, T> {
    /// Taken by `run`.
    work: Option<F>,
    /// Set by `run`.
    result: Option<Result<T, rusqlite::Error>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl DatabaseThread {
    /// Starts the thread, which takes over the connection.
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("query-store-db".into()).spawn(|| run(connection, queue))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` in a transaction, and returns its result once that is committed. The work is done even when the
    /// caller stops waiting.
    pub(super) async fn run<F, T>(&self, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
        T: Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(PendingJob { work: Some(work), result: None, caller });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for DatabaseThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for DatabaseThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseThread")
    }
}

/// Runs the thread: takes the waiting jobs and commits them together, until the handle is dropped.
fn run(mut connection: Connection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    let mut group = Vec::with_capacity(MAX_GROUP);
    while let Some(first) = queue.blocking_recv() {
        group.push(first);
        while group.len() < MAX_GROUP {
            let Ok(job) = queue.try_recv() else { break };
            group.push(job);
        }
        let committed = run_and_commit(&mut connection, &mut group).map_err(Arc::new);
        group.drain(..).for_each(|job| job.send_result(committed.clone()));
    }
}

fn run_and_commit(connection: &mut Connection, group: &mut [Box<dyn Job>]) -> Result<(), rusqlite::Error> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for job in group {
        // Some failures, such as a full disk, end the whole transaction. A further statement would
        // then commit by itself.
        if transaction.is_autocommit() {
            break;
        }
        job.run(&mut transaction);
    }
    transaction.commit()
}

impl<F, T> Job for PendingJob<F, T>
where
    F: FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send,
    T: Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) {
        if let Some(work) = self.work.take() {
            self.result = Some(run_in_savepoint(transaction, work));
        }
    }

    fn send_result(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>) {
        let answer = match (self.result, committed) {
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Err(error)), _) => Err(StoreError::Statement(error)),
            (_, Err(error)) => Err(StoreError::Commit(error)),
            // The transaction ended before this job could run.
            (None, Ok(())) => Err(StoreError::Closed),
        };
        // The caller may have stopped waiting.
        let _ = self.caller.send(answer);
    }
}

fn run_in_savepoint<T>(
    transaction: &mut Transaction<'_>,
    work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let savepoint = transaction.savepoint()?;
    let value = work(&savepoint)?;
    savepoint.commit()?;
    Ok(value)
}
