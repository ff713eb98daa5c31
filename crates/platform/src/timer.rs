//! A timer for deadlines that are usually met.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Lazily armed timer: one for a connection, a stream or a body, for all the deadlines that it has one after another.
///
/// - It is allocated when something is first waited for: what never waits has no timer.
/// - It is armed again only for an earlier deadline, and when it fires. A later deadline leaves it as it is: it then
///   fires too early, and is armed for the rest. So an exchange that ends in time costs no timer operation.
#[derive(Debug, Default)]
pub struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Completes when `deadline` has passed; otherwise wakes the task then, or before.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            // It was armed for an earlier deadline, which was met.
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn one_timer_serves_earlier_and_later_deadlines() {
        let mut timer = LazyTimer::default();
        let start = Instant::now();
        for milliseconds in [30, 60, 40, 90] {
            let deadline = start + Duration::from_millis(milliseconds);
            poll_fn(|cx| timer.poll(cx, deadline)).await;
            assert!(Instant::now() >= deadline);
        }
        assert!(start.elapsed() >= Duration::from_millis(90));
    }
}
