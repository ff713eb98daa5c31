//! Ending: every open connection is told once, and waited for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustc_hash::FxHashMap;

/// The open connections of one listener.
///
/// - Telling a connection costs nothing until it happens: a flag it looks at whenever it is polled anyway.
#[derive(Clone, Default)]
pub(super) struct Connections(Rc<Shared>);

#[derive(Default)]
struct Shared {
    draining: Cell<bool>,
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
        Self::default()
    }

    /// A new connection.
    pub(super) fn join(&self) -> Member {
        let number = self.0.next.get();
        self.0.next.set(number + 1);
        self.0.open.borrow_mut().insert(number, Waker::noop().clone());
        Member { shared: Rc::clone(&self.0), number, registered: Cell::new(false) }
    }

    /// Tells every connection, and waits until the last has ended.
    pub(super) async fn drain(&self) {
        self.0.draining.set(true);
        let wakers: Vec<Waker> = self.0.open.borrow().values().cloned().collect();
        wakers.iter().for_each(Waker::wake_by_ref);
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
    /// Whether the connection should end. Registers the task once, to be woken when it should.
    pub(super) fn draining(&self, cx: &Context<'_>) -> bool {
        if !self.registered.replace(true) {
            self.shared.open.borrow_mut().insert(self.number, cx.waker().clone());
        }
        self.shared.draining.get()
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
