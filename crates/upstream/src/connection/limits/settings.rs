//! Settings of the connections to the endpoints.

use std::time::Duration;

/// Bounds of the connections to the endpoints, of all workers together, and of the wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Open connections to each endpoint at most; none: any number.
    pub max: Option<usize>,
    /// Open connections to all endpoints together at most; none: any number.
    pub max_total: Option<usize>,
    /// Requests that wait for a connection at most; more are refused at once.
    pub max_waiting: usize,
    /// Time that a request waits at most; never more than half of the time-out of connecting.
    pub max_wait: Duration,
    /// Connections to each endpoint that are kept open ahead of requests.
    pub min_idle: usize,
}

impl Default for ConnectionBounds {
    fn default() -> Self {
        Self { max: None, max_total: None, max_waiting: 1000, max_wait: Duration::from_secs(1), min_idle: 0 }
    }
}
