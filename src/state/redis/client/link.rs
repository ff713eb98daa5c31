//! A link: one connection to one server, and whether it works.
//!
//! - While it is down, commands fail at once. A task makes a new connection, with pauses that grow and are jittered.
//! - It goes down when the connection breaks, when the server says that it is not the one to ask, and when several
//!   answers in a row are late: that is the breaker. It comes up when a new connection is fit and quick (`connect`).
//! - A command without an answer is waited for beyond its deadline, so that its effects become known; when the
//!   connection ends first, it is lost.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::{ConnectError, Connected, Connector, Driver, Target};
use super::failure::{CommandError, is_disorder, is_routine, is_unfit, takes_no_writes};
use crate::state::redis::settings::Durability;

/// Commands without an answer on one link. At 100,000 decisions a second and the default deadline, all that can be
/// answered in time.
const WAITING: usize = 4096;
/// Late answers in a row that open the breaker: one or two come with a fork or a page fault.
const LATE: u32 = 5;
/// How long nothing may be said before a link is asked whether it lives: as soon as an operator wants to know.
const SILENCE: Duration = Duration::from_secs(1);
/// How often it is asked before it is taken for dead: one answer may be late with a fork or a page fault.
const PINGS: u32 = 3;
/// The first pause before connecting again, and the longest. The longest keeps the promise to be back within 2 s, also
/// when the server came back right after an attempt that took all its patience.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(400));

/// One connection to one server.
pub(super) struct Link {
    connector: Connector,
    current: Mutex<Option<Current>>,
    waiting: AtomicUsize,
    /// The server refused the last command for a reason that was logged.
    refusing: AtomicBool,
    status: watch::Sender<Status>,
}

/// The connection while it works.
struct Current {
    connection: MultiplexedConnection,
    /// Which connection this is: a failure of an earlier one must not take it down.
    number: u64,
    /// Late answers in a row.
    late: u32,
    /// Answers in time.
    answers: u64,
    _driver: Driver,
}

#[derive(Clone)]
enum Status {
    Connecting,
    Up,
    Down(Option<Arc<ConnectError>>),
}

/// A command, and how it is to be sent.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) command: &'a Cmd,
    /// To a node that has its key already, though not yet its slot.
    pub(super) asking: bool,
    /// Whether to wait for replicas: on the same connection, which is the one whose writes they confirm.
    pub(super) durability: Option<Durability>,
}

impl Message<'_> {
    fn is_plain(&self) -> bool {
        !self.asking && self.durability.is_none()
    }

    fn pipeline(&self) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(3);
        if self.asking {
            pipeline.add_command(cmd("ASKING"));
        }
        pipeline.add_command(self.command.clone());
        if let Some(durability) = self.durability {
            let milliseconds = u64::try_from(durability.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
            pipeline.cmd("WAIT").arg(durability.replicas).arg(milliseconds);
        }
        pipeline
    }
}

/// A command that waits; counted.
struct Waiting<'a>(&'a AtomicUsize);

impl Link {
    pub(super) fn new(connector: Connector) -> Self {
        let (status, _) = watch::channel(Status::Connecting);
        Self {
            connector,
            current: Mutex::new(None),
            waiting: AtomicUsize::new(0),
            refusing: AtomicBool::new(false),
            status,
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.connector.target
    }

    pub(super) fn is_up(&self) -> bool {
        self.current().is_some()
    }

    /// Waits for the end of the first attempt to connect.
    pub(super) async fn reached(&self) -> Result<(), Arc<ConnectError>> {
        let mut status = self.status.subscribe();
        let decided = status.wait_for(|status| !matches!(status, Status::Connecting)).await;
        match decided.as_deref() {
            Ok(Status::Down(Some(error))) => Err(Arc::clone(error)),
            _ => Ok(()),
        }
    }

    /// Sends a command, waits for its answer, and for replicas to have it, when that is wanted.
    pub(super) async fn send(&self, message: Message<'_>) -> Result<(Value, u32), CommandError> {
        let _waiting = self.enter()?;
        let (mut connection, number) = self.connection().ok_or(CommandError::Unreachable)?;
        let extra = message.durability.map_or(Duration::ZERO, |durability| durability.timeout);
        if message.is_plain() {
            let answer = connection.send_packed_command(message.command);
            return Ok((self.judge(number, self.answered(number, extra, answer).await)?, 0));
        }
        let pipeline = message.pipeline();
        let first = usize::from(message.asking);
        let answers = connection.send_packed_commands(&pipeline, first, pipeline.len() - first);
        let mut answers = match self.answered(number, extra, answers).await? {
            Ok(answers) => answers.into_iter(),
            Err(error) => return self.judge(number, Ok(Err(error))).map(|answer| (answer, 0)),
        };
        let answer = self.judge(number, Ok(Ok(answers.next().unwrap_or(Value::Nil))))?;
        let replicas = match answers.next() {
            Some(Value::Int(replicas)) => u32::try_from(replicas).unwrap_or_default(),
            _ => 0,
        };
        Ok((answer, replicas))
    }

    /// Waits for an answer; notes when it is late, and gives up when it is as good as lost.
    async fn answered<T>(
        &self,
        number: u64,
        extra: Duration,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Result<RedisResult<T>, CommandError> {
        let settings = self.connector.settings();
        let mut answer = pin!(answer);
        if let Ok(answer) = timeout(settings.deadline + extra, &mut answer).await {
            self.on_time(number);
            return Ok(answer);
        }
        self.late(number);
        timeout(settings.lease / 2, answer).await.map_err(|_| CommandError::Lost(None))
    }

    fn judge(&self, number: u64, answered: Result<RedisResult<Value>, CommandError>) -> Result<Value, CommandError> {
        let error = match answered?.and_then(Value::extract_error) {
            Ok(value) => {
                if self.refusing.load(Ordering::Relaxed) {
                    self.refusing.store(false, Ordering::Relaxed);
                }
                return Ok(value);
            }
            Err(error) => error,
        };
        let broken = error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error();
        let useless = takes_no_writes(&error) && !self.connector.common.is_cluster();
        if broken || useless || is_unfit(&error) {
            self.take_down(number, &error);
        } else if !is_routine(&error) && !self.refusing.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self, %error, "the shared state refuses commands");
        }
        if is_disorder(&error) {
            self.connector.common.topology_changed();
        }
        Err(if broken { CommandError::Lost(Some(error)) } else { CommandError::Refused(error) })
    }

    fn enter(&self) -> Result<Waiting<'_>, CommandError> {
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING { Ok(waiting) } else { Err(CommandError::Overloaded) }
    }

    fn connection(&self) -> Option<(MultiplexedConnection, u64)> {
        self.current().as_ref().map(|current| (current.connection.clone(), current.number))
    }

    fn on_time(&self, number: u64) {
        if let Some(current) = self.current().as_mut().filter(|current| current.number == number) {
            current.late = 0;
            current.answers += 1;
        }
    }

    fn late(&self, number: u64) {
        let mut guard = self.current();
        let Some(current) = guard.as_mut().filter(|current| current.number == number) else { return };
        current.late += 1;
        if current.late >= LATE {
            *guard = None;
            drop(guard);
            tracing::warn!(server = %self, "the shared state answers too late: not asking it until it is quick again");
            self.status.send_replace(Status::Down(None));
        }
    }

    fn take_down(&self, number: u64, error: impl std::fmt::Display) {
        let mut guard = self.current();
        if guard.as_ref().is_some_and(|current| current.number == number) {
            *guard = None;
            drop(guard);
            tracing::warn!(server = %self, %error, "the connection to the shared state is lost");
            self.status.send_replace(Status::Down(None));
        }
    }

    /// Connects, and connects again whenever the connection is gone, for as long as the task lives.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut last = None;
        for number in 1.. {
            let Connected { connection, driver, process } = self.connect().await;
            if last.replace(process.clone()).is_some_and(|last| last != process) {
                self.connector.common.succeeded();
            }
            let ended = driver.ended();
            *self.current() = Some(Current { connection, number, late: 0, answers: 0, _driver: driver });
            self.status.send_replace(Status::Up);
            tracing::debug!(server = %self, "connected to the shared state");
            self.connector.common.topology_changed();
            let mut status = self.status.subscribe();
            tokio::select! {
                // The sender is ours: it is not gone.
                _ = status.wait_for(|status| !matches!(status, Status::Up)) => {}
                () = ended.notified() => self.take_down(number, "the server closed it"),
                () = self.watch(number) => self.take_down(number, "the server is silent"),
            }
            self.connector.common.topology_changed();
        }
    }

    /// Sees to it that a connection over which nothing is said still works; returns when it does not.
    async fn watch(&self, number: u64) {
        let mut answers = 0;
        loop {
            sleep(SILENCE).await;
            let Some((mut connection, said)) = self.current().as_ref().map(|now| (now.connection.clone(), now.answers))
            else {
                return;
            };
            // What waits finds out by itself, and may wait for replicas as long as it said.
            if std::mem::replace(&mut answers, said) != said || self.waiting.load(Ordering::Relaxed) > 0 {
                continue;
            }
            let (ping, mut tries) = (cmd("PING"), 0);
            let deadline = self.connector.settings().deadline;
            while !matches!(timeout(deadline, connection.send_packed_command(&ping)).await, Ok(Ok(_))) {
                tries += 1;
                if tries == PINGS {
                    return;
                }
            }
            self.on_time(number);
        }
    }

    /// Tries until it succeeds. One message for a streak of failures.
    async fn connect(&self) -> Connected {
        let (mut pause, longest) = PAUSES;
        let mut told = None;
        loop {
            match self.connector.connect().await {
                Ok(connected) => {
                    if told.is_some() {
                        tracing::info!(server = %self, "the shared state is back");
                    }
                    return connected;
                }
                Err(error) => {
                    let text = error.to_string();
                    if told.as_ref() != Some(&text) {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        tracing::warn!(server = %self, %error, cause, "no connection to the shared state; trying on");
                    }
                    told = Some(text);
                    self.status.send_replace(Status::Down(Some(Arc::new(error))));
                }
            }
            sleep(jittered(pause)).await;
            pause = longest.min(pause * 2);
        }
    }

    /// Nothing that holds this lock can leave it half changed: it only assigns.
    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Half the pause and up to as much again, at random: gateways that lost their server together do not return together.
pub(super) fn jittered(pause: Duration) -> Duration {
    // Without randomness the pause is as good as any.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause / 2 + pause.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.target() {
            Target::Server(address) => address.fmt(f),
            Target::Primary => f.write_str("the primary that the sentinels name"),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
