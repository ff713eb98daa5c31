//! The writer: one thread that owns the SQLite connection, commits changes, and writes back usage.
//!
//! - A change is answered after it was committed and applied to memory: it is durable, and effective.
//! - All waiting operations are committed together (group commit), in the order of their arrival; one that fails does
//!   not undo the others.
//! - At checkpoints (`checkpoint_schedule`), and at the end, the usage of dirty keys is written back; each
//!   minute, and at the end, uses and expiries of sessions. A write-back that failed is retried, and nothing is
//!   forgotten meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::ChangeError;

use super::checkpoint::{Checkpoint, Round};
use super::checkpoint_schedule::{CheckpointSchedule, ProgressProbe};
use super::directory::Directory;
use super::file_reserve::FileReserve;
use super::identity_rows::StateIdentityWatch;
use super::operation::{Operation, Reply, Request};

/// Time between two looks whether a checkpoint is due, and between write-backs of usage that no journal has.
const WRITE_BACK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between write-backs of sessions: what a crash loses of their last uses stays small against the time
/// that they may go unused.
pub(super) const SESSION_INTERVAL: Duration = Duration::from_secs(60);
/// Operations committed in one transaction: with more of them the share of the commit hardly shrinks further.
const OPERATIONS_PER_COMMIT: usize = 10_000;

/// Handle to the writer thread. Dropping it waits until everything is written and the thread has ended.
pub(super) struct Writer {
    /// Held here alone: when it is dropped, the thread writes everything and ends.
    sender: Sender<Message>,
    /// Joined on drop.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// True when the thread has ended because another process has the file. The thread sets it before it ends.
    is_handed_over: Arc<AtomicBool>,
}

#[allow(clippy::large_enum_variant, reason = "nearly every message is a change; a box would only add an allocation")]
enum Message {
    Request(Request),
    FollowJournal(ProgressProbe),
    /// Retires keys now: the time for which revoked ones are listed was set.
    Retire,
    /// Reads from the file. Changes that are not acknowledged may be in it or not.
    Read(Box<dyn FnOnce(&Connection) + Send>),
    /// Ends the round: what was submitted before is committed first.
    EndRound(End),
}

/// Message that ends a round of the thread.
enum End {
    /// Acknowledged, by dropping the sender, when what waits to be written back is written.
    WriteBack(oneshot::Sender<()>),
    /// Answered when the meters of budgets are written.
    WriteBudgets(oneshot::Sender<rusqlite::Result<()>>),
    /// Answered, with whether all of it succeeded, when everything is written. Then the thread waits until it
    /// is to go on, or ends.
    Pause(oneshot::Sender<bool>, Receiver<()>),
    /// Acknowledged, by dropping the sender, when everything is written and the file is closed; none when every handle
    /// is gone.
    Close(Option<oneshot::Sender<()>>),
}

/// State of the writer thread.
pub(super) struct WriterThread {
    pub(super) connection: Connection,
    /// Space for a full disk.
    pub(super) reserve: FileReserve,
    pub(super) directory: Arc<Directory>,
    pub(super) watched: StateIdentityWatch,
    receiver: Receiver<Message>,
    is_handed_over: Arc<AtomicBool>,
    /// The checkpoint that is being written.
    pub(super) checkpoint: Checkpoint,
    pub(super) schedule: CheckpointSchedule,
    /// Time of the next look for keys to retire.
    pub(super) retire_due: Instant,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        reserve: FileReserve,
        directory: Arc<Directory>,
        watched: StateIdentityWatch,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let checkpoint = Checkpoint::default();
        let schedule = CheckpointSchedule::new(Box::new(|| None));
        let retire_due = Instant::now() + SESSION_INTERVAL;
        let is_handed_over = Arc::<AtomicBool>::default();
        let state = WriterThread {
            connection,
            reserve,
            directory,
            watched,
            receiver,
            is_handed_over: Arc::clone(&is_handed_over),
            checkpoint,
            schedule,
            retire_due,
        };
        let thread = thread::Builder::new().name("state-writer".into()).spawn(|| state.run())?;
        Ok(Self { sender, thread: Mutex::new(Some(thread)), is_handed_over })
    }

    /// Writes usage back at checkpoints from now on, by the progress of the journal.
    pub(super) fn follow_journal(&self, progress: ProgressProbe) {
        // An error says that the thread has ended: there is nothing to write to any more.
        let _ = self.sender.send(Message::FollowJournal(progress));
    }

    /// Retires the keys whose time is over, before the changes that are submitted later.
    pub(super) fn retire(&self) {
        // An error says that the thread has ended: there is nothing to write to any more.
        let _ = self.sender.send(Message::Retire);
    }

    /// Reads from the file.
    ///
    /// # Errors
    /// SQLite failed, or the state is closed.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let (reply, answer) = oneshot::channel();
        // An error says that the caller has gone.
        let read = move |connection: &Connection| drop(reply.send(read(connection)));
        // An error says that the thread has ended, and so does a reply that never comes.
        let _ = self.sender.send(Message::Read(Box::new(read)));
        answer.await.unwrap_or(Err(rusqlite::Error::InvalidQuery))
    }

    /// Performs an operation. Once submitted it is performed even when the caller does not wait for the answer.
    pub(super) async fn submit(&self, operation: Operation) -> Reply {
        let (reply, answer) = oneshot::channel();
        let request = Request { operation, reply };
        self.sender.send(Message::Request(request)).map_err(|_| self.end_error())?;
        answer.await.unwrap_or_else(|_| Err(self.end_error()))
    }

    /// The error of an operation that the thread did not perform before it ended.
    fn end_error(&self) -> ChangeError {
        if self.is_handed_over.load(Ordering::Acquire) { ChangeError::HandedOver } else { ChangeError::Closed }
    }

    /// Writes back the usage of dirty keys, while changes of before and after are made.
    pub(super) async fn write_back(&self) {
        let (ack, written) = oneshot::channel();
        if self.sender.send(Message::EndRound(End::WriteBack(ack))).is_ok() {
            // No value is ever sent: the error says that the thread has dropped its end.
            let _ = written.await;
        }
    }

    /// Writes the meters of budgets.
    ///
    /// # Errors
    /// [`ChangeError`]; what is not written is written back later.
    pub(super) async fn write_budgets(&self) -> Result<(), ChangeError> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::EndRound(End::WriteBudgets(reply))).map_err(|_| self.end_error())?;
        let written = answer.await.map_err(|_| self.end_error())?;
        written.map_err(|error| ChangeError::Unavailable(error.into()))
    }

    /// Writes everything, and nothing more until the sender of `resumed` sends; when that is dropped, the thread ends.
    /// Returns true when everything could be written.
    pub(super) async fn pause(&self, resumed: Receiver<()>) -> bool {
        let (ack, paused) = oneshot::channel();
        self.sender.send(Message::EndRound(End::Pause(ack, resumed))).is_ok() && paused.await.unwrap_or(false)
    }

    /// Writes everything and ends the thread. Changes submitted before are made, later ones are not.
    pub(super) async fn close(&self) {
        let (ack, closed) = oneshot::channel();
        if self.sender.send(Message::EndRound(End::Close(Some(ack)))).is_ok() {
            // No value is ever sent: the error says that the thread has dropped its end.
            let _ = closed.await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // An error says that the thread has ended already.
        let _ = self.sender.send(Message::EndRound(End::Close(None)));
        let thread = self.thread.get_mut().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(
                "the thread that writes the state panicked; the last changes of usage may be missing in the file"
            );
        }
    }
}

/// End of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paused {
    /// The thread goes on.
    Resumed,
    /// Another process has the state.
    HandedOver,
}

impl WriterThread {
    fn run(mut self) {
        let mut write_back_due = Instant::now() + WRITE_BACK_INTERVAL;
        let mut sessions_due = Instant::now() + SESSION_INTERVAL;
        let close_ack = loop {
            let (requests, end) = self.receive(write_back_due.min(self.retire_due));
            if !requests.is_empty() {
                self.commit(requests);
            }
            match end {
                Some(End::Close(close_ack)) => break close_ack,
                // Dropped afterwards, which answers.
                Some(End::WriteBack(_ack)) => self.write_back_all(),
                Some(End::WriteBudgets(reply)) => {
                    // An error says that the caller has gone.
                    let _ = reply.send(self.write_budgets());
                }
                Some(End::Pause(ack, resumed)) => match self.pause(ack, &resumed) {
                    Paused::Resumed => {}
                    // Another process has the file: it is left as it is.
                    Paused::HandedOver => return,
                },
                None => {}
            }
            if Instant::now() >= write_back_due {
                self.watched.tick();
                self.directory.principals.trim();
                // A round that left keys over is followed by the next one at once, after the requests that wait.
                let pause = if self.write_back_due() == Round::More { Duration::ZERO } else { WRITE_BACK_INTERVAL };
                write_back_due = Instant::now() + pause;
            }
            if Instant::now() >= self.retire_due {
                self.retire_keys();
            }
            if Instant::now() >= sessions_due {
                self.write_sessions();
                sessions_due = Instant::now() + SESSION_INTERVAL;
            }
        };
        self.write_back_all();
        self.write_sessions();
        // The file is closed before the close is acknowledged: the caller may open it again at once.
        self.reserve.close(self.connection);
        drop(close_ack);
    }

    /// Writes everything, and waits.
    fn pause(&mut self, ack: oneshot::Sender<bool>, resumed: &Receiver<()>) -> Paused {
        self.write_back_all();
        self.write_sessions();
        // An error says that the caller has gone.
        let _ = ack.send(!self.checkpoint.failing && self.checkpoint.pending.is_empty());
        let end = if resumed.recv().is_ok() { Paused::Resumed } else { Paused::HandedOver };
        // Before the operations that wait are dropped, which tells their callers.
        self.is_handed_over.store(end == Paused::HandedOver, Ordering::Release);
        end
    }

    /// Waits for a message, at most until `due`, and takes all that are there, up to one that ends
    /// or pauses the thread.
    fn receive(&mut self, due: Instant) -> (Vec<Request>, Option<End>) {
        let mut requests = Vec::new();
        let mut next = self.receiver.recv_timeout(due.saturating_duration_since(Instant::now()));
        loop {
            match next {
                Ok(Message::Request(request)) => requests.push(request),
                Ok(Message::FollowJournal(progress)) => self.schedule = CheckpointSchedule::new(progress),
                Ok(Message::Retire) => {
                    // At once: what was submitted before is committed first, what follows sees the keys retired.
                    self.retire_due = Instant::now();
                    return (requests, None);
                }
                Ok(Message::Read(read)) => read(&self.connection),
                Ok(Message::EndRound(end)) => return (requests, Some(end)),
                Err(RecvTimeoutError::Disconnected) => return (requests, Some(End::Close(None))),
                Err(RecvTimeoutError::Timeout) => return (requests, None),
            }
            if requests.len() == OPERATIONS_PER_COMMIT {
                return (requests, None);
            }
            next = self.receiver.recv_timeout(Duration::ZERO);
        }
    }
}
