//! The task of an HTTP/2 stream, with a time-out for clients that do not take the response.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::state::{Http2State, StreamState};
use platform::metrics::TimeoutMetrics;
use platform::timer::LazyTimer;

/// Spawns the streams of one connection on its thread.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    pub(super) state: Rc<Http2State>,
    /// Time for which a client may take nothing of a response.
    pub(super) write_idle_timeout: Duration,
    pub(super) timeouts: TimeoutMetrics,
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        // The service was called for this stream just before; see `Http2State::next_stream`.
        let state = self.state.next_stream.take().unwrap_or_default();
        let task = StreamTask { stream, executor: self.clone(), state: Rc::clone(&state), timer: LazyTimer::default() };
        state.task.set(Some(tokio::task::spawn_local(task)));
    }
}

pin_project! {
    /// One stream, as the HTTP library runs it. Dropping it resets the stream.
    struct StreamTask<F> {
        #[pin]
        stream: F,
        executor: StreamExecutor,
        state: Rc<StreamState>,
        timer: LazyTimer,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // While the stream waits for the service, the client is not late.
        let Some(since) = this.state.stalled_since.get() else { return Poll::Pending };
        ready!(this.timer.poll(cx, since + this.executor.write_idle_timeout));
        this.executor.timeouts.write_idle.inc();
        Poll::Ready(())
    }
}
