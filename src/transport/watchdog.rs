//! Ends connections that are idle, whose heads are slow, or whose clients take nothing.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Phase, Progress};
use super::settings::Settings;
use crate::metrics::TimeoutMetrics;
use crate::timer::LazyTimer;

/// How long a connection that has said nothing may take to do so when the listener closes: as long as a request may be
/// on its way.
pub(super) const CLOSING: Duration = Duration::from_secs(1);

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    FirstByte,
    Head,
    Idle,
    Write,
}

/// Watches one connection.
///
/// - Polled with its connection, in the same task: it sees what the connection does without being told.
/// - A timer is set only when the connection waits and the one that is set would come too late; one that comes too
///   early is set again. A request that arrives whole touches no timer.
pub(super) struct Watchdog {
    progress: Rc<Progress>,
    first_byte: Duration,
    head: Duration,
    idle: Duration,
    write: Duration,
    timer: LazyTimer,
}

impl Watchdog {
    pub(super) fn new(progress: Rc<Progress>, settings: &Settings) -> Self {
        Self {
            progress,
            first_byte: settings.first_byte_timeout,
            head: settings.head_timeout,
            idle: settings.keep_alive_timeout,
            write: settings.write_idle_timeout,
            timer: LazyTimer::default(),
        }
    }

    /// The listener closes: a connection that has said nothing has not much time left to do so, and one that is idle not
    /// much to hear that it ends.
    pub(super) fn hurry(&mut self) {
        match self.progress.phase() {
            Phase::New(since) => self.first_byte = self.first_byte.min(since.elapsed() + CLOSING),
            Phase::Idle(since) => self.idle = self.idle.min(since.elapsed() + CLOSING),
            Phase::Head(_) | Phase::Exchange => {}
        }
    }

    /// Completes when a time has run out.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        match self.deadline() {
            Some((deadline, expired)) => self.timer.poll(cx, deadline).map(|()| expired),
            None => Poll::Pending,
        }
    }

    fn deadline(&self) -> Option<(Instant, Expired)> {
        if let Some(since) = self.progress.blocked_since() {
            return Some((since + self.write, Expired::Write));
        }
        match self.progress.phase() {
            Phase::New(since) => Some((since + self.first_byte, Expired::FirstByte)),
            Phase::Head(since) => Some((since + self.head, Expired::Head)),
            Phase::Idle(since) => Some((since + self.idle, Expired::Idle)),
            Phase::Exchange => None,
        }
    }
}

impl Expired {
    pub(super) fn count(self, timeouts: &TimeoutMetrics) {
        match self {
            Self::FirstByte => timeouts.first_byte.inc(),
            Self::Head => timeouts.head.inc(),
            Self::Idle => timeouts.keep_alive.inc(),
            Self::Write => timeouts.write_idle.inc(),
        }
    }
}
