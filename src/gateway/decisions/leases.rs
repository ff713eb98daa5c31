//! Slots that are held for a fixed time after a decision.
//!
//! All leases of a listener have the same length, so that they end in the order in which they began: a queue, and one
//! task while it is not empty.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

use state::Permit;

/// Slots that are held for other proxies.
#[derive(Default)]
pub(super) struct Leases(Rc<Queue>);

#[derive(Default)]
struct Queue {
    held: RefCell<VecDeque<(Instant, Permit)>>,
    /// True while a task gives them back.
    is_running: Cell<bool>,
}

impl Leases {
    /// Holds the slots of a request for this time.
    pub(super) fn hold(&self, permit: Option<Permit>, time: Duration) {
        let Some(permit) = permit else { return };
        self.0.held.borrow_mut().push_back((Instant::now() + time, permit));
        if !self.0.is_running.replace(true) {
            let queue = Rc::clone(&self.0);
            spawn_local(async move { queue.give_back().await });
        }
    }
}

impl Queue {
    /// Gives slots back as their time comes, until none is held.
    async fn give_back(&self) {
        loop {
            let next = self.held.borrow().front().map(|(end, _)| *end);
            let Some(next) = next else { break };
            sleep_until(next).await;
            // Dropped when the queue is no longer borrowed.
            let ended = self.held.borrow_mut().pop_front();
            drop(ended);
        }
        self.is_running.set(false);
    }
}
