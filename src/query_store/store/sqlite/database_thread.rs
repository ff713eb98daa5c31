//! The one thread that owns the connection, and group commit.
//!
//! - Jobs are done in the order of their arrival; those that wait at the same moment share one transaction and one
//!   fsync. Each runs in a savepoint of its own, so one that fails leaves the others alone.
//! - A job is answered after the commit of its transaction, never before.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::query_store::store::StoreError;

/// Jobs in one transaction: enough to make the fsync cheap for each, few enough that none waits long.
const GROUP: usize = 64;
/// Jobs that wait before callers have to: some groups' worth.
const QUEUE: usize = 256;

/// The async side of the thread. Dropping it finishes what was accepted, then closes the connection.
pub(super) struct DatabaseThread {
    /// `None` only within `drop`.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    /// `None` only within `drop`.
    thread: Option<JoinHandle<()>>,
}

/// Something to do in a transaction: done first, answered after the commit.
trait Job: Send {
    fn run(&mut self, transaction: &mut Transaction<'_>);
    fn answer(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>);
}

struct Work<F, T> {
    /// Taken by `run`.
    work: Option<F>,
    /// Set by `run`.
    result: Option<Result<T, rusqlite::Error>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl DatabaseThread {
    /// Hands the connection to a new thread.
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("query-store-db".into()).spawn(|| run(connection, queue))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Does `work` in a transaction and returns its result once that is committed. The work is done even when the
    /// caller stops waiting.
    pub(super) async fn run<F, T>(&self, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
        T: Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Work { work: Some(work), result: None, caller });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for DatabaseThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened; there is nobody to tell again.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for DatabaseThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseThread")
    }
}

/// The thread: takes what waits, commits it together, until nobody can ask any more.
fn run(mut connection: Connection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    let mut group = Vec::with_capacity(GROUP);
    while let Some(first) = queue.blocking_recv() {
        group.push(first);
        while group.len() < GROUP {
            let Ok(job) = queue.try_recv() else { break };
            group.push(job);
        }
        let committed = commit(&mut connection, &mut group).map_err(Arc::new);
        group.drain(..).for_each(|job| job.answer(committed.clone()));
    }
}

fn commit(connection: &mut Connection, group: &mut [Box<dyn Job>]) -> Result<(), rusqlite::Error> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for job in group {
        // Some failures (a full disk) end the whole transaction; then nothing more may run, it would commit by itself.
        if transaction.is_autocommit() {
            break;
        }
        job.run(&mut transaction);
    }
    transaction.commit()
}

impl<F, T> Job for Work<F, T>
where
    F: FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send,
    T: Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) {
        if let Some(work) = self.work.take() {
            self.result = Some(in_savepoint(transaction, work));
        }
    }

    fn answer(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>) {
        let answer = match (self.result, committed) {
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Err(error)), _) => Err(StoreError::Statement(error)),
            (_, Err(error)) => Err(StoreError::Commit(error)),
            (None, Ok(())) => Err(StoreError::Closed),
        };
        // The caller may have stopped waiting.
        let _ = self.caller.send(answer);
    }
}

fn in_savepoint<T>(
    transaction: &mut Transaction<'_>,
    work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let savepoint = transaction.savepoint()?;
    let value = work(&savepoint)?;
    savepoint.commit()?;
    Ok(value)
}
