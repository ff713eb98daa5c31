//! Waiting for the upstream, but not for ever.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that lives as long as its connection.
///
/// - It is set once and, while the exchanges of its connection end in time, set again only when it fires: an exchange
///   costs no timer. One that was set for an earlier exchange fires too early, which is noticed and mended.
#[derive(Debug, Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Completes when the deadline has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
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
    async fn one_timer_serves_many_deadlines() {
        let mut timer = Timer::default();
        let start = Instant::now();
        for milliseconds in [30, 60, 40, 90] {
            let deadline = start + Duration::from_millis(milliseconds);
            poll_fn(|cx| timer.poll(cx, deadline)).await;
            assert!(Instant::now() >= deadline);
        }
        assert!(start.elapsed() >= Duration::from_millis(90));
    }
}
