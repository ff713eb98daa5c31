//! A link: one connection to one server, its state, and its circuit breaker.
//!
//! - While it is down, commands fail at once. The task in `reconnect` opens a new connection with back-off.
//! - It goes down when the connection breaks, when the server reports that it cannot serve (a replica, or no writes),
//!   and when several replies in a row are late: that is the circuit breaker. It comes up when a new connection has
//!   passed all checks of `connect`, the latency of a write among them.
//! - A late reply is still awaited, so that the effect of its command becomes known; if the connection ends first, the
//!   reply is lost.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use redis::{RedisResult, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use super::command_error::{
    CommandError, is_out_of_memory, is_routing, is_wrong_server, rejects_writes, suggests_new_topology,
};
use super::connect::{Connector, Target};
use super::connection::{Connection, ReplyReceiver, all_replies};
use super::dial::{ConnectError, Driver};
use super::fault::{Fault, LastFault};
use super::live_links::Registration;
use super::request::CommandRequest;
use super::resp::PackedCommand;
use domain::clock::{self, Micros};

/// Commands in flight on one link. At 100,000 decisions a second and the default deadline: all that can be answered in
/// time.
const MAX_IN_FLIGHT: usize = 4096;
/// Late replies in a row that open the breaker. One or two come with a fork or a page fault of the server.
const BREAKER_THRESHOLD: u32 = 5;

/// One connection to one server.
pub struct ServerLink {
    pub(super) connector: Connector,
    /// None while it is down. The task in `reconnect` sets it; a command that finds the server unusable clears it.
    current: Mutex<Option<LiveConnection>>,
    /// Commands whose replies are awaited ([`InFlight`]).
    pub(super) in_flight: AtomicUsize,
    /// The last command was refused for a reason that was logged: one log line for a streak of refusals.
    refusing: AtomicBool,
    /// Wakes those who wait for the first connection, and the task in `reconnect` when the link goes down.
    pub(super) status: watch::Sender<LinkStatus>,
    /// Steady time at which it went down; 0 while it is up.
    down_since: AtomicU64,
    /// The reason why it went down, or why it does not come up.
    pub(super) last_fault: LastFault,
}

/// The connection while it works.
pub(super) struct LiveConnection {
    pub(super) connection: Connection,
    /// Number of this connection: an error of an earlier one must not take it down.
    pub(super) number: u64,
    /// Late replies in a row.
    pub(super) late: u32,
    /// Replies in time.
    pub(super) replies: u64,
    /// Its task, which ends when this is dropped.
    pub(super) _driver: Driver,
    /// Its entry in the list of the process, which goes when this is dropped.
    pub(super) _registration: Registration,
}

/// State of a link.
#[derive(Clone)]
pub(super) enum LinkStatus {
    /// No attempt to connect has ended yet.
    Connecting,
    Up,
    /// With the error of the last attempt to connect, if it was down before that.
    Down(Option<Arc<ConnectError>>),
}

/// Counts one command in flight on a link; uncounted on drop.
pub(super) struct InFlight<L: Deref<Target = ServerLink>>(L);

impl ServerLink {
    pub(super) fn new(connector: Connector) -> Self {
        let (status, _) = watch::channel(LinkStatus::Connecting);
        Self {
            connector,
            current: Mutex::new(None),
            in_flight: AtomicUsize::new(0),
            refusing: AtomicBool::new(false),
            status,
            down_since: AtomicU64::new(0),
            last_fault: LastFault::default(),
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.connector.target
    }

    pub(super) fn is_up(&self) -> bool {
        self.current().is_some()
    }

    /// Steady time since which it is down; `None` while it is up, or never was.
    pub(super) fn down_since(&self) -> Option<Micros> {
        Some(Micros(self.down_since.load(Ordering::Acquire))).filter(|since| since.0 > 0)
    }

    /// Notes that it is up from now on.
    pub(super) fn mark_up(&self, live: LiveConnection) {
        let mut current = self.current();
        debug_assert!(current.is_none(), "a link has one connection at a time");
        *current = Some(live);
        // Under the lock: `mark_down` of this connection comes after it.
        self.down_since.store(0, Ordering::Release);
        drop(current);
        self.status.send_replace(LinkStatus::Up);
    }

    /// Waits until the first attempt to connect has ended.
    pub(super) async fn wait_connected(&self) -> Result<(), Arc<ConnectError>> {
        let mut status = self.status.subscribe();
        let decided = status.wait_for(|status| !matches!(status, LinkStatus::Connecting)).await;
        match decided.as_deref() {
            Ok(LinkStatus::Down(Some(error))) => Err(Arc::clone(error)),
            _ => Ok(()),
        }
    }

    /// Sends a command and waits for its reply. Returns the reply, and the number of replicas that confirmed it when
    /// durability was requested.
    pub(super) async fn send(&self, request: CommandRequest<'_>) -> Result<(Value, u32), CommandError> {
        let _in_flight = InFlight::begin(self)?;
        let (connection, number) = self.connection().ok_or(CommandError::Unreachable)?;
        // WAIT holds the reply back for as long as the replicas may take.
        let extra = request.durability.map_or(Duration::ZERO, |durability| durability.timeout);
        let deadline = self.connector.settings().deadline + extra;
        if request.is_plain() {
            let reply = connection.send(request.command);
            return Ok((self.classify_reply(number, self.await_reply(number, deadline, reply).await?)?, 0));
        }
        let replies = all_replies(connection.send_all(&request.commands()));
        let mut replies = match self.await_reply(number, deadline, replies).await? {
            Ok(replies) => replies.into_iter().skip(usize::from(request.asking)),
            Err(error) => return self.classify_reply(number, Err(error)).map(|reply| (reply, 0)),
        };
        let reply = replies.next().expect("there is a reply to each command");
        let reply = self.classify_reply(number, Ok(reply))?;
        let replicas = match replies.next() {
            Some(Value::Int(replicas)) => u32::try_from(replicas).unwrap_or_default(),
            _ => 0,
        };
        Ok((reply, replicas))
    }

    /// Waits for a reply beyond its deadline, and counts it as late then; gives it up as lost after the time-out for
    /// late replies.
    pub(super) async fn await_reply<T>(
        &self,
        number: u64,
        deadline: Duration,
        reply: impl Future<Output = RedisResult<T>>,
    ) -> Result<RedisResult<T>, CommandError> {
        let mut reply = pin!(reply);
        if let Ok(reply) = timeout(deadline, &mut reply).await {
            self.count_reply(number);
            return Ok(reply);
        }
        self.count_late_reply(number);
        timeout(self.connector.settings().late_reply_timeout, reply).await.map_err(|_| CommandError::Lost(None))
    }

    /// Turns an error reply into a [`CommandError`], and takes the link down when the error says
    /// that it cannot be used.
    pub(super) fn classify_reply(&self, number: u64, reply: RedisResult<Value>) -> Result<Value, CommandError> {
        let error = match reply.and_then(Value::extract_error) {
            Ok(value) => {
                // Read before written: the flag is false nearly always, and all threads' commands pass here.
                if self.refusing.load(Ordering::Relaxed) {
                    self.refusing.store(false, Ordering::Relaxed);
                }
                return Ok(value);
            }
            Err(error) => error,
        };
        let broken = error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error();
        // On a Cluster the other nodes may still accept writes, and this one is asked again for its own hash slots.
        let read_only = rejects_writes(&error) && !self.connector.shared.is_cluster();
        if is_out_of_memory(&error) {
            self.connector.shared.note_out_of_memory();
        } else if broken || read_only || is_wrong_server(&error) {
            self.mark_down(number, Fault::of_reply(&error), &error);
        } else if !is_routing(&error) && !self.refusing.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self, %error, "Redis refuses commands");
        }
        if suggests_new_topology(&error) {
            self.connector.shared.topology_changed();
        }
        // A broken connection leaves open whether the command ran; an error reply says that it did not.
        Err(if broken { CommandError::Lost(Some(error)) } else { CommandError::Refused(error) })
    }

    /// Sends a command, and returns the number of the connection; `None` while the link is down.
    pub(super) fn send_now(&self, command: &PackedCommand) -> Option<(u64, ReplyReceiver)> {
        self.current().as_ref().map(|current| (current.number, current.connection.send(command)))
    }

    fn connection(&self) -> Option<(Connection, u64)> {
        self.current().as_ref().map(|current| (current.connection.clone(), current.number))
    }

    pub(super) fn count_reply(&self, number: u64) {
        if let Some(current) = self.current().as_mut().filter(|current| current.number == number) {
            current.late = 0;
            current.replies += 1;
        }
    }

    /// Opens the breaker at the threshold.
    fn count_late_reply(&self, number: u64) {
        let mut guard = self.current();
        let Some(current) = guard.as_mut().filter(|current| current.number == number) else { return };
        current.late += 1;
        if current.late >= BREAKER_THRESHOLD {
            self.take_down(guard, Fault::Late);
            tracing::warn!(
                server = %self,
                "{BREAKER_THRESHOLD} replies of Redis in a row were late: commands fail at once until a new connection \
                 is fast enough"
            );
        }
    }

    /// Takes the link down, unless another connection has replaced this one.
    pub(super) fn mark_down(&self, number: u64, fault: Fault, error: impl std::fmt::Display) {
        let guard = self.current();
        if guard.as_ref().is_some_and(|current| current.number == number) {
            self.take_down(guard, fault);
            tracing::warn!(server = %self, %error, "lost the connection to Redis; reconnecting");
        }
    }

    /// Drops the connection: its task ends, and replies that are awaited on it are lost.
    fn take_down(&self, mut current: MutexGuard<'_, Option<LiveConnection>>, fault: Fault) {
        debug_assert!(current.is_some(), "only a link that is up goes down");
        *current = None;
        self.last_fault.set(fault);
        self.down_since.store(clock::steady().0, Ordering::Release);
        drop(current);
        self.status.send_replace(LinkStatus::Down(None));
    }

    /// A panic under this lock leaves nothing half changed: its holders only assign.
    pub(super) fn current(&self) -> MutexGuard<'_, Option<LiveConnection>> {
        self.current.lock()
    }
}

impl std::fmt::Display for ServerLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.target() {
            Target::Server(address) => address.fmt(f),
            Target::Primary => f.write_str("the primary reported by Sentinel"),
        }
    }
}

impl<L: Deref<Target = ServerLink>> InFlight<L> {
    /// Counts one more.
    ///
    /// # Errors
    /// [`CommandError::Overloaded`] when there are too many.
    pub(super) fn begin(link: L) -> Result<Self, CommandError> {
        let before = link.in_flight.fetch_add(1, Ordering::Relaxed);
        let guard = Self(link);
        if before < MAX_IN_FLIGHT { Ok(guard) } else { Err(CommandError::Overloaded) }
    }

    pub(super) fn link(&self) -> &L {
        &self.0
    }
}

impl<L: Deref<Target = ServerLink>> Drop for InFlight<L> {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each command is uncounted once");
    }
}
