//! A try as the metrics of the semantic conventions see it: from its being addressed to an endpoint to the end of its
//! response. Only where they are configured.

use std::cell::Cell;

use http::{Method, StatusCode};
use tokio::time::Instant;

use crate::error::SendError;
use platform::metrics::{ClientDurations, RequestEnd};

/// Error of a try that ended before a response, and without a failure: the client is gone, or it went to another
/// endpoint.
const CANCELED: &str = "canceled";
/// Error of a connection that could not be made.
pub(crate) const CONNECT_FAILED: &str = "connect_failed";
/// Error of a response that broke off.
pub(crate) const BROKEN: &str = "response_broken";

/// A try. Dropping it is its end.
#[derive(Debug)]
pub(crate) struct ObservedTry {
    begun: Instant,
    method: Method,
    durations: ClientDurations,
    status: Cell<Option<StatusCode>>,
    error: Cell<Option<&'static str>>,
}

impl ObservedTry {
    pub(crate) fn new(method: &Method, durations: &ClientDurations) -> Self {
        let (status, error) = Default::default();
        Self { begun: Instant::now(), method: method.clone(), durations: durations.clone(), status, error }
    }

    /// Notes the status of the response.
    pub(crate) fn note_status(&self, status: StatusCode) {
        self.status.set(Some(status));
    }

    /// Notes an error that is no status.
    pub(crate) fn note_error(&self, error: &'static str) {
        self.error.set(Some(error));
    }
}

impl Drop for ObservedTry {
    fn drop(&mut self) {
        let status = self.status.get();
        let error = self.error.get().or(status.is_none().then_some(CANCELED));
        let seconds = self.begun.elapsed().as_secs_f64();
        self.durations.observe(RequestEnd { method: &self.method, status, error, seconds });
    }
}

/// Name of an error, for `error.type`.
pub(crate) fn error_type(error: &SendError) -> &'static str {
    match error {
        SendError::TimedOut(_) => "timeout",
        SendError::Refused(_) => "refused",
        SendError::BadResponse(_) | SendError::TooManyFields => "bad_response",
        SendError::Unavailable | SendError::NoConnection(_) | SendError::Full => CONNECT_FAILED,
    }
}
