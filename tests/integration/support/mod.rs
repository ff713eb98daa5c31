//! Fluent fakes on real sockets, port 0: a gateway as the configuration makes it, an upstream of the test's own, and a
//! client that says and sees every byte.

#[allow(dead_code, reason = "shared with the process tests")]
mod client;
mod gateway;
mod http2;
mod upstream;

pub use client::{Client, Response, head};
pub use gateway::{Gateway, metric};
pub use http2::{fetch_http2, over_http2};
pub use upstream::Upstream;

use std::time::{Duration, Instant};

/// Waits until something holds; a failure after ten seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "ten seconds passed without: {what}");
        std::thread::yield_now();
    }
}
