//! What a connection is doing, and since when.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use tokio::time::Instant;

use super::serving::HeadError;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has come yet.
    New(Instant),
    /// Between two exchanges.
    Idle(Instant),
    /// Reading a head.
    Head(Instant),
    /// At least one exchange is going on.
    Exchange,
}

/// What a connection is doing, shared by its bytes, its service and its watchdog.
#[derive(Debug)]
pub(super) struct Progress {
    phase: Cell<Phase>,
    exchanges: Cell<u32>,
    /// HTTP/1: whether a head was handed on whose exchange has not ended.
    handed: Cell<bool>,
    /// HTTP/1: who waits for the exchange to end, to look at the next head.
    reader: RefCell<Option<Waker>>,
    /// HTTP/1: whether some of the request's body is still to come.
    unread: Cell<bool>,
    /// HTTP/1: why nothing more is read.
    refusal: Cell<Option<HeadError>>,
    /// Whether the last answer said that the connection closes: the rest of the request may still be on its way.
    closing: Cell<bool>,
    /// Whether answers are to say that the connection closes.
    last: Cell<bool>,
    /// Whether a response was cut off whose end only the end of the connection tells.
    cut: Cell<bool>,
    /// Since when the client takes nothing of what is to be sent.
    blocked: Cell<Option<Instant>>,
    /// HTTP/1: who waits for the client to take what was written, to write more.
    writer: RefCell<Option<Waker>>,
    /// HTTP/2: pieces of responses that were sent and not counted yet.
    pieces: Cell<u32>,
    /// HTTP/2: whether the client sent floods of frames that ask for nothing.
    flooded: Cell<bool>,
    /// HTTP/2: the last stream of which a head has begun.
    highest_stream: Cell<u32>,
    /// HTTP/2: the stream whose task is being polled.
    pub(super) stream: RefCell<Option<Rc<Taking>>>,
}

/// Whether the client of one HTTP/2 stream takes what it is given.
#[derive(Debug, Default)]
pub(super) struct Taking {
    /// Since when a piece of the response waits for the client to make room for it.
    pub(super) waiting: Cell<Option<Instant>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            phase: Cell::new(Phase::New(Instant::now())),
            exchanges: Cell::new(0),
            handed: Cell::new(false),
            reader: RefCell::new(None),
            unread: Cell::new(false),
            refusal: Cell::new(None),
            closing: Cell::new(false),
            last: Cell::new(false),
            cut: Cell::new(false),
            blocked: Cell::new(None),
            writer: RefCell::new(None),
            pieces: Cell::new(0),
            flooded: Cell::new(false),
            highest_stream: Cell::new(0),
            stream: RefCell::new(None),
        }
    }

    /// A response was cut off whose end only the end of the connection tells.
    pub(super) fn cut(&self) {
        self.cut.set(true);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// A head has begun to come.
    pub(super) fn head_begins(&self) {
        if !matches!(self.phase.get(), Phase::Head(_) | Phase::Exchange) {
            self.phase.set(Phase::Head(Instant::now()));
        }
    }

    /// A whole head goes to the library, which will begin an exchange with it.
    pub(super) fn head_ends(&self) {
        self.handed.set(true);
    }

    /// Whether the next head may be looked at.
    pub(super) fn wants_head(&self) -> bool {
        !self.handed.get()
    }

    /// Wakes the reader when the next head may be looked at.
    pub(super) fn wait_for_end(&self, reader: &Waker) {
        *self.reader.borrow_mut() = Some(reader.clone());
    }

    /// HTTP/1: whether some of the request's body has not gone to the library yet.
    pub(super) fn note_unread(&self, unread: bool) {
        self.unread.set(unread);
    }

    pub(super) fn is_unread(&self) -> bool {
        self.unread.get()
    }

    /// HTTP/2: whether a head has begun and not ended, and the last stream of which one has begun.
    pub(super) fn note_frames(&self, in_head: bool, highest_stream: u32) {
        self.highest_stream.set(highest_stream);
        if in_head {
            self.head_begins();
        } else if let Phase::Head(_) | Phase::New(_) = self.phase.get() {
            self.phase.set(Phase::Idle(Instant::now()));
        }
    }

    pub(super) fn highest_stream(&self) -> u32 {
        self.highest_stream.get()
    }

    /// An exchange begins.
    pub(super) fn begin(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.phase.set(Phase::Exchange);
    }

    /// An exchange ends; with the last one the connection is idle.
    pub(super) fn end(&self) {
        self.exchanges.set(self.exchanges.get() - 1);
        if self.exchanges.get() == 0 {
            self.phase.set(Phase::Idle(Instant::now()));
            self.handed.set(false);
            if let Some(reader) = self.reader.borrow_mut().take() {
                reader.wake();
            }
        }
    }

    /// Nothing more is read, and this is to be said when all else has been.
    pub(super) fn refuse(&self, why: HeadError) {
        self.refusal.set(Some(why));
    }

    pub(super) fn refusal(&self) -> Option<HeadError> {
        self.refusal.get()
    }

    /// The last answer says that the connection closes.
    pub(super) fn close(&self) {
        self.closing.set(true);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// From now on, answers are to say that the connection closes.
    pub(super) fn make_last(&self) {
        self.last.set(true);
    }

    pub(super) fn is_last(&self) -> bool {
        self.last.get()
    }

    /// The client has taken something, or there is nothing to take; or it has not.
    pub(super) fn written(&self, taken: bool) {
        match (taken, self.blocked.get()) {
            (true, Some(_)) => {
                self.blocked.set(None);
                if let Some(writer) = self.writer.borrow_mut().take() {
                    writer.wake();
                }
            }
            (false, None) => self.blocked.set(Some(Instant::now())),
            _ => {}
        }
    }

    pub(super) fn blocked_since(&self) -> Option<Instant> {
        self.blocked.get()
    }

    /// HTTP/1: whether there is no room for more; then wakes the writer when there is. So what is held for a client that
    /// takes nothing is what was on its way when it stopped.
    pub(super) fn wait_for_room(&self, writer: &Waker) -> bool {
        let waits = self.blocked.get().is_some();
        if waits {
            *self.writer.borrow_mut() = Some(writer.clone());
        }
        waits
    }

    /// HTTP/2: a piece of a response was sent.
    pub(super) fn sent_piece(&self) {
        self.pieces.set(self.pieces.get().saturating_add(1));
    }

    /// HTTP/2: the pieces that were sent since this was asked.
    pub(super) fn take_pieces(&self) -> u32 {
        self.pieces.take()
    }

    pub(super) fn flood(&self) {
        self.flooded.set(true);
    }

    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.get()
    }
}
