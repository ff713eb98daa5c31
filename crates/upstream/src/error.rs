//! Errors of exchanges with the upstream: why there is no response, or no end of one.

use std::error::Error;
use std::io;

use super::connection::held_writes::is_closed;
use platform::metrics::TimeoutMetrics;
use platform::telemetry::trace::TryError;

/// Reason why there is no response head.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No endpoint could be connected to; nothing was sent.
    #[error("no endpoint of the upstream can be reached")]
    Unavailable,
    /// There was no room for a connection; nothing was sent.
    #[error("no connection to the upstream is free: {0}")]
    NoConnection(WaitRefusal),
    /// The connection broke, or the response is not HTTP.
    #[error("the upstream closed the connection early, or its response is not valid HTTP")]
    BadResponse(#[source] hyper::Error),
    /// The response's head has too many fields.
    #[error("the head of the upstream's response has too many fields")]
    TooManyFields,
    /// The upstream refused to begin with the request, which was not sent again.
    #[error("the upstream refused to begin with the request")]
    Refused(#[source] hyper::Error),
    /// As many requests are in flight as may be; nothing was sent.
    #[error("the upstream has as many requests in flight as it may have")]
    Full,
    /// A time-out passed.
    #[error("the upstream did not respond in time: {0}")]
    TimedOut(TimeoutKind),
}

/// Reason why a request got no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitRefusal {
    /// As many requests wait as may.
    #[error("too many requests wait for one")]
    QueueFull,
    /// The wait took too long.
    #[error("none became free in time")]
    TimedOut,
}

impl SendError {
    /// Reason in the trace of the request.
    pub(super) fn trace_error(&self) -> TryError {
        TryError(match self {
            Self::Unavailable => "connect_error",
            Self::NoConnection(_) | Self::Full => "no_connection",
            Self::BadResponse(_) | Self::TooManyFields => "bad_response",
            Self::Refused(_) => "refused",
            Self::TimedOut(TimeoutKind::Connection) => "connect_timeout",
            Self::TimedOut(_) => "timeout",
        })
    }

    /// Returns whether the upstream has certainly not begun with the request.
    pub(super) fn is_unprocessed(&self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::NoConnection(_)
                | Self::Refused(_)
                | Self::Full
                | Self::TimedOut(TimeoutKind::Connection)
        )
    }
}

/// Time-out that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutKind {
    /// Connecting, to all of the endpoints; nothing was sent.
    #[error("no connection could be made")]
    Connection,
    /// Waiting for the response's head.
    #[error("no response began")]
    Head,
    /// Waiting for the response's head, while the request's body did not advance.
    #[error("no response began while the request's body stalled")]
    Upload,
    /// Waiting for the next piece of the response's body.
    #[error("the response's body stalled")]
    Body,
    /// The exchange as a whole.
    #[error("the exchange took too long as a whole")]
    Exchange,
}

/// Returns whether the library has failed because the peer closed the connection, or reset the stream, and not for
/// what it sent.
pub(super) fn is_closed_by_peer(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let of_h2 = error.downcast_ref::<h2::Error>();
        if of_h2.is_some_and(|error| error.is_remote() && error.is_reset()) {
            return true;
        }
        let of_stream = of_h2.and_then(h2::Error::get_io);
        if let Some(error) = error.downcast_ref::<io::Error>().or(of_stream) {
            return is_closed(error.kind()) || error.kind() == io::ErrorKind::UnexpectedEof;
        }
        cause = error.source();
    }
    error.is_incomplete_message()
}

/// Reason why a response body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// The connection broke.
    #[error("the upstream closed the connection within its response")]
    Broken(#[source] hyper::Error),
    /// A time-out passed.
    #[error("the upstream's response did not come in time: {0}")]
    TimedOut(TimeoutKind),
}

impl TimeoutKind {
    /// Counts the time-out.
    pub(super) fn count(self, timeouts: &TimeoutMetrics) {
        match self {
            Self::Connection => timeouts.upstream_connect.inc(),
            Self::Head | Self::Upload => timeouts.upstream_first_byte.inc(),
            Self::Body => timeouts.upstream_body.inc(),
            Self::Exchange => timeouts.upstream_whole.inc(),
        }
    }
}
