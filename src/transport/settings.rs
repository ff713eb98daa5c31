//! How patient and how generous a downstream connection is.

use std::time::Duration;

/// The sizes and time-outs of a downstream connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// From the end of a response to the first byte of the next head, and from the accept to the first byte.
    pub keep_alive_timeout: Duration,
    /// Between two pieces of a request body.
    pub body_idle_timeout: Duration,
    /// Bytes of a head, request line included; 8 KiB at least.
    pub max_head: usize,
    /// Fields of a head.
    pub max_fields: usize,
    /// Bytes of a request target.
    pub max_target: usize,
    /// Bytes of a request body.
    pub max_body: u64,
    /// Concurrent streams of one HTTP/2 connection.
    pub max_streams: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            body_idle_timeout: Duration::from_secs(30),
            max_head: 64 * 1024,
            max_fields: 100,
            max_target: 16 * 1024,
            max_body: 1 << 30,
            max_streams: 128,
        }
    }
}
