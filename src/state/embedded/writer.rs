//! The one thread that writes: it owns the SQLite connection, commits changes, and writes back what uses changed.
//!
//! - A change is answered after it was committed and applied to memory: durable, and effective.
//! - Whatever waits is committed together, in the order of its arrival; a change that fails does not undo the others.
//! - Each second, and at the end, keys that were used are written back; each minute, and at the end, what time has
//!   changed about sessions. When that fails it is tried again, and nothing is forgotten.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use crate::clock::{self, Micros};
use crate::session::TokenDigest;
use crate::state::{Change, ChangeError};

use super::directory::Directory;
use super::live::KeyRecord;
use super::{changes, session_rows, store, tickets};

/// How often uses are written back: what must be replayed from the journal after a crash stays small.
const WRITE_BACK: Duration = Duration::from_secs(1);
/// How often sessions are looked through: what a crash forgets of when they were used stays small against how long they
/// may go unused.
const LOOK_THROUGH: Duration = Duration::from_secs(60);
/// How long before a write-back a use can have read the clock and still not be part of it. A thread that is suspended
/// between the two for longer than this does not exist on a machine that still serves.
const MARGIN: Duration = Duration::from_secs(10);
/// Keys written back in one transaction: changes wait for it, so it should take a fraction of a second.
const KEYS_PER_ROUND: usize = 50_000;
/// Changes committed in one transaction: enough to make the cost of the commit vanish.
const CHANGES_PER_COMMIT: usize = 10_000;

/// The way to the thread. Dropping it waits until everything is written and the thread has ended.
pub(super) struct Writer {
    sender: Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[allow(clippy::large_enum_variant, reason = "nearly every message is a change; a box would only add an allocation")]
enum Message {
    Request(Request),
    /// Answered, by being dropped, when everything is written and the file is closed.
    Close(oneshot::Sender<()>),
}

/// Who waits for the end, if anybody.
type Closing = Option<oneshot::Sender<()>>;

struct Request {
    wanted: Wanted,
    /// With what was taken.
    reply: oneshot::Sender<Result<Option<Vec<u8>>, ChangeError>>,
}

#[allow(clippy::large_enum_variant, reason = "nearly every one is a change; a box would only add an allocation")]
enum Wanted {
    Change(Change),
    /// The ticket with this digest, as of this time.
    Ticket(TokenDigest, Micros),
}

/// What the thread owns.
struct Work {
    connection: Connection,
    directory: Arc<Directory>,
    receiver: Receiver<Message>,
    /// Keys taken from the directory's list and not yet written back.
    pending: Vec<Arc<KeyRecord>>,
    /// When `pending` was taken: every use that is not in it, and was noted before, is written.
    taken_at: Micros,
    /// The last write-back failed, and was logged.
    failing: bool,
}

/// How a round of writing back went.
#[derive(PartialEq)]
enum Round {
    Complete,
    More,
    Failed,
}

impl Writer {
    pub(super) fn start(connection: Connection, directory: Arc<Directory>) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let (pending, taken_at, failing) = (Vec::new(), Micros::default(), false);
        let work = Work { connection, directory, receiver, pending, taken_at, failing };
        let thread = thread::Builder::new().name("state-writer".into()).spawn(|| work.run())?;
        Ok(Self { sender, thread: Mutex::new(Some(thread)) })
    }

    /// Has a change made. Once handed over it is made even when the caller does not wait for the answer.
    pub(super) async fn change(&self, change: Change) -> Result<(), ChangeError> {
        self.have(Wanted::Change(change)).await.map(drop)
    }

    /// Has a ticket removed, and gives what it was.
    pub(super) async fn take(&self, digest: TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        self.have(Wanted::Ticket(digest, now)).await
    }

    async fn have(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, ChangeError> {
        let (reply, answer) = oneshot::channel();
        let request = Request { wanted, reply };
        self.sender.send(Message::Request(request)).map_err(|_| ChangeError::Closed)?;
        answer.await.unwrap_or(Err(ChangeError::Closed))
    }

    /// Writes what is not yet written and ends the thread. Changes handed over before are made, later ones are not.
    pub(super) async fn close(&self) {
        let (closing, closed) = oneshot::channel();
        if self.sender.send(Message::Close(closing)).is_ok() {
            // Nothing is ever sent: the error says that the thread let go of it.
            let _ = closed.await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // An error says that the thread has ended already.
        let _ = self.sender.send(Message::Close(oneshot::channel().0));
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes the state has panicked");
        }
    }
}

impl Work {
    fn run(mut self) {
        let (mut due, mut look_through) = (Instant::now() + WRITE_BACK, Instant::now() + LOOK_THROUGH);
        let closing = loop {
            let (requests, closing) = self.receive(due);
            if !requests.is_empty() {
                self.commit(requests);
            }
            if closing.is_some() {
                break closing;
            }
            if Instant::now() >= due {
                clock::follow_wall();
                let pause = if self.write_back() == Round::More { Duration::ZERO } else { WRITE_BACK };
                due = Instant::now() + pause;
            }
            if Instant::now() >= look_through {
                self.write_sessions();
                look_through = Instant::now() + LOOK_THROUGH;
            }
        };
        self.write_back_all();
        self.write_sessions();
        // First the file is closed, then whoever waits for that is told.
        drop(self);
        drop(closing);
    }

    /// Waits for a message, at most until `due`, and takes all that are there.
    fn receive(&self, due: Instant) -> (Vec<Request>, Option<Closing>) {
        let mut requests = Vec::new();
        let mut next = self.receiver.recv_timeout(due.saturating_duration_since(Instant::now()));
        loop {
            match next {
                Ok(Message::Request(request)) => requests.push(request),
                Ok(Message::Close(closing)) => return (requests, Some(Some(closing))),
                Err(RecvTimeoutError::Disconnected) => return (requests, Some(None)),
                Err(RecvTimeoutError::Timeout) => return (requests, None),
            }
            if requests.len() == CHANGES_PER_COMMIT {
                return (requests, None);
            }
            next = self.receiver.recv_timeout(Duration::ZERO);
        }
    }

    /// Commits the changes, then makes them effective, then answers.
    fn commit(&mut self, requests: Vec<Request>) {
        let results = match self.write(&requests) {
            Ok(results) => results,
            Err(error) => requests.iter().map(|_| Err(ChangeError::Unavailable(copied(&error).into()))).collect(),
        };
        for (Request { wanted, reply }, result) in requests.into_iter().zip(results) {
            if result.is_ok()
                && let Wanted::Change(change) = wanted
            {
                self.directory.apply(change);
            }
            // Whoever asked may have gone; the change is made all the same.
            let _ = reply.send(result);
        }
    }

    /// Writes the changes in one transaction, each of them whole or not at all. An error says that none was written.
    fn write(&mut self, requests: &[Request]) -> rusqlite::Result<Vec<Result<Option<Vec<u8>>, ChangeError>>> {
        let mut transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut results = Vec::with_capacity(requests.len());
        for request in requests {
            let savepoint = transaction.savepoint()?;
            let result = match &request.wanted {
                Wanted::Change(change) => changes::write(&savepoint, change).map(|()| None),
                Wanted::Ticket(digest, now) => tickets::take(&savepoint, digest, *now),
            };
            // Either fails when the error has undone the whole transaction, as a full disk does.
            if result.is_ok() {
                savepoint.commit()?
            } else {
                savepoint.finish()?
            }
            results.push(result);
        }
        transaction.commit()?;
        Ok(results)
    }

    /// Writes back some of what was used.
    fn write_back(&mut self) -> Round {
        if self.pending.is_empty() {
            self.taken_at = clock::now();
            self.pending = self.directory.used.take(std::mem::take(&mut self.pending));
        }
        if self.pending.is_empty() {
            return Round::Complete;
        }
        let rest = self.pending.len().saturating_sub(KEYS_PER_ROUND);
        let used = self.pending[rest..].iter().map(|record| (record.id, record.usage()));
        let known_up_to = (rest == 0).then(|| self.taken_at.before(MARGIN));
        match store::write_back(&mut self.connection, used, known_up_to) {
            Ok(()) => self.written_back(rest),
            Err(error) => self.not_written_back(&error),
        }
    }

    fn written_back(&mut self, rest: usize) -> Round {
        self.pending.truncate(rest);
        if std::mem::take(&mut self.failing) {
            tracing::info!("what was used is written back again");
        }
        if rest == 0 { Round::Complete } else { Round::More }
    }

    /// What was to be written stays pending. One message for a streak of failures.
    fn not_written_back(&mut self, error: &rusqlite::Error) -> Round {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, "what was used cannot be written back; trying on");
        }
        Round::Failed
    }

    /// Writes what time has changed about sessions.
    fn write_sessions(&mut self) {
        let (sessions, now) = (&self.directory.sessions, clock::now());
        let aged = sessions.aged(now);
        match session_rows::write_back(&mut self.connection, &aged, now) {
            Ok(()) => sessions.told(&aged, now),
            Err(error) => drop(self.not_written_back(&error)),
        }
    }

    /// Writes back what is left of the last round, then what was used since.
    fn write_back_all(&mut self) {
        for _ in 0..2 {
            while self.write_back() == Round::More {}
        }
    }
}

/// The same error once more: one failed commit is the answer to many changes.
fn copied(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => rusqlite::Error::ToSqlConversionFailure(other.to_string().into()),
    }
}
