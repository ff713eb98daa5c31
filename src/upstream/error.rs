//! Why there is no response, or no end of one, and whose fault it was.

use crate::metrics::UpstreamTimeouts;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No endpoint could be connected to; nothing was sent.
    #[error("no endpoint of the upstream can be reached")]
    Unavailable,
    /// The connection broke, or the response was not HTTP.
    #[error("the upstream broke off or answered badly")]
    BadResponse(#[source] hyper::Error),
    /// The response's head is one that must not be shown.
    #[error("the upstream's response cannot be shown")]
    InvalidResponse(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The upstream refused to begin, and too much of the request's body has gone to send it again.
    #[error("the upstream refused a request that cannot be sent again")]
    Unrepeatable,
    /// The upstream was too slow.
    #[error("the upstream did not answer in time: {0}")]
    TimedOut(TimeoutKind),
}

/// What was waited for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutKind {
    /// A connection, to any of the endpoints; nothing was sent.
    #[error("no connection could be made")]
    Connection,
    /// The response's head.
    #[error("no response began")]
    FirstByte,
    /// The next piece of the response's body.
    #[error("the response stalled")]
    Piece,
    /// The response's end.
    #[error("the exchange took too long as a whole")]
    Whole,
}

/// Why a response body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// The connection broke.
    #[error("the upstream broke off its response")]
    Broken(#[source] hyper::Error),
    /// The upstream was too slow.
    #[error("the upstream's response did not come in time: {0}")]
    TimedOut(TimeoutKind),
}

impl TimeoutKind {
    /// Counts it.
    pub(super) fn count(self, timeouts: &UpstreamTimeouts) {
        match self {
            Self::Connection => timeouts.connect.inc(),
            Self::FirstByte => timeouts.first_byte.inc(),
            Self::Piece => timeouts.body.inc(),
            Self::Whole => timeouts.whole.inc(),
        }
    }
}
