//! The activity of a connection, as its watchdog sees it.

use std::cell::Cell;

use tokio::time::Instant;

/// The phase of a connection, with the time at which it began.
///
/// ```text
/// New ──first byte──▶ Head ──head complete──▶ Exchange ──last response ends──▶ Idle ──first byte──▶ Head
/// ```
///
/// HTTP/2 adds two edges: New or Head to Idle, when frames have come and no head is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has come yet.
    New(Instant),
    /// Between two exchanges.
    Idle(Instant),
    /// A head is on its way.
    Head(Instant),
    /// At least one exchange is going on.
    Exchange,
}

/// The phase of a connection, and whether its client takes what is sent. Shared, within the connection's state, by its
/// bytes and its exchanges, which note what happens, and its watchdog, which reads it.
///
/// - While exchanges go on, and only then, the phase is `Exchange`.
#[derive(Debug)]
pub(super) struct Activity {
    /// Phase, with the time that its time-out counts from.
    phase: Cell<Phase>,
    /// Exchanges that are going on; on HTTP/1 one at most.
    exchanges: Cell<u32>,
    /// The time since when writes are stalled: the client takes nothing of what is sent.
    stalled_since: Cell<Option<Instant>>,
}

impl Default for Activity {
    /// Of a connection that begins now.
    fn default() -> Self {
        Self { phase: Cell::new(Phase::New(Instant::now())), exchanges: Cell::new(0), stalled_since: Cell::new(None) }
    }
}

impl Activity {
    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// A head has begun to come. While other exchanges go on (HTTP/2), its time is theirs.
    pub(super) fn begin_head(&self) {
        if !matches!(self.phase.get(), Phase::Head(_) | Phase::Exchange) {
            self.phase.set(Phase::Head(Instant::now()));
        }
    }

    /// Frames have come that leave no head unfinished (HTTP/2). Without an exchange, the connection is idle.
    pub(super) fn end_head(&self) {
        if let Phase::Head(_) | Phase::New(_) = self.phase.get() {
            self.phase.set(Phase::Idle(Instant::now()));
        }
    }

    pub(super) fn begin_exchange(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.phase.set(Phase::Exchange);
    }

    /// Ends one exchange. Returns whether it was the last, with which the connection becomes idle.
    pub(super) fn end_exchange(&self) -> bool {
        debug_assert!(self.exchanges.get() > 0 && self.phase.get() == Phase::Exchange, "an exchange ends once");
        self.exchanges.set(self.exchanges.get() - 1);
        let is_idle = self.exchanges.get() == 0;
        if is_idle {
            self.phase.set(Phase::Idle(Instant::now()));
        }
        is_idle
    }

    /// Notes the result of a write or flush: `accepted` when the socket took something or had nothing to take. Returns
    /// true when that ended a stall.
    pub(super) fn record_write(&self, accepted: bool) -> bool {
        match (accepted, self.stalled_since.get()) {
            (true, Some(_)) => {
                self.stalled_since.set(None);
                true
            }
            (false, None) => {
                self.stalled_since.set(Some(Instant::now()));
                false
            }
            // A stall that goes on began with its first pending write.
            _ => false,
        }
    }

    /// The time since when writes are stalled.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        self.stalled_since.get()
    }
}
