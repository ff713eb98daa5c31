//! Fluent fakes on real sockets, port 0: a gateway as the configuration makes it, an upstream of the test's own, and a
//! client that says and sees every byte.

mod client;
mod gateway;
mod upstream;

pub use client::{Client, Response, head};
pub use gateway::Gateway;
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
