//! Real Redis servers for tests and benches: each on a loopback port and in a directory of its own, gone when dropped.
//!
//! - Nothing is shared: a server belongs to who started it, and tests run at the same time.
//! - Nothing waits for a fixed time: what must become true is looked at until it is, or the test fails with the log.
//! - A server in a `static` is never dropped, and would outlive the tests: keep it in a variable.
//!
//! The crate that includes this as `mod redis` reaches the client library as `::redis`.

mod options;
mod ports;
mod process;
mod server;
mod cluster;
mod sentinel;
mod proxy;
mod certificates;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use options::Options;
pub use proxy::{Hole, Proxy};
pub use sentinel::Sentinels;
pub use server::Redis;

use std::time::{Duration, Instant};

/// How long anything may take to become true. A loaded machine is slow; a broken one never gets there.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks until there is something, and returns it; a failure with `what` when there is nothing after 20 seconds.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{} s passed without: {what}", PATIENCE.as_secs());
        // Between looks the servers may have the processor.
        std::thread::sleep(Duration::from_millis(2));
    }
}
