//! The state of an HTTP/1 connection, shared by its bytes, its exchanges and its driver.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::transport::activity::{Activity, Phase};
use crate::transport::reset::Reset;
use crate::transport::serving::HeadError;
use domain::head_fields::FieldSet;
use platform::large_reads::LargeReads;

/// State of one HTTP/1 connection.
///
/// - One exchange at a time: the next head is read when the response of the one before has ended.
/// - How the connection ends follows from what was noted here: a refused head is answered, an announced close lingers,
///   a truncated response is reset.
#[derive(Debug, Default)]
pub(super) struct Http1State {
    /// Phase of the connection: noted by the gate and the exchanges, read by the watchdog.
    pub(super) activity: Activity,
    /// True if the connection has been read to its end while it waits for the first byte of a head: the gate and the
    /// HTTP library hold no byte of it.
    pub(super) awaits_head: Cell<bool>,
    /// True if a head was passed to the HTTP library whose exchange has not ended: set by the gate, and cleared when
    /// the exchange is dropped, with or without a response.
    head_passed: Cell<bool>,
    /// Fields of that head that are acted on.
    pub(super) fields: Cell<FieldSet>,
    /// The task that reads, while it waits for the exchange to end.
    reader: RefCell<Option<Waker>>,
    /// The task that polls the response's body, while it waits for room.
    writer: RefCell<Option<Waker>>,
    /// Bound on the reads of the HTTP library's instance.
    pub(super) large_reads: RefCell<LargeReads>,
    /// True if some of the request's body has not gone to the HTTP library yet.
    pub(super) has_unread_body: Cell<bool>,
    /// Error for which the head that has come is refused; nothing is read after it. Its response is sent when the HTTP
    /// library has sent all others.
    pub(super) head_error: Cell<Option<HeadError>>,
    /// True if responses are to announce that the connection closes: the listener drains.
    pub(super) is_draining: Cell<bool>,
    /// True if the last response has announced that the connection closes.
    pub(super) is_close_announced: Cell<bool>,
    /// True if a response was cut off whose end only the connection's end marks.
    pub(super) is_truncated: Cell<bool>,
    /// True if the service has asked for a reset.
    pub(super) is_reset: Cell<bool>,
    /// The connection's task, which is woken for a reset. A connection stays with its task, so it is stored once.
    task: RefCell<Option<Waker>>,
}

impl Http1State {
    /// The time since when nothing has come and nothing was sent, if nothing is on its way in either direction.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        if !self.awaits_head.get() || self.activity.stalled_since().is_some() {
            return None;
        }
        match self.activity.phase() {
            Phase::New(since) | Phase::Idle(since) => Some(since),
            Phase::Head(_) | Phase::Exchange => None,
        }
    }

    /// A whole head, with these fields, goes to the HTTP library, which begins an exchange with it.
    pub(super) fn pass_head(&self, fields: FieldSet) {
        debug_assert!(self.may_read_head(), "one exchange at a time");
        self.head_passed.set(true);
        self.fields.set(fields);
    }

    /// True if the next head may be read: no exchange is going on, and no head was refused.
    pub(super) fn may_read_head(&self) -> bool {
        !self.head_passed.get() && self.head_error.get().is_none()
    }

    /// True while an exchange goes on whose request the HTTP library has whole: it reads nothing.
    pub(super) fn is_reading_paused(&self) -> bool {
        self.head_passed.get() && !self.has_unread_body.get()
    }

    /// Wakes the task when the next head may be read.
    pub(super) fn wait_for_exchange_end(&self, cx: &Context<'_>) {
        *self.reader.borrow_mut() = Some(cx.waker().clone());
    }

    /// Ends the exchange. The reader goes on with the next head, which may have come already.
    pub(super) fn end_exchange(&self) {
        if self.activity.end_exchange() {
            self.head_passed.set(false);
            if let Some(reader) = self.reader.borrow_mut().take() {
                reader.wake();
            }
        }
    }

    /// Refuses the head that has come.
    pub(super) fn refuse_head(&self, error: HeadError) {
        debug_assert!(self.may_read_head(), "nothing is read after a refused head");
        self.head_error.set(Some(error));
    }

    /// Notes the connection's task. Completes at once.
    pub(super) fn set_task(&self, cx: &Context<'_>) -> Poll<()> {
        *self.task.borrow_mut() = Some(cx.waker().clone());
        Poll::Ready(())
    }

    /// Notes the result of a write or flush, and wakes the writer when a stall has ended.
    pub(super) fn record_write(&self, accepted: bool) {
        if self.activity.record_write(accepted)
            && let Some(writer) = self.writer.borrow_mut().take()
        {
            writer.wake();
        }
    }

    /// Completes when writes are not stalled. So no more is held for a client that takes nothing than was on its way
    /// when it stopped.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.activity.stalled_since().is_none() {
            return Poll::Ready(());
        }
        *self.writer.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Reset for Http1State {
    fn reset(&self) {
        self.is_reset.set(true);
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}
