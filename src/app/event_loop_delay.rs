//! Delay of a worker's event loop: how late a timer fires that is due once a second.
//!
//! A loop is late when one task runs for long, or when the worker does not get its core. Every request of the
//! worker waits for as long.

use std::convert::Infallible;
use std::time::Duration;

use prometheus::Histogram;
use tokio::time::{Instant, sleep_until};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Observes the delay of the event loop that runs this future.
pub(super) async fn observe(delays: Histogram) -> Infallible {
    loop {
        let due = Instant::now() + INTERVAL;
        sleep_until(due).await;
        delays.observe(due.elapsed().as_secs_f64());
    }
}
