//! Real Redis servers for tests and benches: each on a loopback port and in a directory of its own, gone when dropped.
//!
//! - Nothing is shared: a server belongs to the test that started it, and tests run at the same time.
//! - Nothing waits for a fixed time: conditions are polled until they hold, or the test fails with the server's log.
//! - A server in a `static` is never dropped, and would outlive the tests: keep it in a variable.
//!
//! The client library of the same name is `::redis`.

mod options;
mod process;
mod server;
mod cluster;
mod sentinel;
mod proxy;
mod certificates;
mod clock;
mod monitor;

pub use certificates::Certificates;
pub use clock::Clock;
pub use cluster::Cluster;
pub use options::Options;
pub use proxy::{Hole, Proxy};
pub use sentinel::Sentinels;
pub use server::Redis;

use super::{free_port, until};
