//! `crates/journal/src/audit/write/sync.rs`, by `loom`.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) use loom::sync::Arc;
pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};

/// Wakes all who wait already, as `notify_waiters` of tokio promises.
#[derive(Debug, Default)]
pub(crate) struct Notify(loom::sync::Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Calls of `notify_waiters` so far.
    notified: u64,
    wakers: Vec<Waker>,
}

/// Waits for the first call after its registration.
pub(crate) struct Notified<'a> {
    notify: &'a Notify,
    since: Option<u64>,
}

impl Notify {
    pub(crate) fn notify_waiters(&self) {
        let mut waiting = self.0.lock().unwrap();
        waiting.notified += 1;
        waiting.wakers.drain(..).for_each(Waker::wake);
    }

    /// As in tokio, calls count from here on.
    pub(crate) fn notified(&self) -> Notified<'_> {
        let since = self.0.lock().unwrap().notified;
        Notified { notify: self, since: Some(since) }
    }
}

impl Notified<'_> {
    pub(crate) fn enable(self: Pin<&mut Self>) -> bool {
        self.since.is_some_and(|since| self.notify.0.lock().unwrap().notified > since)
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.notify.0.lock().unwrap();
        if self.since.is_some_and(|since| waiting.notified > since) {
            return Poll::Ready(());
        }
        waiting.wakers.push(cx.waker().clone());
        Poll::Pending
    }
}
