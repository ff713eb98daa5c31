//! What one listener serves, and how: shared by its accept loop and its connections.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ipnet::IpNet;

use super::connection_limiter::ConnectionLimiter;
use super::settings::Settings;
use crate::metrics::{ConnectionMetrics, TimeoutMetrics};
use crate::tls::ServerTls;

/// What one listener serves, and how.
#[derive(Clone)]
pub struct ServeOptions {
    /// Sizes and time-outs.
    pub settings: Rc<Settings>,
    /// The whole HTTP/1.1 response, head and body, for a head that cannot be read.
    pub head_error_response: Rc<dyn Fn(HeadError) -> Bytes>,
    /// What the handshake shows and asks for, when connections are encrypted; ALPN then chooses the protocol.
    pub tls: Option<Arc<ServerTls>>,
    /// Whether connections that are not encrypted may be HTTP/2.
    pub http2: Http2Negotiation,
    /// Networks whose connections begin with a PROXY header.
    pub proxy_networks: Rc<[IpNet]>,
    /// How many connections there may be.
    pub connection_limiter: ConnectionLimiter,
    /// Connections, counted.
    pub connections: ConnectionMetrics,
    /// Time-outs, counted.
    pub timeouts: TimeoutMetrics,
}

/// Whether connections that are not encrypted may be HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http2Negotiation {
    /// Where the TLS handshake agrees on it, and nowhere else.
    #[default]
    Alpn,
    /// Also where a connection begins with its preface (RFC 9113, section 3.3).
    PriorKnowledge,
}

/// Why a head could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// It is not HTTP.
    Malformed,
    /// It has too many bytes or fields.
    HeadTooLarge,
    /// Its request target is too long.
    TargetTooLong,
    /// It did not arrive in time.
    TooSlow,
}

pub(super) fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}
