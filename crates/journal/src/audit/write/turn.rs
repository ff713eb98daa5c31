//! Turns of a worker's event loop.

use std::future::poll_fn;
use std::task::Poll;

/// Lets the tasks run first that are ready already: all whose events came in the same turn of the event loop.
///
/// The task is woken at once, behind them: without other tasks it goes on at once, and the event loop does not ask the kernel
/// for events before it does.
pub(crate) async fn let_ready_tasks_run() {
    let mut is_woken = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
