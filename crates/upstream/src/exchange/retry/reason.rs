//! Reasons for which a request is sent again.

use platform::metrics::RetryMetrics;

/// Reason for which a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// A connection that had carried other requests died before a byte of the response: the server may have closed it
    /// while the request was on its way.
    Stale,
    /// A new connection, or a stream, broke before a byte of the response.
    Broken,
    /// No byte of a response came within the time of one try.
    Timeout,
    /// The response has a status for which requests are sent again.
    Status,
    /// The endpoint did not begin to process the request (HTTP/2).
    Refused,
}

impl RetryReason {
    /// Returns whether the same endpoint may get the request again, when there is no other. One that failed by itself
    /// would fail again.
    pub(crate) fn allows_same_endpoint(self) -> bool {
        matches!(self, Self::Stale | Self::Refused)
    }

    /// Returns whether the next try makes a connection of its own (HTTP/1): what broke one pooled connection, such as a
    /// network device that restarts, may have broken all.
    pub(crate) fn needs_new_connection(self) -> bool {
        matches!(self, Self::Stale | Self::Broken | Self::Timeout)
    }

    /// Counts a request that is sent again.
    pub(crate) fn count(self, retries: &RetryMetrics) {
        match self {
            Self::Stale => retries.stale.inc(),
            Self::Broken => retries.broken.inc(),
            Self::Timeout => retries.timeout.inc(),
            Self::Status => retries.status.inc(),
            Self::Refused => retries.refused.inc(),
        }
    }
}
