//! Sizes and time-outs of downstream connections.

use std::time::Duration;

use domain::head_fields::CredentialFields;

/// The sizes and time-outs of a downstream connection, and the fields that are looked for in its heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time for the PROXY header and the TLS handshake together.
    pub handshake_timeout: Duration,
    /// Time from there to the first byte of the first head.
    pub first_byte_timeout: Duration,
    /// Time from the first byte of a head to its last.
    pub head_timeout: Duration,
    /// Time from the end of a response to the first byte of the next head.
    pub keep_alive_timeout: Duration,
    /// Time between two pieces of a request body.
    pub body_idle_timeout: Duration,
    /// Bytes per second that a request body must bring on average, after a grace of
    /// [`platform::request_body::BODY_GRACE`]; 0 for any.
    pub min_body_rate: u64,
    /// Time for which a client may take nothing of what is sent to it.
    pub write_idle_timeout: Duration,
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
    /// Flow-control window of an HTTP/2 stream: bytes that a client may send before we make room for more (RFC 9113,
    /// section 5.2).
    pub stream_window: u32,
    /// Flow-control window of an HTTP/2 connection, for all its streams together, in bytes.
    pub connection_window: u32,
    /// Fields, beside `Authorization`, that carry an API key.
    pub credentials: CredentialFields,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            body_idle_timeout: Duration::from_secs(30),
            min_body_rate: 240,
            write_idle_timeout: Duration::from_secs(30),
            max_head: 64 * 1024,
            max_fields: 100,
            max_target: 16 * 1024,
            max_body: 1 << 30,
            max_streams: 128,
            stream_window: 128 * 1024,
            connection_window: 512 * 1024,
            credentials: CredentialFields::NONE,
        }
    }
}
