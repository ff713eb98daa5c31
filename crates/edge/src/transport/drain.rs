//! Draining a listener: every open connection learns the stage of the drain, and is waited for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustc_hash::FxHashMap;

/// The stage of a listener. Stages only advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DrainStage {
    #[default]
    Serving,
    /// Responses ask clients to reconnect elsewhere; requests are still served.
    LameDuck,
    /// Idle connections are closed, the others when their exchanges have ended.
    Closing,
}

/// The open connections of one listener. Clones share them.
///
/// - The stage costs a connection nothing until it changes: it is a cell, read whenever the connection is polled
///   anyway.
#[derive(Clone, Default)]
pub(super) struct OpenConnections(Rc<Registry>);

/// Shared by the listener's accept loop and the tasks of its connections, on one thread.
#[derive(Default)]
struct Registry {
    /// Set by the accept loop, read by the connections.
    stage: Cell<DrainStage>,
    /// Number of the next connection; never used again.
    next_number: Cell<u64>,
    /// The waker of every open connection's task, by the connection's number.
    wakers: RefCell<FxHashMap<u64, Waker>>,
    /// The waker of the accept loop's task, which waits for the last connection to end.
    drained: RefCell<Option<Waker>>,
    /// Number of connections that wait for a request and keep their buffers meanwhile.
    warm: Cell<usize>,
}

/// One connection's entry among the open ones, removed when dropped.
pub(super) struct Registration {
    registry: Rc<Registry>,
    number: u64,
    /// True if the registry has the task's waker. A connection stays with its task, so it is stored once.
    has_waker: Cell<bool>,
    /// True if the connection counts among the warm ones.
    is_warm: Cell<bool>,
}

impl OpenConnections {
    /// Registers a new connection.
    pub(super) fn register(&self) -> Registration {
        let number = self.0.next_number.get();
        self.0.next_number.set(number + 1);
        // Counts the connection from now on; its task has not been polled yet and has no waker.
        self.0.wakers.borrow_mut().insert(number, Waker::noop().clone());
        Registration { registry: Rc::clone(&self.0), number, has_waker: Cell::new(false), is_warm: Cell::new(false) }
    }

    /// Enters a stage and wakes every connection to see it.
    pub(super) fn enter_stage(&self, stage: DrainStage) {
        debug_assert!(stage >= self.0.stage.get(), "stages only advance");
        self.0.stage.set(stage);
        // Copied first: a connection that ends while others are woken removes itself from the map.
        let wakers: Vec<Waker> = self.0.wakers.borrow().values().cloned().collect();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Completes when no connection is open.
    pub(super) async fn wait_until_closed(&self) {
        poll_fn(|cx| {
            if self.0.wakers.borrow().is_empty() {
                return Poll::Ready(());
            }
            *self.0.drained.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Registration {
    /// The listener's stage. The first call registers the task, to be woken when the stage changes.
    pub(super) fn stage(&self, cx: &Context<'_>) -> DrainStage {
        if !self.has_waker.replace(true) {
            self.registry.wakers.borrow_mut().insert(self.number, cx.waker().clone());
        }
        self.registry.stage.get()
    }

    /// Completes when the listener closes.
    pub(super) async fn wait_for_closing(&self) {
        poll_fn(|cx| if self.stage(cx) == DrainStage::Closing { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Notes whether the connection is warm: it waits for a request and keeps its buffers meanwhile.
    pub(super) fn set_warm(&self, is_warm: bool) {
        if self.is_warm.replace(is_warm) != is_warm {
            let warm = self.registry.warm.get();
            self.registry.warm.set(if is_warm { warm + 1 } else { warm - 1 });
        }
    }

    /// Number of warm connections of the listener.
    pub(super) fn warm_connections(&self) -> usize {
        self.registry.warm.get()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.set_warm(false);
        let removed = self.registry.wakers.borrow_mut().remove(&self.number);
        debug_assert!(removed.is_some(), "an open connection is registered until it is dropped");
        if let Some(waker) = self.registry.drained.borrow_mut().take() {
            waker.wake();
        }
    }
}
