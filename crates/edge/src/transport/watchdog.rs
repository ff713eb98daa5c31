//! The time-outs of a connection: the idle time-out of a silent one, slow heads (slowloris), stalled writes.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Activity, Phase};
use super::settings::Settings;
use platform::metrics::TimeoutMetrics;
use platform::timer::LazyTimer;

/// Time that a silent connection still has when the listener closes: as long as a request may be on its way.
pub(super) const CLOSING_GRACE: Duration = Duration::from_secs(1);

/// The time-out that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    FirstByte,
    Head,
    KeepAlive,
    WriteStall,
}

/// Time-outs of one connection.
///
/// - It is polled with its connection, in the same task: it sees every change of the [`Activity`] without being
///   notified.
/// - A request that arrives whole touches no timer ([`LazyTimer`]).
pub(super) struct Watchdog {
    first_byte: Duration,
    head: Duration,
    keep_alive: Duration,
    write_stall: Duration,
    timer: LazyTimer,
}

impl Watchdog {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            first_byte: settings.first_byte_timeout,
            head: settings.head_timeout,
            keep_alive: settings.keep_alive_timeout,
            write_stall: settings.write_idle_timeout,
            timer: LazyTimer::default(),
        }
    }

    /// Shortens the time-outs of a silent or idle connection to [`CLOSING_GRACE`] from now, as the listener closes.
    pub(super) fn shorten_timeouts(&mut self, activity: &Activity) {
        match activity.phase() {
            Phase::New(since) => self.first_byte = self.first_byte.min(since.elapsed() + CLOSING_GRACE),
            Phase::Idle(since) => self.keep_alive = self.keep_alive.min(since.elapsed() + CLOSING_GRACE),
            // Requests that have begun are served to their ends, within their usual time-outs.
            Phase::Head(_) | Phase::Exchange => {}
        }
    }

    /// Completes when a time-out has passed.
    pub(super) fn poll(&mut self, activity: &Activity, cx: &mut Context<'_>) -> Poll<Expired> {
        match self.deadline(activity) {
            Some((deadline, expired)) => self.timer.poll(cx, deadline).map(|()| expired),
            None => Poll::Pending,
        }
    }

    /// Completes when `deadline` has passed. It is no time-out, and shares the timer with those.
    pub(super) fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(cx, deadline)
    }

    fn deadline(&self, activity: &Activity) -> Option<(Instant, Expired)> {
        // First, because a stalled write keeps any phase from ending.
        if let Some(since) = activity.stalled_since() {
            return Some((since + self.write_stall, Expired::WriteStall));
        }
        match activity.phase() {
            Phase::New(since) => Some((since + self.first_byte, Expired::FirstByte)),
            Phase::Head(since) => Some((since + self.head, Expired::Head)),
            Phase::Idle(since) => Some((since + self.keep_alive, Expired::KeepAlive)),
            // Request bodies, upstream and write stalls have time-outs of their own.
            Phase::Exchange => None,
        }
    }
}

impl Expired {
    pub(super) fn count(self, timeouts: &TimeoutMetrics) {
        match self {
            Self::FirstByte => timeouts.first_byte.inc(),
            Self::Head => timeouts.head.inc(),
            Self::KeepAlive => timeouts.keep_alive.inc(),
            Self::WriteStall => timeouts.write_idle.inc(),
        }
    }
}
