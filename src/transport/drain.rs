//! Ending: every open connection is told once of each stage, and waited for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustc_hash::FxHashMap;

/// How far a listener has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serving,
    /// Clients are told to go elsewhere, and served until they do.
    LameDuck,
    /// Idle connections close, the others when their exchanges have ended.
    Closing,
}

/// The open connections of one listener.
///
/// - Telling a connection costs nothing until it happens: a flag it looks at whenever it is polled anyway.
#[derive(Clone)]
pub(super) struct Connections(Rc<Shared>);

struct Shared {
    stage: Cell<Stage>,
    next: Cell<u64>,
    /// The waker of every open connection's task, by the connection's number.
    open: RefCell<FxHashMap<u64, Waker>>,
    /// Who waits for the last one to end.
    waiting: RefCell<Option<Waker>>,
}

/// One connection's membership, ended by dropping it.
pub(super) struct Member {
    shared: Rc<Shared>,
    number: u64,
    /// Whether the task's waker is known; a connection stays with its task.
    registered: Cell<bool>,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self(Rc::new(Shared {
            stage: Cell::new(Stage::Serving),
            next: Cell::new(0),
            open: RefCell::default(),
            waiting: RefCell::default(),
        }))
    }

    /// A new connection.
    pub(super) fn join(&self) -> Member {
        let number = self.0.next.get();
        self.0.next.set(number + 1);
        self.0.open.borrow_mut().insert(number, Waker::noop().clone());
        Member { shared: Rc::clone(&self.0), number, registered: Cell::new(false) }
    }

    /// Tells every connection.
    pub(super) fn tell(&self, stage: Stage) {
        self.0.stage.set(stage);
        let wakers: Vec<Waker> = self.0.open.borrow().values().cloned().collect();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Waits until the last has ended.
    pub(super) async fn ended(&self) {
        poll_fn(|cx| {
            if self.0.open.borrow().is_empty() {
                return Poll::Ready(());
            }
            *self.0.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Member {
    /// How far the listener has come. Registers the task once, to be woken when that changes.
    pub(super) fn stage(&self, cx: &Context<'_>) -> Stage {
        if !self.registered.replace(true) {
            self.shared.open.borrow_mut().insert(self.number, cx.waker().clone());
        }
        self.shared.stage.get()
    }

    /// Completes when the listener closes.
    pub(super) async fn closing(&self) {
        poll_fn(|cx| if self.stage(cx) == Stage::Closing { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.open.borrow_mut().remove(&self.number);
        if let Some(waker) = self.shared.waiting.borrow_mut().take() {
            waker.wake();
        }
    }
}
